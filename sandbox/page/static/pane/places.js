// The side bar of a platform: direct messages, channels, and their threads below them.

import { h, keep } from "../dom.js";
import { icon } from "../icons.js";
import { face } from "./message.js";

export class Places {
  // `open` shows a place.
  constructor(name, open) {
    this.open = open;
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

  // Opens or closes the side bar where it has no room beside the messages.
  toggle(isOpen = !this.nav.classList.contains("open")) {
    this.nav.classList.toggle("open", isOpen);
    if (isOpen) (this.nav.querySelector(".place.current") ?? this.nav.querySelector(".place"))?.focus();
  }

  paint(about, user) {
    const homes = about.places.filter((place) => !place.thread);
    const groups = [
      ["Direct messages", homes.filter((place) => place.is_dm)],
      ["Channels", homes.filter((place) => !place.is_dm)],
    ];
    const items = groups.flatMap(([title, places]) => [
      { key: title, value: { title } },
      ...places.flatMap((home) => [home, ...about.places.filter((one) => one.thread && one.channel === home.channel)]).map((place) => ({ key: keyOf(place), value: { ...place, isHere: keyOf(place) === keyOf(about.place), bot: about.bot } })),
    ]);
    keep(this.groups, items, (item) => (item.title ? h("h3", {}, item.title) : this.place(item)));
    keep(this.user, [{ key: "user", value: user }], (name) => h("div", {}, face(name, "small"), h("span", {}, h("b", {}, name), h("small", {}, "Online"))));
  }

  place(place) {
    const choose = () => {
      this.toggle(false);
      this.open(place);
    };
    return h(
      "button",
      {
        type: "button",
        class: `place${place.thread ? " sub" : ""}${place.isHere ? " current" : ""}${place.unread ? " unread" : ""}`,
        "aria-current": place.isHere ? "true" : null,
        "data-focus": `place ${keyOf(place)}`,
        title: place.name,
        onclick: choose,
      },
      sign(place),
      h("span", { class: "label" }, place.name.replace(/^[#@]/, "")),
      place.unread ? h("span", { class: "count" }, h("span", { class: "hidden" }, "unread: "), String(place.unread)) : null,
    );
  }
}

export function keyOf(place) {
  return `${place.channel} ${place.thread}`;
}

function sign(place) {
  if (place.thread) return icon("thread");
  if (place.is_dm) return h("img", { src: "/static/icon.svg", alt: "" });
  return icon(place.is_forum ? "forum" : "hash");
}
