export function render({model}) {
  const line = document.createElement("p")
  line.id = "status"
  line.setAttribute("role", "status")
  const show = () => {
    const lost = document.documentElement.dataset.connection === "lost"
    line.textContent = lost ? "Connection lost: what is shown may be out of date." : model.text
    line.className = lost ? "bad" : model.busy ? "busy" : model.tone
    line.setAttribute("aria-busy", model.busy && !lost)
  }
  for (const name of ["text", "busy", "tone"]) model.on(name, show)
  window.addEventListener("connection", show)
  show()
  return line
}
