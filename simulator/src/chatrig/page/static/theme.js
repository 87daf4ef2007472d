// The colour theme: the system's, until the user chooses one.

// Switches between light and dark, and stores the choice.
export function toggleTheme() {
  const isDark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  const currentTheme = document.documentElement.dataset.theme ?? (isDark ? "dark" : "light");
  document.documentElement.dataset.theme = currentTheme === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("theme", document.documentElement.dataset.theme);
  } catch {
    // The browser does not allow storage: the theme lasts until the page is closed.
  }
}

// Applies the stored choice of the user, if there is one.
export function restoreTheme() {
  try {
    const theme = localStorage.getItem("theme");
    if (theme) document.documentElement.dataset.theme = theme;
  } catch {
    // The browser does not allow storage.
  }
}
