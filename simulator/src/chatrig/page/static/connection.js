// The connection to the server: receives the view by keys, sends the user's actions and returns their results.

// The view of the page: JSON values by key, as `PageSession` in `simulator/src/chatrig/page/session.py` sends them.
export const store = new Map();

const MIN_RETRY_MILLISECONDS = 250;
const MAX_RETRY_MILLISECONDS = 4000;

const listeners = new Set();
const pendingActions = new Map(); // the `resolve` functions of sent actions by action id
let socket = null;
let lastActionId = 0;
let retryMilliseconds = MIN_RETRY_MILLISECONDS;

// Calls a listener with the set of changed keys after each change of the store.
export function onChange(listener) {
  listeners.add(listener);
}

// Sends an action to the server; resolves to its result: a notice for the user, or data.
export function sendAction(action, parameters = {}) {
  return new Promise((resolve, reject) => {
    if (socket?.readyState !== WebSocket.OPEN) {
      reject(new Error("The page is not connected."));
      return;
    }
    lastActionId += 1;
    pendingActions.set(lastActionId, resolve);
    socket.send(JSON.stringify({ id: lastActionId, action, ...parameters }));
  });
}

// Connects to the server, again after each disconnection; calls `onStateChange` with whether the page is connected.
export function connect(onStateChange) {
  socket = new WebSocket(`ws://${location.host}/socket`);
  socket.addEventListener("open", () => {
    retryMilliseconds = MIN_RETRY_MILLISECONDS;
    store.clear();
    onStateChange(true);
  });
  socket.addEventListener("message", (event) => {
    const update = JSON.parse(event.data);
    if ("id" in update) {
      pendingActions.get(update.id)?.(update.result);
      pendingActions.delete(update.id);
      return;
    }
    for (const key of update.removed) store.delete(key);
    for (const [key, value] of Object.entries(update.set)) store.set(key, value);
    for (const listener of listeners) listener(new Set([...Object.keys(update.set), ...update.removed]));
  });
  socket.addEventListener("close", () => {
    for (const resolve of pendingActions.values()) resolve("The page lost its connection.");
    pendingActions.clear();
    onStateChange(false);
    setTimeout(() => connect(onStateChange), retryMilliseconds);
    retryMilliseconds = Math.min(retryMilliseconds * 2, MAX_RETRY_MILLISECONDS);
  });
}
