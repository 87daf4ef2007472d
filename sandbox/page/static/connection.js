// The connection to the server: receives the view by keys, sends the user's actions and returns their answers.

export const store = new Map();

const listeners = new Set();
const waiting = new Map();
let socket = null;
let number = 0;
let pause = 250;

export function onChange(listener) {
  listeners.add(listener);
}

// Sends an action to the server; resolves to its answer: a notice for the user, or data.
export function act(action, about = {}) {
  return new Promise((resolve, reject) => {
    if (socket?.readyState !== WebSocket.OPEN) {
      reject(new Error("The page is not connected."));
      return;
    }
    number += 1;
    waiting.set(number, resolve);
    socket.send(JSON.stringify({ id: number, action, ...about }));
  });
}

export function connect(onState) {
  socket = new WebSocket(`ws://${location.host}/socket`);
  socket.addEventListener("open", () => {
    pause = 250;
    store.clear();
    onState(true);
  });
  socket.addEventListener("message", (event) => {
    const news = JSON.parse(event.data);
    if ("id" in news) {
      waiting.get(news.id)?.(news.result);
      waiting.delete(news.id);
      return;
    }
    for (const key of news.removed) store.delete(key);
    for (const [key, value] of Object.entries(news.set)) store.set(key, value);
    for (const listener of listeners) listener(new Set([...Object.keys(news.set), ...news.removed]));
  });
  socket.addEventListener("close", () => {
    for (const resolve of waiting.values()) resolve("The page lost its connection.");
    waiting.clear();
    onState(false);
    setTimeout(() => connect(onState), pause);
    pause = Math.min(pause * 2, 4000);
  });
}
