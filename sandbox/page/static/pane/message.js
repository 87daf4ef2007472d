// A message, as its platform shows it.

import { h } from "../dom.js";
import { icon } from "../icons.js";
import { messageMenu } from "./menu.js";

const QUICK = { slack: [["+1", "👍"], ["eyes", "👀"], ["tada", "🎉"], ["heart", "❤️"]], discord: ["👍", "👀", "🎉", "❤️"].map((e) => [e, e]) };

const TASK = { pending: "○", in_progress: "◐", complete: "✓", error: "✕" };

// Creates a message. `act` sends an action for this platform; `edit` and `openThread` open the message or its thread.
export function message(platform, said, { act, edit, openThread, menu, isReply = false }) {
  const id = said.id;
  const classes = ["message"];
  if (said.ephemeral) classes.push("ephemeral");
  if (said.pings) classes.push("pings");
  if (said.system) classes.push("system");
  return h(
    "article",
    {
      class: classes.join(" "),
      "aria-label": `${said.author}, ${said.time}`,
      tabindex: "-1",
      "data-id": id,
      "data-focus": id,
    },
    said.reference ? quoted(said.reference) : null,
    said.bot ? h("img", { class: "avatar bot", src: "/static/icon.svg", alt: "" }) : face(said.author),
    h(
      "div",
      { class: "body" },
      h(
        "div",
        { class: "head" },
        h("strong", { class: said.app ? "name app" : "name" }, said.author),
        said.app ? h("span", { class: "badge" }, "APP") : null,
        h("time", {}, said.time),
        said.system ? h("span", { class: "system-text" }, said.system) : null,
      ),
      said.plan ? h("div", { class: "plan" }, said.plan) : null,
      said.tasks.length ? h("ul", { class: "tasks", "aria-label": "Tasks" }, said.tasks.map(task)) : null,
      said.loading ? h("p", { class: "loading" }, dots(), said.loading) : null,
      said.html ? text(said) : null,
      said.streaming ? h("span", { class: "caret", role: "img", "aria-label": "Streaming" }) : null,
      said.files.length ? h("div", { class: "files" }, said.files.map(file)) : null,
      said.controls.length ? h("div", { class: "buttons" }, said.controls.map((one) => button(one, id, act))) : null,
      said.reactions.length ? h("div", { class: "reactions" }, said.reactions.map((one) => reaction(one, id, act))) : null,
      said.ephemeral ? h("p", { class: "ephemeral-note" }, icon("eye"), "Only visible to you") : null,
      said.replies ? replies(platform, said, { act, edit, openThread, menu }) : null,
      said.thread ? thread(said, openThread) : null,
    ),
    said.deleted || said.system ? null : tools(platform, said, { act, edit, openThread, menu, isReply }),
  );
}

// The text, with "(edited)" after the last paragraph.
function text(said) {
  const room = h("div", { class: "text", html: said.html });
  const last = room.lastElementChild;
  if (said.edited) (last?.tagName === "P" || last?.tagName === "DIV" ? last : room).append(" ", h("span", { class: "edited" }, "(edited)"));
  return room;
}

// The picture of a person: the first letter in a colour of its own.
export function face(name, size = "") {
  const hue = [...name].reduce((sum, letter) => sum + letter.codePointAt(0), 0) % 6;
  return h("span", { class: `avatar c${hue} ${size}`, "aria-hidden": "true" }, name.slice(0, 1).toUpperCase());
}

function quoted(to) {
  return h("div", { class: "reference" }, h("span", { class: "name" }, to.author), " ", h("span", { class: "excerpt" }, to.text));
}

function task(one) {
  return h(
    "li",
    { class: `task ${one.status}` },
    h("span", { class: "status-icon", "aria-label": one.status.replace("_", " ") }, TASK[one.status] ?? "○"),
    h("div", {}, h("span", { class: "title" }, one.title), one.html ? h("div", { class: "details", html: one.html }) : null),
  );
}

function file(one) {
  const size = one.size < 1024 ? `${one.size} B` : one.size < 1048576 ? `${(one.size / 1024).toFixed(1)} kB` : `${(one.size / 1048576).toFixed(1)} MB`;
  if (one.kind === "image") {
    return h("a", { class: "image", href: one.url, target: "_blank", rel: "noopener" }, h("img", { src: one.url, alt: one.description || one.name, loading: "lazy" }));
  }
  const link = h("a", { class: "file", href: one.url, download: one.name }, icon("file"), h("span", {}, h("b", {}, one.name), h("small", {}, size)));
  if (one.kind !== "audio") return link;
  return h("div", { class: "audio" }, link, h("audio", { src: one.url, controls: true, preload: "metadata", "aria-label": one.description || one.name }));
}

