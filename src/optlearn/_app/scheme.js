export function render({model}) {
  const query = window.matchMedia("(prefers-color-scheme: dark)")
  model.dark = query.matches
  query.addEventListener("change", () => { model.dark = query.matches })
  return document.createElement("span")
}
