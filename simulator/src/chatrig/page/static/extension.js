// Additions to the page by the program that serves it, as `client/extension.py` describes. Its script fills these lists
// before the page starts; its functions read the store.

export const extension = {
  // Tabs of the inspector before the page's own, each with `key`, `label`, `count()` and `update(content, inspector)`:
  // it updates the element of the open tab after a change.
  tabs: [],
  // Parts of the header. `read()` returns their values; `render(runAction)` returns their elements after these changed.
  controls: [],
  // Switches of the bot in the tab "Faults", each with `label`, `description`, `isActive()` and `toggle(runAction)`.
  switches: [],
  // Functions that are called after each change, with the `views` of `page.js`.
  updates: [],
  // Returns the texts that an empty conversation offers to post, unless the bot suggests others; empty for a greeting.
  getPrompts: () => [],
};
