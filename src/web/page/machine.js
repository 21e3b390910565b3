// One machine: its chain, what it waits for, its timeline, and why its objects belong together.

let openMachine = null;

function list(title, items) {
  if (!items.length) return null;
  return make("section", {}, make("h3", {}, title), make("ul", {}, ...items));
}

/** The timeline: a bar for each phase, in proportion to its time, and the same as a table. */
function timeline(moments) {
  const known = moments.filter((m) => m.at);
  if (!known.length) return null;
  const begin = Date.parse(known[0].at);
  const end = Math.max(Date.parse(known[known.length - 1].at), begin + 1000);
  const x = (time) => ((Date.parse(time) - begin) / (end - begin)) * 600;
  const svg = draw("svg", { viewBox: "0 0 600 22", role: "img", "aria-label": `Timeline over ${span((end - begin) / 1000)}. The table below has the same.`, class: "timeline", preserveAspectRatio: "none" });
  known.slice(1).forEach((m, i) => {
    const from = x(known[i].at);
    svg.append(draw("rect", { class: `phase p${i % 4}`, x: from, y: 2, width: Math.max(1, x(m.at) - from), height: 18 }, draw("title", {}, `${m.event}: +${span(m.afterSeconds || 0)}`)));
  });
  const rows = moments.map((m) => make(
    "tr", {},
    make("th", { scope: "row" }, make("span", { class: `swatch p${(known.indexOf(m) - 1) % 4}`, "aria-hidden": "true" }), m.event),
    make("td", {}, moment(m.at)),
    make("td", {}, m.afterSeconds === null ? "" : `+${span(m.afterSeconds)}`),
    make("td", {}, `VM ${m.attempt}`),
  ));
  const head = make("thead", {}, make("tr", {}, ...["Event", "At", "After", "Attempt"].map((t) => make("th", { scope: "col" }, t))));
  return make("section", {}, make("h3", {}, "Timeline"), svg, make("table", { class: "plain" }, head, make("tbody", {}, ...rows)));
}

/** Where people read more. Without the address of a repository it is a path. */
function more(page) {
  if (page.startsWith("docs/")) return make("span", { class: "detail" }, `(${page})`);
  return make("a", { href: page, target: "_blank", rel: "noreferrer" }, "Read more");
}

const moment = (at) => (at ? make("time", { datetime: at }, at.replace("T", " ").replace(/(\.\d+)?Z$/, " UTC")) : "?");

/** The lives of a VM that was recycled, the present one last. */
function lives(all) {
  if (!all.length) return null;
  const rows = all.map((life) => make(
    "tr", {},
    make("th", { scope: "row" }, `Life ${life.number}`),
    make("td", {}, moment(life.since)),
    make("td", {}, life.until ? moment(life.until) : "now"),
    make("td", {}, life.machine || "–"),
    make("td", {}, life.host || "–"),
    make("td", { class: "detail" }, life.trace || "–"),
  ));
  const head = make("thead", {}, make("tr", {}, ...["Life", "Since", "Until", "Machine", "Host", "Trace"].map((t) => make("th", { scope: "col" }, t))));
  return make("section", {}, make("h3", {}, "Lives of the VM"), make("table", { class: "plain" }, head, make("tbody", {}, ...rows)));
}

function waitItem(w) {
  return make(
    "li", {},
    make("p", {}, make("span", { class: "reason" }, w.reason), ` (${w.subject}`, w.since ? ", for " : null, age(w.since), ")"),
    w.message ? make("p", { class: "message" }, w.message) : null,
    make("p", { class: "detail" }, w.meaning),
    make("p", {}, make("b", {}, "What to do: "), w.remedy, " ", more(w.page)),
  );
}

function proofItem(p) {
  const sign = p.holds === true ? "yes" : p.holds === false ? "NO" : "not known";
  return make("li", { class: p.holds === false ? "bad" : null }, make("b", {}, sign), ` ${p.between.join(" – ")}: `, make("span", { class: "detail" }, p.fact));
}

function machineView(e) {
  const members = e.chain.map((m) => make("li", {}, make("b", {}, m.kind), " ", m.name || "–", make("div", { class: "detail" }, m.state)));
  const close = make("button", { type: "button", class: "close" }, "Close");
  close.addEventListener("click", () => at("machine").close());
  return [
    make("div", { class: "titlebar" }, make("h2", { id: "machine-name" }, e.subject), close),
    e.pool ? make("p", { class: "detail" }, `Pool ${e.pool}`) : null,
    make("section", {}, make("h3", {}, "Objects"), make("ol", { class: "chain" }, ...members)),
    e.waits.length ? list("What it waits for", e.waits.map(waitItem)) : make("section", {}, make("h3", {}, "What it waits for"), make("p", {}, "Nothing.")),
    list("Vetoes that nothing waits for", e.standing.map((veto) => make("li", {}, veto))),
    list("Notes", e.notes.map((n) => make("li", {}, n))),
    lives(e.lives),
    timeline(e.timeline),
    list("How we know that they belong together", e.proofs.map(proofItem)),
    e.trace ? make("p", { class: "detail" }, `Trace ${e.trace.id}`) : null,
  ].filter(Boolean);
}

/** Shows the machine that the address names, or closes the view. */
async function showMachine() {
  const found = location.hash.match(/^#machine\/([^/]+)\/([^/]+)\/(.+)$/);
  const dialog = at("machine");
  openMachine = found;
  if (!found) {
    if (dialog.open) dialog.close();
    return;
  }
  const [, kind, namespace, name] = found;
  let content;
  try {
    content = machineView(await ask(`machine/${namespace}/${name}?kind=${kind}`));
  } catch (error) {
    if (error instanceof Refusal) return;
    const close = make("button", { type: "button", class: "close" }, "Close");
    close.addEventListener("click", () => dialog.close());
    content = [make("div", { class: "titlebar" }, make("h2", { id: "machine-name" }, `${kind}/${name}`), close), make("p", {}, String(error.message))];
  }
  if (openMachine !== found) return;
  const top = dialog.scrollTop;
  const focused = dialog.open && dialog.contains(document.activeElement);
  dialog.replaceChildren(...content);
  if (!dialog.open) dialog.showModal();
  else if (focused) dialog.querySelector("button.close").focus();
  dialog.scrollTop = top;
}

at("machine").addEventListener("close", () => {
  if (!openMachine) return;
  const [, kind, namespace, name] = openMachine;
  openMachine = null;
  history.replaceState(null, "", "#machines");
  route();
  const row = at("tree").querySelector(`a[href="${CSS.escape(`#machine/${kind}/${namespace}/${name}`)}"]`);
  if (row) row.focus();
});
at("machine").addEventListener("click", (event) => {
  // A click beside the content.
  if (event.target === at("machine")) at("machine").close();
});
