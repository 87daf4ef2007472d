// The page's own signs, drawn with lines: what a font has of pictures differs from machine to machine.

const PATHS = {
  thread: "M4 5h16v11H10l-4 4v-4H4z",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  edit: "M4 20h4L19 9l-4-4L4 16z",
  remove: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  eye: "M2 12s4-6 10-6 10 6 10 6-4 6-10 6-10-6-10-6zM12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  tool: "M14 6a4 4 0 0 1 5 5l-9 9-4-4 9-9zM5 3l4 4",
  folder: "M3 6h6l2 2h10v11H3z",
  send: "M4 12l16-8-5 17-3-7z",
  attach: "M12 5v14M5 12h14",
  theme: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 5v14a7 7 0 0 0 0-14z",
  hash: "M9 4L7 20M17 4l-2 16M4 9h16M3 15h16",
};

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", `icon of-${name}`);
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}
