export function render({model}) {
  const show = () => { if (model.search) history.replaceState(null, "", model.search) }
  model.on("search", show)
  show()
  return document.createElement("span")
}
