// Is the server there? If not, the page says so, and loads itself anew as soon as it is back. The address holds
// the user's values. Parts of the page hear of it by the event "connection" of the window.

const EVERY = 1500 // milliseconds between two questions
const PATIENCE = 10000 // milliseconds that an answer may take

let run = null // of the server that this page came from
let lost = false
let followed = false

function lose() {
  if (lost) return
  lost = true
  document.documentElement.dataset.connection = "lost"
  const banner = document.getElementById("lost")
  banner.querySelector("code").textContent = `optlearn explore --port ${window.location.port}`
  banner.hidden = false
  window.dispatchEvent(new Event("connection"))
}

// A page whose own connection has ended, as on a machine that was asleep, is as dead as one without a server.
function follow() {
  const page = window.Bokeh?.documents[0]
  if (followed || !page) return
  page.on_event("connection_lost", lose)
  followed = true
}

async function ask() {
  try {
    const answer = await fetch("alive", {cache: "no-store", signal: AbortSignal.timeout(PATIENCE)})
    return answer.ok ? await answer.text() : null
  } catch {
    return null
  }
}

async function watch() {
  follow()
  const now = await ask()
  run ??= now
  if (now === null) lose()
  else if (lost || now !== run) window.location.reload()
  setTimeout(watch, EVERY)
}

watch()
