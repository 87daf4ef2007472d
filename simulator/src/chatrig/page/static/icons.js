// The page's own icons, drawn as lines: the emoji of fonts differ between machines.

const PATHS = {
  thread: "M4 5h16v11H10l-4 4v-4H4z",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  edit: "M4 20h4L19 9l-4-4L4 16z",
  remove: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  eye: "M2 12s4-6 10-6 10 6 10 6-4 6-10 6-10-6-10-6zM12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  tool: "M14 6a4 4 0 0 1 5 5l-9 9-4-4 9-9zM5 3l4 4",
  folder: "M3 6h6l2 2h10v11H3z",
  send: "M4 4l17 8-17 8 3-8zM7 12h6",
  plus: "M12 5v14M5 12h14",
  at: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM16 8v5.500a2.500 2.500 0 0 0 5 0V12a9 9 0 1 0-4 7.500",
  slash: "M5 3h14a2 2 0 0 1 2 2v14a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2V5a2 2 0 0 1 2-2zM14 8l-4 8",
  theme: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 5v14a7 7 0 0 0 0-14z",
  hash: "M9 4L7 20M17 4l-2 16M4 9h16M3 15h16",
  forum: "M3 5h13v9H9l-3 3v-3H3zM8 17v1h7l3 3v-3h3V9h-2",
  list: "M4 6h16M4 12h16M4 18h16",
  back: "M14 6l-6 6 6 6",
  inspect: "M3 4h18v16H3zM15 4v16",
  close: "M6 6l12 12M18 6L6 18",
};

// Returns an icon of the page, which takes the colour of the text.
export function renderIcon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}
