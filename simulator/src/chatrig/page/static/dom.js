// Elements and keyed lists of elements. Only message bodies come as HTML, from the page's own server, with their text escaped.

// Creates an element. `on...` attributes are event listeners, `html` is its inner HTML; empty children are left out.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "html") element.innerHTML = value;
    else if (name === "value" || name === "checked" || name === "open") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Replaces an element's children by keyed items. Unchanged children stay; focus, open <details> and drafts are kept.
export function updateChildren(parent, items, render) {
  const childrenByKey = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let previous = null;
  for (const { key, value } of items) {
    const serializedValue = JSON.stringify(value);
    let element = childrenByKey.get(key);
    childrenByKey.delete(key);
    if (!element || element.serializedValue !== serializedValue) {
      const newElement = render(value, key);
      newElement.dataset.key = key;
      newElement.serializedValue = serializedValue;
      if (element) replaceElement(element, newElement);
      element = newElement;
    }
    const next = previous ? previous.nextSibling : parent.firstChild;
    if (next !== element) parent.insertBefore(element, next);
    previous = element;
  }
  for (const element of childrenByKey.values()) element.remove();
}

// Updates the only child of an element, as `updateChildren` does.
export function updateOnlyChild(parent, value, render) {
  updateChildren(parent, [{ key: "only", value }], render);
}

function replaceElement(oldElement, newElement) {
  const active = document.activeElement;
  const focusKey = oldElement.contains(active) ? active.dataset.focus || active.id : null;
  const openKeys = findAll(oldElement, "details[open]").map((details) => details.dataset.details);
  for (const details of findAll(newElement, "details")) if (openKeys.includes(details.dataset.details)) details.open = true;
  copyDrafts(oldElement, newElement);
  oldElement.replaceWith(newElement);
  if (focusKey) findAll(newElement, "[data-focus], [id]").find((element) => (element.dataset.focus || element.id) === focusKey)?.focus();
}

// Marks the inputs that the user changes in an element as drafts, until `clearDrafts`.
export function markDrafts(element) {
  element.addEventListener("input", ({ target }) => target.setAttribute("data-draft", ""));
}

// Removes the marks of `markDrafts`, once the entries are sent.
export function clearDrafts(element) {
  for (const draft of findAll(element, "[data-draft]")) draft.removeAttribute("data-draft");
}

function copyDrafts(oldElement, newElement) {
  for (const draft of findAll(oldElement, "[data-draft]")) {
    const input = findAll(newElement, "[data-input]").find((candidate) => candidate.dataset.input === draft.dataset.input);
    if (!input) continue;
    if (draft.type === "checkbox") input.checked = draft.checked;
    else input.value = draft.value;
    input.setAttribute("data-draft", "");
  }
}

// Returns the elements that match a selector, the root included.
function findAll(root, selector) {
  return [root, ...root.querySelectorAll("*")].filter((element) => element.matches(selector));
}
