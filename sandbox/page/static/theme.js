// The colour theme: the system's, until the user chooses one.

export function swapTheme() {
  const isDark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (isDark ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("theme", document.documentElement.dataset.theme);
  } catch {
    // The browser does not allow storage: the theme lasts until the page is closed.
  }
}

export function restoreTheme() {
  try {
    const theme = localStorage.getItem("theme");
    if (theme) document.documentElement.dataset.theme = theme;
  } catch {
    // The browser does not allow storage.
  }
}
