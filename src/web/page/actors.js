// The actors.

const ACTORS = ["Actor", "State", "Passes", "Wakes", "Last wake", "Failures in a row", "Waits for", "Mailbox", "Restarts"];

function actorRow(actor) {
  const s = actor.state;
  const number = (title, n) => make("td", { class: "number", "data-title": title }, n === null || n === undefined ? "–" : String(n));
  const life = s ? (s.running ? "running" : "idle") : actor.life.is === "restarting" ? `died; restarts in ${actor.life.inSeconds.toFixed(1)} s` : "does not answer";
  const bad = !s || s.failures > 0;
  const waits = s ? s.waitingOn.map(([reason, message]) => make("div", {}, make("span", { class: "reason" }, reason), ` ${message}`)) : [];
  return make(
    "tr",
    { class: bad ? "bad" : waits.length ? "waits" : null },
    make("th", { scope: "row" }, actor.name),
    make("td", { "data-title": "State" }, life),
    number("Passes", s && s.passes),
    number("Wakes", s && s.wakes),
    make("td", { "data-title": "Last wake" }, s && s.lastWakeSeconds !== null ? `${s.lastWake}, ${span(s.lastWakeSeconds)} ago` : "–"),
    number("Failures in a row", s && s.failures),
    make("td", { "data-title": "Waits for" }, ...(waits.length ? waits : ["–"])),
    number("Mailbox", actor.mailbox),
    number("Restarts", actor.restarts),
  );
}

async function showActors() {
  const actors = await ask("actors");
  const failing = actors.filter((a) => !a.state || a.state.failures > 0).length;
  const waiting = actors.filter((a) => a.state && a.state.waitingOn.length).length;
  const restarts = actors.reduce((sum, a) => sum + a.restarts, 0);
  const section = at("actors");
  if (!section.firstElementChild) {
    const head = make("thead", {}, make("tr", {}, ...ACTORS.map((t) => make("th", { scope: "col" }, t))));
    section.append(make("h2"), make("p", { class: "detail" }), make("table", { class: "actors" }, make("caption", {}, "Actors"), head, make("tbody")));
  }
  const [title, sums, table] = section.children;
  title.textContent = `${actors.length} actors`;
  sums.textContent = `${failing} fail, ${waiting} wait, ${restarts} restarts`;
  reconcile(table.tBodies[0], actors, (a) => a.name, actorRow);
}
