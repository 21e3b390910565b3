// The tree of machines.

const STATES = [
  ["stuck", "Needs a person"],
  ["waiting", "Waits"],
  ["coming", "Coming"],
  ["ready", "Ready"],
  ["leaving", "Leaving"],
  ["serving", "Serving"],
  ["foreign", "Foreign host"],
];
const TITLES = Object.fromEntries(STATES);
const COLUMNS = ["Machine", "AgentMachine", "VsphereAgent", "VM", "Agent", "Node"];

let topology = null;
const chosen = new Set();
let sought = "";

const machineId = (m) => `${m.kind}/${m.namespace}/${m.name}`;
const ofKind = (m, kind) => m.chain.find((member) => member.kind === kind);

function textOf(m, pool) {
  const parts = [pool.name, m.name, TITLES[m.state], m.reason, m.message, m.host, m.datastore];
  for (const member of m.chain) parts.push(member.name, member.state);
  return parts.join(" ").toLowerCase();
}

function isShown(m, pool) {
  if (chosen.size && !chosen.has(m.state)) return false;
  return sought === "" || textOf(m, pool).includes(sought);
}

/** The sign of a state: colour, shape and word say the same. */
function badge(state) {
  return make("span", { class: `state ${state}` }, make("span", { class: "sign", "aria-hidden": "true" }), TITLES[state]);
}

/** An object of the machine. Its name is in the view of the machine: most have the machine's own. */
function cell(title, machine, kind, detail) {
  const member = ofKind(machine, kind);
  if (!member) return gridCell(title, { class: "empty" }, make("span", { "aria-hidden": "true" }, "–"));
  return gridCell(
    title,
    {},
    make("div", {}, kind === "VM" ? member.state.split(";")[0] : member.state),
    detail ? make("div", { class: "detail" }, detail) : null,
  );
}

function machineRow(m) {
  const place = [m.host && `host ${m.host}`, m.datastore && `datastore ${m.datastore}`].filter(Boolean).join(", ");
  const step = m.step && m.state !== "serving" ? m.step : null;
  return gridRow(
    { class: m.state },
    make(
      "div",
      { role: "rowheader" },
      make("a", { href: `#machine/${machineId(m)}` }, m.name),
      make("div", {}, badge(m.state), " ", make("span", { class: "reason" }, m.reason)),
      m.message ? make("div", { class: "message" }, m.message) : null,
      make(
        "div",
        { class: "detail" },
        "age ", age(m.since) || "?",
        step ? `, ${step[0]} ` : null,
        step ? age(step[1]) : null,
      ),
    ),
    cell("AgentMachine", m, "AgentMachine"),
    cell("VsphereAgent", m, "VsphereAgent"),
    cell("VM", m, "VM", place),
    cell("Agent", m, "Agent"),
    cell("Node", m, "Node"),
  );
}

function count(pool) {
  const counts = STATES.map(([state, title]) => [pool.machines.filter((m) => m.state === state).length, title]);
  return counts.filter(([n]) => n).map(([n, title]) => `${title.toLowerCase()}: ${n}`).join(", ") || "no machines";
}

/** The hosts of a pool that are gone: which Machine each of them served. */
function pastHosts(all) {
  const rows = all.map((host) => make(
    "tr", {},
    make("th", { scope: "row" }, host.vmName || host.name),
    make("td", {}, host.controlPlane || "–"),
    make("td", {}, host.machine || "–"),
    make("td", {}, moment(host.since)),
    make("td", {}, moment(host.until)),
    make("td", {}, `Life ${host.life}`),
  ));
  const head = make("thead", {}, make("tr", {}, ...["VM", "Control plane", "Machine", "Since", "Until", "Life"].map((t) => make("th", { scope: "col" }, t))));
  return [
    make("summary", {}, `Hosts that are gone (${all.length})`),
    make("table", { class: "plain" }, head, make("tbody", {}, ...rows)),
  ];
}

function poolSection(pool, before) {
  const section = before || make("details", { open: true, class: "pool" });
  if (!before) {
    section.append(make("summary"), make("p", { class: "paused" }), make("p", { class: "message" }), grid(`Machines of pool ${pool.name}`, COLUMNS), make("details", { class: "past" }));
  }
  const [summary, paused, message, table, past] = section.children;
  const ready = pool.ready === null ? "not checked yet" : pool.ready ? "ready" : `not ready: ${pool.reason}`;
  const others = pool.foreignAgents ? `; other hosts: ${pool.foreignAgents.total}, ${pool.foreignAgents.free} of them free` : "";
  const usual = pool.usualSeconds === null ? "" : `; usually bound after ${span(pool.usualSeconds)}`;
  summary.replaceChildren(
    make("h4", {}, `Pool ${pool.name}`),
    make("span", { class: pool.ready === false ? "verdict bad" : "verdict" }, ready),
    make("span", { class: "detail" }, `${count(pool)}${usual}${others}`),
  );
  paused.textContent = pool.paused ? `Paused: ${pool.paused}.` : "";
  paused.hidden = !pool.paused;
  message.textContent = pool.ready === false ? pool.message : "";
  message.hidden = message.textContent === "";
  const shown = pool.machines.filter((m) => isShown(m, pool));
  table.hidden = shown.length === 0;
  reconcile(table.lastElementChild, shown, machineId, machineRow);
  const gone = pool.pastHosts || [];
  past.hidden = gone.length === 0;
  past.replaceChildren(...(gone.length ? pastHosts(gone) : []));
  return section;
}

function level(kind, heading, inner) {
  return (node, before) => {
    const section = before || make("section", { class: kind }, make(heading), make("div"));
    const [title, below] = section.children;
    title.textContent = `${kind} ${node.name}`;
    inner(below, node);
    return section;
  };
}

