// Native controls: labelled, reachable by keyboard, and with their mistakes told where they were made.
// Python checks what is typed; here it is only sent.

const DEBOUNCE = 120 // milliseconds without a movement of the slider, after which it is sent

export function render({model, el}) {
  const form = document.createElement("form")
  form.noValidate = true
  form.className = model.layout
  form.addEventListener("submit", event => event.preventDefault())
  let parts = {}

  function send(name, text) {
    const lost = document.documentElement.dataset.connection === "lost"
    if (lost && model.in_address) remember(name, String(text))
    else model.send_msg({name, text: String(text)})
  }

  // Without a server: what is moved now is asked for when the page is loaded anew.
  function remember(name, text) {
    const address = new URL(window.location)
    if (name === "scenario") address.search = ""
    address.searchParams.set(name, text)
    history.replaceState(null, "", address)
  }

  function element(tag, properties = {}, ...children) {
    const made = document.createElement(tag)
    for (const [key, value] of Object.entries(properties)) {
      if (key.startsWith("aria-") || key === "for" || key === "role") made.setAttribute(key, value)
      else made[key] = value
    }
    made.append(...children)
    return made
  }

  function title(field) {
    const [letter, below] = (field.symbol || "").split("_")
    const symbol = letter ? [" ", element("i", {}, letter, ...(below ? [element("sub", {}, below)] : []))] : []
    return element("label", {for: field.name, title: field.help || ""}, field.label, ...symbol)
  }

  function number(field) {
    const typed = element("input", {id: field.name, type: "text", inputMode: "decimal", autocomplete: "off",
      placeholder: field.empty, "aria-describedby": `${field.name}-error`})
    const name = field.symbol ? `${field.label} ${field.symbol}` : field.label
    const slider = element("input", {type: "range", min: field.low, max: field.high, step: field.step,
      title: `${field.low} to ${field.high}`, "aria-label": `${name}, slider`})
    const error = element("p", {id: `${field.name}-error`, className: "mistake", role: "alert"})
    let timer = null
    slider.addEventListener("input", () => {
      typed.value = String(parseFloat(slider.value))
      clearTimeout(timer)
      timer = setTimeout(() => send(field.name, typed.value), DEBOUNCE)
    })
    typed.addEventListener("change", () => send(field.name, typed.value))
    typed.addEventListener("keydown", event => { if (event.key === "Enter") send(field.name, typed.value) })
    parts[field.name] = {
      set(value) {
        typed.value = slider.value = value ?? ""
        slider.classList.toggle("unset", value === null)
      },
      fail(text) { error.textContent = text; typed.setAttribute("aria-invalid", text ? "true" : "false") },
    }
    return element("div", {className: "field number"}, title(field), typed, slider, error)
  }

  function choice(field) {
    const list = element("select", {id: field.name, "aria-describedby": `${field.name}-error`})
    for (const [value, text] of field.options) list.append(element("option", {value}, text))
    const error = element("p", {id: `${field.name}-error`, className: "mistake", role: "alert"})
    list.addEventListener("change", () => send(field.name, list.value))
    parts[field.name] = {set(value) { list.value = value }, fail(text) { error.textContent = text }}
    return element("div", {className: "field choice"}, title(field), list, error)
  }

  function flag(field) {
    const box = element("input", {id: field.name, type: "checkbox"})
    const error = element("p", {className: "mistake", role: "alert"})
    box.addEventListener("change", () => send(field.name, box.checked))
    parts[field.name] = {set(value) { box.checked = value }, fail(text) { error.textContent = text }}
    return element("div", {className: "field flag"}, box, title(field), error)
  }

  function button(field) {
    const made = element("button", {type: "button", id: field.name, title: field.help || "",
      className: field.main ? "main" : ""}, field.label)
    made.addEventListener("click", () => send(field.name, ""))
    parts[field.name] = {set(value) { made.disabled = value === "disabled" }, fail() {}}
    return made
  }

  const kinds = {number, choice, flag, button}

  function build() {
    const open = form.querySelector("details")?.open
    parts = {}
    form.replaceChildren()
    const more = element("details", {open: Boolean(open)}, element("summary", {}, "More parameters"))
    const buttons = element("div", {className: "buttons"})
    for (const field of model.fields) {
      const place = field.kind === "button" ? buttons : field.more ? more : form
      place.append(kinds[field.kind](field))
    }
    if (more.children.length > 1) form.append(more)
    if (buttons.children.length) form.append(buttons)
    for (const [name, part] of Object.entries(parts)) if (name in model.values) part.set(model.values[name])
    update()
  }

  function update() {
    const busy = el.getRootNode().activeElement
    for (const [name, part] of Object.entries(parts)) {
      // What is being typed or has been refused is left alone.
      const error = model.errors[name] || ""
      if (name in model.values && !error && !(busy && busy.id === name && busy.type === "text" &&
          parseFloat(busy.value) === model.values[name])) part.set(model.values[name])
      part.fail(error)
    }
    const more = form.querySelector("details")
    if (more?.querySelector(".mistake:not(:empty)")) more.open = true // a mistake must be seen
  }

  model.on("fields", build)
  model.on("values", update)
  model.on("errors", update)
  model.on("msg:custom", file => {
    const url = URL.createObjectURL(new Blob([file.text], {type: file.type}))
    element("a", {href: url, download: file.name}).click()
    setTimeout(() => URL.revokeObjectURL(url), 1000)
  })
  build()
  return form
}