function button(one, id, act) {
  if (one.style === "menu") return messageMenu(one, id, (values) => act("select_values", { message: id, menu: one.id, values }));
  if (one.url) return h("a", { class: "button link", href: /^https?:/.test(one.url) ? one.url : null, target: "_blank", rel: "noopener noreferrer" }, one.label);
  const press = async (event) => {
    const pressed = event.currentTarget;
    pressed.setAttribute("aria-busy", "true");
    await act("click_button", { message: id, button: one.id });
    pressed.removeAttribute("aria-busy");
  };
  const only = one.emoji && (one.emoji === "👍" || one.emoji === "👎") && one.accessibility_label;
  return h(
    "button",
    { class: `button ${one.style}${only ? " thumb" : ""}`, type: "button", disabled: one.disabled, "aria-label": one.accessibility_label || one.label, title: only ? one.label : null, "data-focus": `${id} ${one.id}`, onclick: press },
    one.emoji ? h("span", { "aria-hidden": "true" }, one.emoji) : null,
    only ? null : one.label,
  );
}

function reaction(one, id, act) {
  return h(
    "button",
    { class: `reaction${one.mine ? " mine" : ""}`, type: "button", "aria-pressed": String(one.mine), "aria-label": `${one.key}, ${one.count}`, "data-focus": `${id} r ${one.key}`, onclick: () => act("toggle_reaction", { message: id, emoji: one.key }) },
    h("span", { "aria-hidden": "true" }, one.emoji),
    h("span", {}, String(one.count)),
  );
}

function replies(platform, said, tools) {
  const { count, authors: people, newest } = said.replies;
  return h(
    "div",
    { class: "replies" },
    h(
      "button",
      { class: "open", type: "button", "data-focus": `${said.id} open`, onclick: () => tools.openThread(said) },
      h("span", { class: "avatars", "aria-hidden": "true" }, people.map((name) => face(name, "small"))),
      h("b", {}, count === 1 ? "1 reply" : `${count} replies`),
      h("span", { class: "view-thread" }, "View thread ›"),
    ),
    message(platform, newest, { ...tools, isReply: true }),
  );
}

function thread(said, openThread) {
  const { name, count } = said.thread;
  return h(
    "button",
    { class: "thread", type: "button", "data-focus": `${said.id} open`, onclick: () => openThread(said) },
    h("b", {}, name),
    h("span", {}, count === 1 ? "1 message ›" : `${count} messages ›`),
  );
}

// The toolbar of a message, shown on hover and on focus.
function tools(platform, said, { act, edit, openThread, menu, isReply }) {
  const id = said.id;
  const tool = (label, sign, action, name) => h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, "data-focus": `${id} t ${name || label}`, onclick: action }, sign);
  const entries = menu();
  return h(
    "div",
    { class: "toolbar", role: "group", "aria-label": "Message actions" },
    QUICK[platform].slice(0, isReply ? 2 : 4).map(([name, sign]) => tool(`React with ${name}`, sign, () => act("toggle_reaction", { message: id, emoji: name }))),
    said.ephemeral || isReply ? null : tool(platform === "slack" ? "Reply in thread" : "Create thread", icon("thread"), () => openThread(said), "thread"),
    said.own ? tool("Edit", icon("edit"), () => edit(said)) : null,
    said.own ? tool("Delete", icon("remove"), () => act("delete_message", { message: id })) : null,
    entries.length && !said.ephemeral ? more(entries, id, act) : null,
  );
}

// The bot's commands in the menu of a message.
function more(entries, id, act) {
  const choose = (entry) => {
    fold.open = false;
    fold.querySelector("summary").focus();
    act("use_menu_entry", { message: id, entry });
  };
  const fold = h(
    "details",
    { class: "more-menu", "data-fold": "more" },
    h("summary", { class: "icon-button", "aria-label": "More actions", title: "More actions", "data-focus": `${id} more` }, icon("more")),
    h("div", { class: "menu", role: "group", "aria-label": "Apps" }, entries.map((entry) => h("button", { type: "button", "data-focus": `${id} m ${entry}`, onclick: () => choose(entry) }, entry))),
  );
  fold.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !fold.open) return;
    fold.open = false;
    fold.querySelector("summary").focus();
    event.stopPropagation();
  });
  fold.addEventListener("focusout", (event) => {
    if (!fold.contains(event.relatedTarget)) fold.open = false;
  });
  return fold;
}

export function dots() {
  return h("span", { class: "dots", "aria-hidden": "true" }, h("i"), h("i"), h("i"));
}
