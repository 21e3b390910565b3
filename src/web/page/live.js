// Reads the server, and follows its changes.

let token = null;
let version = "";
let reading = false;
let planned = null;
let last = 0;
// The least time between two reads, in milliseconds.
const PACE = 2000;

class Refusal extends Error {}
/** The server has no place for this page now. `wait`: milliseconds. */
class Busy extends Error {
  constructor(why, wait) {
    super(why);
    this.wait = wait;
  }
}

function headers(more) {
  return token ? { ...more, Authorization: `Bearer ${token}` } : more || {};
}

/** Asks the server. The answer is JSON; a refusal asks for a token. */
async function request(path, more) {
  const used = token;
  const answer = await fetch(path, { headers: headers(more), cache: "no-cache" });
  if (answer.ok) return answer;
  const why = (await answer.text()).trim() || `the server answers ${answer.status}`;
  if (answer.status === 401 || (answer.status === 403 && used)) {
    // Several requests with one token may be refused. The first one asks for another.
    if (used === token) login(used ? why : "");
    throw new Refusal(why);
  }
  const after = Number(answer.headers.get("Retry-After"));
  if (after > 0) throw new Busy(why, after * 1000);
  throw new Error(why);
}
const ask = async (path) => (await request(path)).json();

function login(why) {
  token = null;
  at("refusal").textContent = why;
  at("login").hidden = false;
  at("machines").hidden = at("actors").hidden = true;
  link("", "a token is needed");
}
at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value.trim();
  at("token").value = "";
  at("login").hidden = true;
  route();
  refresh();
  showMachine();
});

function link(kind, text) {
  at("link").className = kind;
  at("link").textContent = text;
}

/** Reads soon. Many calls are one read. */
function refreshSoon() {
  if (planned) return;
  planned = setTimeout(() => {
    planned = null;
    refresh();
  }, Math.max(0, last + PACE - Date.now()));
}

/** Reads what the present view shows. */
async function refresh() {
  if (!at("login").hidden) return;
  if (reading) {
    refreshSoon();
    return;
  }
  reading = true;
  last = Date.now();
  try {
    topology = await ask("topology.json");
    reconcile(at("notes"), topology.notes, (note) => note, (note) => make("p", { class: "note" }, note));
    showMachines();
    if (location.hash === "#actors") await showActors();
    if (openMachine) await showMachine();
    link("live", "live");
  } catch (error) {
    if (!(error instanceof Refusal)) link("lost", `not up to date: ${error.message}`);
  }
  reading = false;
}

/** Follows the events of the server until the connection ends. `EventSource` cannot send a token, so this reads the stream. */
async function followOnce() {
  const answer = await request("events", { Accept: "text/event-stream" });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.match(/^data: (.*)$/m);
      if (data && data[1] !== version) {
        version = data[1];
        refreshSoon();
      }
    }
  }
}

async function follow() {
  for (;;) {
    let wait = 2000;
    if (at("login").hidden && !document.hidden) {
      try {
        await followOnce();
      } catch (error) {
        if (!(error instanceof Refusal)) link("lost", `not up to date: ${error.message}`);
        if (error instanceof Busy) wait = error.wait;
        version = "";
      }
    }
    await new Promise((done) => setTimeout(done, wait));
  }
}

/** Shows the view that the address names. */
function route() {
  const actors = location.hash === "#actors";
  const open = at("login").hidden;
  at("machines").hidden = actors || !open;
  at("actors").hidden = !actors || !open;
  for (const [id, on] of [["tab-machines", !actors], ["tab-actors", actors]]) {
    if (on) at(id).setAttribute("aria-current", "page");
    else at(id).removeAttribute("aria-current");
  }
}

window.addEventListener("hashchange", () => {
  route();
  if (location.hash.startsWith("#machine/")) showMachine();
  else if (at("machine").open) {
    openMachine = null;
    at("machine").close();
  }
  if (location.hash === "#actors") refresh();
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || at("machine").open) return;
  const typing = event.target instanceof HTMLInputElement;
  if (event.key === "/" && !typing) {
    event.preventDefault();
    at("search").focus();
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && event.target.matches("#tree a, #search")) {
    const all = [at("search"), ...at("tree").querySelectorAll(".row a")];
    const next = all[all.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1)];
    if (next) {
      event.preventDefault();
      next.focus();
    }
  }
});

// What actors do is no change of an object.
setInterval(() => {
  if (location.hash === "#actors" && !document.hidden) refresh();
}, 5000);

if (location.hash.startsWith("#machine/")) showMachine();
route();
refresh();
follow();
