// Elements and keyed lists of elements. Only message bodies come as HTML, from the page's own server, with their text escaped.

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
export function keep(parent, items, make) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let before = null;
  for (const { key, value } of items) {
    const mark = JSON.stringify(value);
    let element = known.get(key);
    known.delete(key);
    if (!element || element.mark !== mark) {
      const made = make(value, key);
      made.dataset.key = key;
      made.mark = mark;
      if (element) exchange(element, made);
      element = made;
    }
    const place = before ? before.nextSibling : parent.firstChild;
    if (place !== element) parent.insertBefore(element, place);
    before = element;
  }
  for (const element of known.values()) element.remove();
}

// Like `keep`, for one child.
export function show(parent, value, make) {
  keep(parent, [{ key: "only", value }], make);
}

function exchange(old, made) {
  const active = document.activeElement;
  const path = old.contains(active) ? active.dataset.focus || active.id : null;
  const open = within(old, "details[open]").map((each) => each.dataset.fold);
  for (const fold of within(made, "details")) if (open.includes(fold.dataset.fold)) fold.open = true;
  keepDrafts(old, made);
  old.replaceWith(made);
  if (path) within(made, "[data-focus], [id]").find((each) => (each.dataset.focus || each.id) === path)?.focus();
}

// Marks what the user enters in an element as not sent yet.
export function markDrafts(element) {
  element.addEventListener("input", ({ target }) => target.setAttribute("data-draft", ""));
}

export function clearDrafts(element) {
  for (const each of within(element, "[data-draft]")) each.removeAttribute("data-draft");
}

function keepDrafts(old, made) {
  for (const draft of within(old, "[data-draft]")) {
    const same = within(made, "[data-entry]").find((each) => each.dataset.entry === draft.dataset.entry);
    if (!same) continue;
    if (draft.type === "checkbox") same.checked = draft.checked;
    else same.value = draft.value;
    same.setAttribute("data-draft", "");
  }
}

// The elements that match a selector, the root included.
function within(element, selector) {
  return [element, ...element.querySelectorAll("*")].filter((each) => each.matches(selector));
}
