// A message, as its platform shows it.

import { h } from "../dom.js";
import { renderIcon } from "../icons.js";
import { renderMessageMenu } from "./menu.js";

// The reactions of the toolbar, by platform: key and emoji.
const QUICK_REACTIONS = { slack: [["+1", "👍"], ["eyes", "👀"], ["tada", "🎉"], ["heart", "❤️"]], discord: ["👍", "👀", "🎉", "❤️"].map((e) => [e, e]) };

// The icons of Slack's tasks, by status.
const TASK_ICONS = { pending: "○", in_progress: "◐", complete: "✓", error: "✕" };

// Returns a message. `sendAction` sends an action for this platform; `startEditing` and `openThread` open the message or
// its thread; `getMenuEntries` returns the bot's entries of the context menu.
export function renderMessage(platform, message, { sendAction, startEditing, openThread, getMenuEntries, isReply = false }) {
  const id = message.id;
  const classes = ["message"];
  if (message.ephemeral) classes.push("ephemeral");
  if (message.pings) classes.push("pings");
  if (message.system) classes.push("system");
  return h(
    "article",
    {
      class: classes.join(" "),
      "aria-label": `${message.author}, ${message.time}`,
      tabindex: "-1",
      "data-id": id,
      "data-focus": id,
    },
    message.reference ? renderReference(message.reference) : null,
    renderAuthorAvatar(message.author, message.bot),
    h(
      "div",
      { class: "body" },
      h(
        "div",
        { class: "head" },
        h("strong", { class: message.app ? "name app" : "name" }, message.author),
        message.app ? h("span", { class: "badge" }, "APP") : null,
        h("time", {}, message.time),
        message.system ? h("span", { class: "system-text" }, message.system) : null,
      ),
      message.plan ? h("div", { class: "plan" }, message.plan) : null,
      message.tasks.length ? h("ul", { class: "tasks", "aria-label": "Tasks" }, message.tasks.map(renderTask)) : null,
      message.loading ? h("p", { class: "loading" }, renderTypingDots(), message.loading) : null,
      message.html ? renderText(message) : null,
      message.streaming ? h("span", { class: "caret", role: "img", "aria-label": "Streaming" }) : null,
      message.files.length ? h("div", { class: "files" }, message.files.map(renderFile)) : null,
      message.controls.length ? h("div", { class: "buttons" }, message.controls.map((control) => renderControl(control, id, sendAction))) : null,
      message.reactions.length ? h("div", { class: "reactions" }, message.reactions.map((reaction) => renderReaction(reaction, id, sendAction))) : null,
      message.ephemeral ? h("p", { class: "ephemeral-note" }, renderIcon("eye"), "Only visible to you") : null,
      message.replies ? renderReplies(platform, message, { sendAction, startEditing, openThread, getMenuEntries }) : null,
      message.thread ? renderThreadLink(message, openThread) : null,
    ),
    message.deleted || message.system ? null : renderToolbar(platform, message, { sendAction, startEditing, openThread, getMenuEntries, isReply }),
  );
}

// Returns the text, with "(edited)" after the last paragraph.
function renderText(message) {
  const text = h("div", { class: "text", html: message.html });
  const last = text.lastElementChild;
  if (message.edited) (last?.tagName === "P" || last?.tagName === "DIV" ? last : text).append(" ", h("span", { class: "edited" }, "(edited)"));
  return text;
}

function renderAuthorAvatar(name, isBot, size = "") {
  return isBot ? h("img", { class: `avatar bot ${size}`, src: "/static/icon.svg", alt: "" }) : renderAvatar(name, size);
}

// Returns the avatar of a person: the first letter of the name, in one of six colours.
export function renderAvatar(name, size = "") {
  const hue = [...name].reduce((sum, letter) => sum + letter.codePointAt(0), 0) % 6;
  return h("span", { class: `avatar c${hue} ${size}`, "aria-hidden": "true" }, name.slice(0, 1).toUpperCase());
}

function renderReference(reference) {
  return h("div", { class: "reference" }, h("span", { class: "name" }, reference.author), " ", h("span", { class: "excerpt" }, reference.text));
}

function renderTask(task) {
  return h(
    "li",
    { class: `task ${task.status}` },
    h("span", { class: "status-icon", "aria-label": task.status.replace("_", " ") }, TASK_ICONS[task.status] ?? "○"),
    h("div", {}, h("span", { class: "title" }, task.title), task.html ? h("div", { class: "details", html: task.html }) : null),
  );
}

function renderFile(file) {
  const size = file.size < 1024 ? `${file.size} B` : file.size < 1048576 ? `${(file.size / 1024).toFixed(1)} kB` : `${(file.size / 1048576).toFixed(1)} MB`;
  if (file.kind === "image") {
    return h("a", { class: "image", href: file.url, target: "_blank", rel: "noopener" }, h("img", { src: file.url, alt: file.description || file.name, loading: "lazy" }));
  }
  const link = h("a", { class: "file", href: file.url, download: file.name }, renderIcon("file"), h("span", {}, h("b", {}, file.name), h("small", {}, size)));
  if (file.kind !== "audio") return link;
  return h("div", { class: "audio" }, link, h("audio", { src: file.url, controls: true, preload: "metadata", "aria-label": file.description || file.name }));
}

