// The side bar of a platform: direct messages, channels, and their threads below them.

import { h, updateChildren } from "../dom.js";
import { renderIcon } from "../icons.js";
import { renderAvatar } from "./message.js";

// The side bar. In a narrow pane, it is over the messages and closed at first.
export class Sidebar {
  // `name` is the platform's; `openPlace` shows a place.
  constructor(name, openPlace) {
    this.openPlace = openPlace;
    this.groups = h("div", { class: "groups" });
    this.user = h("div", { class: "user" });
    this.nav = h("nav", { class: "sidebar", "aria-label": `Channels and threads of ${name}` }, h("h2", {}, name), this.groups, this.user);
    this.nav.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.toggle(false);
    });
    this.nav.addEventListener("focusout", (event) => {
      if (event.relatedTarget && !this.nav.contains(event.relatedTarget)) this.toggle(false);
    });
    document.addEventListener("pointerdown", (event) => {
      if (!this.nav.contains(event.target) && !event.target.closest(".open-sidebar")) this.toggle(false);
    });
  }

  // Opens or closes the side bar in a narrow pane.
  toggle(isOpen = !this.nav.classList.contains("open")) {
    this.nav.classList.toggle("open", isOpen);
    if (isOpen) (this.nav.querySelector(".place.current") ?? this.nav.querySelector(".place"))?.focus();
  }

  // Updates the places and the name of the current user; `state` is the pane's.
  update(state, userName) {
    const channels = state.places.filter((place) => !place.thread);
    const groups = [
      ["Direct messages", channels.filter((place) => place.is_dm)],
      ["Channels", channels.filter((place) => !place.is_dm)],
    ];
    const items = groups.flatMap(([title, places]) => [
      { key: title, value: { title } },
      ...places.flatMap((channel) => [channel, ...state.places.filter((place) => place.thread && place.channel === channel.channel)]).map((place) => ({ key: getPlaceKey(place), value: { ...place, isOpen: getPlaceKey(place) === getPlaceKey(state.place), bot: state.bot } })),
    ]);
    updateChildren(this.groups, items, (item) => (item.title ? h("h3", {}, item.title) : this.renderPlace(item)));
    updateChildren(this.user, [{ key: "user", value: userName }], (name) => h("div", {}, renderAvatar(name, "small"), h("span", {}, h("b", {}, name), h("small", {}, "Online"))));
  }

  renderPlace(place) {
    const open = () => {
      this.toggle(false);
      this.openPlace(place);
    };
    return h(
      "button",
      {
        type: "button",
        class: `place${place.thread ? " sub" : ""}${place.isOpen ? " current" : ""}${place.unread ? " unread" : ""}`,
        "aria-current": place.isOpen ? "true" : null,
        "data-focus": `place ${getPlaceKey(place)}`,
        title: place.name,
        onclick: open,
      },
      renderPlaceIcon(place),
      h("span", { class: "label" }, place.name.replace(/^[#@]/, "")),
      place.unread ? h("span", { class: "count" }, h("span", { class: "hidden" }, "unread: "), String(place.unread)) : null,
    );
  }
}

// Returns a text that identifies a place on its platform.
export function getPlaceKey(place) {
  return `${place.channel} ${place.thread}`;
}

function renderPlaceIcon(place) {
  if (place.thread) return renderIcon("thread");
  if (place.is_dm) return h("img", { src: "/static/icon.svg", alt: "" });
  return renderIcon(place.is_forum ? "forum" : "hash");
}