const byName = (node) => node.name;
const nodePoolSection = level("NodePool", "h3", (below, node) => reconcile(below, node.pools, byName, poolSection));
const clusterSection = level("HostedCluster", "h2", (below, node) => reconcile(below, node.nodePools, byName, nodePoolSection));

function allPools() {
  return topology.clusters.flatMap((c) => c.nodePools.flatMap((n) => n.pools));
}

function stateButtons() {
  const items = STATES.map(([state]) => ({ state, n: topology.counts[state] || 0, on: chosen.has(state) }));
  reconcile(at("states"), items, (item) => item.state, ({ state, n, on }) => {
    const button = make("button", { type: "button", class: "chip", "aria-pressed": String(on) }, badge(state), make("span", {}, String(n)));
    button.addEventListener("click", () => {
      if (!chosen.delete(state)) chosen.add(state);
      showMachines();
    });
    return button;
  });
}

/** How long machines took, as bars, with the limits of autoscaler and health check. */
function histogram() {
  const { barSeconds, autoscalerSeconds, healthCheckSeconds } = topology.histogram;
  const pools = allPools();
  const bars = pools.length ? pools[0].histogram.map((_, i) => pools.reduce((sum, p) => sum + p.histogram[i], 0)) : [];
  const total = bars.reduce((a, b) => a + b, 0);
  const beyond = (seconds) => bars.reduce((sum, n, i) => sum + (i * barSeconds >= seconds ? n : 0), 0);
  const words = total
    ? `${total} machine${total === 1 ? "" : "s"}: ${beyond(autoscalerSeconds)} took longer than the autoscaler's limit (15 min), ${beyond(healthCheckSeconds)} longer than the health check's (20 min)`
    : "No machine has been bound yet";
  const caption = make("figcaption", {}, "From the demand to the bound Agent. ", words, ".");
  const [width, height, base] = [640, 120, 96];
  const most = Math.max(1, ...bars);
  const step = width / Math.max(1, bars.length);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words });
  bars.forEach((n, i) => {
    if (!n) return;
    const tall = Math.max(2, (n / most) * (base - 14));
    const minutes = `${i} to ${i + 1} min`;
    const last = i === bars.length - 1 ? `longer than ${i} min` : minutes;
    const late = i * barSeconds >= healthCheckSeconds ? "bar late" : i * barSeconds >= autoscalerSeconds ? "bar slow" : "bar";
    svg.append(draw("rect", { class: late, x: i * step + 1, y: base - tall, width: step - 2, height: tall }, draw("title", {}, `${last}: ${n}`)));
  });
  svg.append(draw("line", { class: "axis", x1: 0, y1: base, x2: width, y2: base }));
  for (let minutes = 0; minutes <= 30; minutes += 5) {
    const x = (minutes * 60 * step) / barSeconds;
    const end = minutes === 30;
    svg.append(draw("text", { class: "tick", x: end ? width : x, y: height - 8, "text-anchor": end ? "end" : "start" }, end ? "30+ min" : String(minutes)));
  }
  for (const [seconds, title, y] of [[autoscalerSeconds, "autoscaler", 12], [healthCheckSeconds, "health check", 12]]) {
    const x = (seconds * step) / barSeconds;
    svg.append(draw("line", { class: "limit", x1: x, y1: 0, x2: x, y2: base }), draw("text", { class: "tick", x: x + 4, y }, title));
  }
  at("histogram").replaceChildren(svg, caption);
}

function foreignSection({ hosts, more }) {
  const shown = hosts.filter((h) => sought === "" || JSON.stringify(h).toLowerCase().includes(sought));
  const rows = shown.map((h) => gridRow(
    { class: "foreign" },
    make("div", { role: "rowheader" }, h.hostname || h.agent.split("/")[1], make("div", {}, badge("foreign"))),
    gridCell("Kind", {}, h.class, make("div", { class: "detail" }, h.free ? "free" : "")),
    gridCell("Agent", {}, h.agent),
    gridCell("InfraEnv", {}, h.infraEnv),
    gridCell("State", {}, h.state || "?"),
    gridCell("Serves", {}, h.claimedBy || "no AgentMachine"),
  ));
  return make(
    "section",
    { class: "others" },
    make("h2", {}, "Other hosts"),
    make("p", { class: "detail" }, `Hosts of the same InfraEnvs that are not VMs of agent-forge. It never touches them.${more ? ` ${more} more are not listed.` : ""}`),
    rows.length ? grid("Other hosts", ["Host", "Kind", "Agent", "InfraEnv", "State", "Serves"], ...rows) : make("p", {}, "None fits the search."),
  );
}

function showMachines() {
  if (!topology) return;
  stateButtons();
  histogram();
  const mark = [...chosen].join() + "|" + sought;
  // What is filtered is part of what is shown.
  const clusters = topology.clusters.map((c) => ({ ...c, mark, nodePools: c.nodePools.map((n) => ({ ...n, mark, pools: n.pools.map((p) => ({ ...p, mark })) })) }));
  const nodes = clusters.map((node) => ({ key: "c/" + node.name, node }));
  const foreign = topology.foreign.hosts.length && (!chosen.size || chosen.has("foreign"));
  if (foreign) nodes.push({ key: "f", node: { ...topology.foreign, mark } });
  reconcile(at("tree"), nodes, (item) => item.key, (item, before) => (item.key === "f" ? foreignSection(item.node) : clusterSection(item.node, before)));
  if (!nodes.length) at("tree").replaceChildren(make("p", {}, "There is no VsphereAgentPool that you may list."));
}

at("search").addEventListener("input", (event) => {
  sought = event.target.value.trim().toLowerCase();
  showMachines();
});