function renderControl(control, id, sendAction) {
  if (control.style === "menu") return renderMessageMenu(control, id, (values) => sendAction("select_values", { message: id, menu: control.id, values }));
  const handleClick = async (event) => {
    const button = event.currentTarget;
    button.setAttribute("aria-busy", "true");
    await sendAction("click_button", { message: id, button: control.id });
    button.removeAttribute("aria-busy");
  };
  if (control.url) {
    const href = /^https?:/.test(control.url) ? control.url : null;
    return h("a", { class: `button ${control.style}`, href, target: "_blank", rel: "noopener noreferrer", onclick: control.id ? handleClick : null }, control.label); // only Slack tells the app of the click
  }
  const isThumb = control.emoji && (control.emoji === "👍" || control.emoji === "👎") && control.accessibility_label;
  return h(
    "button",
    { class: `button ${control.style}${isThumb ? " thumb" : ""}`, type: "button", disabled: control.disabled, "aria-label": control.accessibility_label || control.label, title: isThumb ? control.label : null, "data-focus": `${id} ${control.id}`, onclick: handleClick },
    control.emoji ? h("span", { "aria-hidden": "true" }, control.emoji) : null,
    isThumb ? null : control.label,
  );
}

function renderReaction(reaction, id, sendAction) {
  return h(
    "button",
    { class: `reaction${reaction.mine ? " mine" : ""}`, type: "button", "aria-pressed": String(reaction.mine), "aria-label": `${reaction.key}, ${reaction.count}`, "data-focus": `${id} r ${reaction.key}`, onclick: () => sendAction("toggle_reaction", { message: id, emoji: reaction.key }) },
    h("span", { "aria-hidden": "true" }, reaction.emoji),
    h("span", {}, String(reaction.count)),
  );
}

function renderReplies(platform, message, actions) {
  const { count, authors, newest } = message.replies;
  return h(
    "div",
    { class: "replies" },
    h(
      "button",
      { class: "open", type: "button", "data-focus": `${message.id} open`, onclick: () => actions.openThread(message) },
      h("span", { class: "avatars", "aria-hidden": "true" }, authors.map(([name, isBot]) => renderAuthorAvatar(name, isBot, "small"))),
      h("b", {}, count === 1 ? "1 reply" : `${count} replies`),
      h("span", { class: "view-thread" }, "View thread ›"),
    ),
    renderMessage(platform, newest, { ...actions, isReply: true }),
  );
}

function renderThreadLink(message, openThread) {
  const { name, count } = message.thread;
  return h(
    "button",
    { class: "thread", type: "button", "data-focus": `${message.id} open`, onclick: () => openThread(message) },
    h("b", {}, name),
    h("span", {}, count === 1 ? "1 message ›" : `${count} messages ›`),
  );
}

// Returns the toolbar of a message, which is visible on hover and on focus.
function renderToolbar(platform, message, { sendAction, startEditing, openThread, getMenuEntries, isReply }) {
  const id = message.id;
  const renderIconButton = (label, content, onclick, focusName) => h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, "data-focus": `${id} t ${focusName || label}`, onclick }, content);
  const menuEntries = getMenuEntries();
  return h(
    "div",
    { class: "toolbar", role: "group", "aria-label": "Message actions" },
    QUICK_REACTIONS[platform].slice(0, isReply ? 2 : 4).map(([name, emoji]) => renderIconButton(`React with ${name}`, emoji, () => sendAction("toggle_reaction", { message: id, emoji: name }))),
    message.ephemeral || isReply ? null : renderIconButton(platform === "slack" ? "Reply in thread" : "Create thread", renderIcon("thread"), () => openThread(message), "thread"),
    message.own ? renderIconButton("Edit", renderIcon("edit"), () => startEditing(message)) : null,
    message.own ? renderIconButton("Delete", renderIcon("remove"), () => sendAction("delete_message", { message: id })) : null,
    menuEntries.length && !message.ephemeral ? renderMoreMenu(menuEntries, id, sendAction) : null,
  );
}

// Returns the context menu of a message with the bot's entries.
function renderMoreMenu(entries, id, sendAction) {
  const selectEntry = (entry) => {
    details.open = false;
    details.querySelector("summary").focus();
    sendAction("use_menu_entry", { message: id, entry });
  };
  const details = h(
    "details",
    { class: "more-menu", "data-details": "more" },
    h("summary", { class: "icon-button", "aria-label": "More actions", title: "More actions", "data-focus": `${id} more` }, renderIcon("more")),
    h("div", { class: "menu", role: "group", "aria-label": "Apps" }, entries.map((entry) => h("button", { type: "button", "data-focus": `${id} m ${entry}`, onclick: () => selectEntry(entry) }, entry))),
  );
  details.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !details.open) return;
    details.open = false;
    details.querySelector("summary").focus();
    event.stopPropagation();
  });
  details.addEventListener("focusout", (event) => {
    if (!details.contains(event.relatedTarget)) details.open = false;
  });
  return details;
}

// Returns the moving dots of a typing indicator.
export function renderTypingDots() {
  return h("span", { class: "dots", "aria-hidden": "true" }, h("i"), h("i"), h("i"));
}
