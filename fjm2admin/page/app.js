// The page: follows the server's events, and shows nodes, links and plots. What nodes send is only ever set as text.
import { Plot, drawMap, linkKind } from "./plots.js";

const TITLE = document.title;
const TOKEN = "fjm2admin.token";
const SILENCE_MS = 15_000;       // the server says something every 5 s
const RETRY_MS = [500, 1_000, 2_000, 5_000];
const WINDOW_S = 300, WINDOW_LEAST_S = 60;
const LINKS_SHOWN = 100;
const NODES_SHOWN = 500;
const HISTORY_EVERY_MS = 10_000;

const element = (id) => document.getElementById(id);
const nodes = new Map();
let chosen = null;
let stopped = null;              // ends the connection that is open
let offset = 0;                  // of the server's clock to ours, in seconds
let lastHeardAt = null;
let past = [];

// Values as people read them

function rate(bps) {
  for (const [unit, size] of [["Tbit/s", 1e12], ["Gbit/s", 1e9], ["Mbit/s", 1e6], ["kbit/s", 1e3]]) {
    if (bps >= size) return `${threeDigits(bps / size)} ${unit}`;
  }
  return `${Math.round(bps)} bit/s`;
}
// Not toPrecision: that would write 999.9 as 1.00e+3.
const threeDigits = (value) => value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
const share = (loss) => (loss === null ? "–" : `${(100 * loss).toFixed(loss > 0 && loss < 0.01 ? 2 : 1)} %`);
const milliseconds = (ms) => (ms === null ? "–" : `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`);
const bytes = (count) => (count >= 1e6 ? `${(count / 1e6).toFixed(1)} MB` : count >= 1e3 ? `${(count / 1e3).toFixed(1)} kB` : `${count} B`);
const now = () => Date.now() / 1000 + offset;
function ago(at) {
  const seconds = Math.max(0, Math.round(now() - at));
  if (seconds < 120) return `${seconds} s ago`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 172_800 ? `${Math.round(seconds / 3_600)} h ago` : `${Math.round(seconds / 86_400)} d ago`;
}

// The connection

async function follow() {
  for (let attempt = 0; ; attempt += 1) {
    const outcome = await connect(() => { attempt = 0; });
    if (outcome === "unauthorised") return;
    showLost(outcome);
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)]));
  }
}

// Follows the events until they end. Returns the reason.
async function connect(onData) {
  const token = sessionStorage.getItem(TOKEN);
  const abort = new AbortController();
  stopped = abort;
  let watchdog = setTimeout(() => abort.abort(), SILENCE_MS);
  try {
    const answer = await fetch("api/v1/events", { headers: authorization(token), signal: abort.signal, cache: "no-store" });
    if (answer.status === 401) {
      askForToken(token !== null);
      return "unauthorised";
    }
    if (!answer.ok) return `the server says: ${(await answer.json().catch(() => ({}))).message ?? answer.status}`;
    element("forget").hidden = token === null;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return "the server has ended it";
      clearTimeout(watchdog);
      watchdog = setTimeout(() => abort.abort(), SILENCE_MS);
      text += value;
      const events = text.split("\n\n");
      text = events.pop();
      events.forEach(take);
      if (events.length) onData();
    }
  } catch {
    return "the server does not answer";
  } finally {
    clearTimeout(watchdog);
  }
}

const authorization = (token) => (token === null ? {} : { Authorization: `Bearer ${token}` });

function take(event) {
  const name = /^event: (.*)$/m.exec(event)?.[1];
  const data = /^data: (.*)$/m.exec(event)?.[1];
  if (!name || !data) return;
  const content = JSON.parse(data);
  if (name === "snapshot") nodes.clear();
  for (const node of content.nodes) nodes.set(node.id, node);
  for (const id of content.removed ?? []) nodes.delete(id);
  offset = content.now - Date.now() / 1000;
  lastHeardAt = new Date();
  showConnected();
  render();
}

function showConnected() {
  element("connection").textContent = "Live";
  element("connection").className = "pill live";
  element("lost").hidden = true;
  element("login").hidden = true;
  element("main").hidden = false;
  element("main").classList.remove("lost");
}

function showLost(reason) {
  element("connection").textContent = "Connection lost";
  element("connection").className = "pill lost";
  element("main").classList.add("lost");
  const since = lastHeardAt === null ? "" : ` What is shown is of ${lastHeardAt.toLocaleTimeString()}.`;
  const text = `The connection to the server is lost: ${reason}.${since} Trying again.`;
  if (element("lost").textContent !== text) element("lost").textContent = text;
  element("lost").hidden = false;
}

function askForToken(wasRefused) {
  sessionStorage.removeItem(TOKEN);
  nodes.clear();
  element("connection").textContent = "Not connected";
  element("connection").className = "pill";
  element("main").hidden = true;
  element("lost").hidden = true;
  element("forget").hidden = true;
  element("login").hidden = false;
  element("refused").textContent = wasRefused ? "This token is not good: mistyped, or revoked." : "";
  element("token").focus();
}

element("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, element("token").value.trim());
  element("token").value = "";
  follow();
});
element("forget").addEventListener("click", () => {
  sessionStorage.removeItem(TOKEN);
  location.reload();
});

// Tables

const NODE_COLUMNS = ["Name", "State", "LAN", "In", "Out", "Loss", "RTT", "Queue", "Heard"];
const LINK_COLUMNS = ["From", "To", "State", "Out", "In", "Paced to", "Loss", "RTT", "Queue", "Drops"];
const NUMBERS = new Set(["In", "Out", "Paced to", "Loss", "RTT", "Queue", "Drops", "Heard"]);

for (const [table, columns] of [["nodes", NODE_COLUMNS], ["links", LINK_COLUMNS]]) {
  for (const name of columns) {
    const head = document.createElement("th");
    head.textContent = name;
    head.scope = "col";
    head.setAttribute("role", "columnheader");
    head.classList.toggle("number", NUMBERS.has(name));
    element(table).tHead.rows[0].append(head);
  }
}

// A row for each key; rows that are there already only get new texts.
function fill(table, columns, entries, decorate) {
  const body = element(table).tBodies[0];
  const before = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const rows = entries.map(({ key, texts, entry }) => {
    const row = before.get(key) ?? newRow(key, columns, decorate);
    columns.forEach((_, index) => setText(row.cells[index].querySelector("button") ?? row.cells[index], texts[index]));
    decorate(row, entry, false);
    return row;
  });
  if (rows.length !== body.rows.length || rows.some((row, index) => row !== body.rows[index])) body.replaceChildren(...rows);
}

function newRow(key, columns, decorate) {
  const row = document.createElement("tr");
  row.dataset.key = key;
  row.setAttribute("role", "row");
  columns.forEach((name, index) => {
    const cell = document.createElement(index ? "td" : "th");
    cell.setAttribute("role", index ? "cell" : "rowheader");
    if (index) cell.dataset.label = name;
    else cell.scope = "row";
    cell.classList.toggle("number", NUMBERS.has(name));
    row.append(cell);
  });
  decorate(row, null, true);
  return row;
}

function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

function decorateNode(row, node, isNew) {
  if (isNew) {
    const button = document.createElement("button");
    button.type = "button";
    button.addEventListener("click", () => choose(row.dataset.key));
    row.cells[0].append(button);
  } else {
    row.cells[1].className = `state ${node.state}`;
    row.cells[0].firstChild.setAttribute("aria-pressed", String(node.id === chosen));
  }
}

const LINK_STATES = new Map([[true, "up"], [false, "down"]]);
const linkState = (link) => LINK_STATES.get(link.is_up) ?? "–";
const drops = (link) => (link.drops_per_s > 0 ? `${link.drops_per_s.toFixed(1)}/s ${link.reason ?? ""}` : "–");
const pacing = (link) => (link.rate_bps === null ? "–" : rate(link.rate_bps));

function decorateLink(row, link, isNew) {
  if (!isNew) row.cells[2].className = `state ${linkState(link)}`;
}

// Nodes in trouble come first.
const ORDER = { stale: 0, live: 1, gone: 2 };
const compare = new Intl.Collator().compare;
const byState = (a, b) => ORDER[a.state] - ORDER[b.state] || compare(a.name, b.name);

function isFound(texts) {
  const wanted = element("find").value.trim().toLowerCase();
  return !wanted || texts.some((text) => text.toLowerCase().includes(wanted));
}

// Shows a note about the rows that a table leaves out, if it leaves out any.
function tellShown(id, shown, found, all, what, order) {
  const cut = shown < found ? `Shows ${shown} of ${found} ${what}: ${order}.` : "";
  const none = all > 0 && found === 0 ? `None of ${all} ${what} has that in its names, LAN, id or endpoints.` : "";
  setText(element(id), cut || none);
  element(id).hidden = !(cut || none);
}

function showNodes() {
  const found = [...nodes.values()].filter((node) => isFound([node.name, node.lan ?? "", node.id, ...node.endpoints])).sort(byState);
  fill("nodes", NODE_COLUMNS, found.slice(0, NODES_SHOWN).map((node) => ({
    key: node.id,
    entry: node,
    texts: [node.name, node.state, node.lan ?? "–", rate(node.rates.in_bps), rate(node.rates.out_bps), share(node.rates.loss),
      milliseconds(node.rates.rtt_ms), bytes(node.rates.queue_bytes), ago(node.last_seen)],
  })), decorateNode);
  element("nodes-none").hidden = nodes.size > 0;
  element("nodes").hidden = found.length === 0;
  tellShown("nodes-shown", Math.min(found.length, NODES_SHOWN), found.length, nodes.size, "nodes", "stale ones first");
}

function allLinks() {
  const links = [];
  for (const node of nodes.values()) {
    for (const link of node.links) {
      const toName = nodes.get(link.peer)?.name ?? link.peer;
      links.push({ ...link, from: node.id, to: link.peer, fromName: node.name, toName });
    }
  }
  return links;
}

const TROUBLE = { bad: 0, lossy: 1, fine: 2 };
const byTrouble = (a, b) => TROUBLE[linkKind(a)] - TROUBLE[linkKind(b)] || b.drops_per_s - a.drops_per_s;

function showLinks() {
  const links = allLinks();
  drawMap(element("map"), [...nodes.values()], links);
  const found = links.filter((link) => isFound([link.fromName, link.toName, link.from, link.to]));
  const shown = found.sort((a, b) => byTrouble(a, b) || b.out_bps - a.out_bps).slice(0, LINKS_SHOWN)
    .sort((a, b) => TROUBLE[linkKind(a)] - TROUBLE[linkKind(b)] || compare(a.fromName, b.fromName) || compare(a.toName, b.toName));
  fill("links", LINK_COLUMNS, shown.map((link) => ({
    key: `${link.from} ${link.to}`,
    entry: link,
    texts: [link.fromName, link.toName, linkState(link), rate(link.out_bps), rate(link.in_bps), pacing(link), share(link.loss),
      milliseconds(link.rtt_ms), bytes(link.queue_bytes), drops(link)],
  })), decorateLink);
  element("links").hidden = shown.length === 0;
  element("links-none").hidden = links.length > 0;
  tellShown("links-shown", shown.length, found.length, links.length, "links", "those in trouble, then the busiest");
}

function showCounts() {
  const counts = { live: 0, stale: 0, gone: 0 };
  for (const node of nodes.values()) counts[node.state] += 1;
  document.title = counts.stale ? `(${counts.stale} stale) ${TITLE}` : TITLE;
  element("counts").replaceChildren(...Object.entries(counts).map(([state, count]) => {
    const pair = document.createElement("div");
    const name = document.createElement("dt"), value = document.createElement("dd");
    name.textContent = state;
    value.textContent = count;
    value.className = `state ${state}`;
    pair.append(name, value);
    return pair;
  }));
}

// Plots

const SHAPES = [
  ["Throughput", ["in", "out"], rate, 1_000, (rates) => [rates.in_bps, rates.out_bps]],
  ["Loss, worst link", [""], share, 0.01, (rates) => [rates.loss]],
  ["Round trip, longest", [""], milliseconds, 10, (rates) => [rates.rtt_ms]],
];
const makePlots = (parent) => SHAPES.map(([title, names, format, least]) => new Plot(parent, title, names, format, least));
const livePlots = makePlots(element("now"));
const pastPlots = makePlots(element("past"));
const totals = [];

const worst = (values) => values.filter((value) => value !== null).reduce((most, value) => (most === null ? value : Math.max(most, value)), null);

function noteTotals() {
  const rates = [...nodes.values()].filter((node) => node.state === "live").map((node) => node.rates);
  totals.push({
    at: now(),
    in_bps: rates.reduce((sum, one) => sum + one.in_bps, 0),
    out_bps: rates.reduce((sum, one) => sum + one.out_bps, 0),
    loss: worst(rates.map((one) => one.loss)),
    rtt_ms: worst(rates.map((one) => one.rtt_ms)),
  });
  while (totals.length > 2 * WINDOW_S || totals[0].at < now() - WINDOW_S) totals.shift();
}

function showPlots() {
  const start = Math.max(now() - WINDOW_S, Math.min(totals[0].at, now() - WINDOW_LEAST_S));
  livePlots.forEach((plot, index) => {
    plot.show(totals.map((total) => ({ at: total.at, values: SHAPES[index][4](total) })), start, now());
  });
}

// One node

function choose(id) {
  chosen = id;
  past = [];
  showNodes();
  showDetails();
  loadHistory();
  element("details-title").focus();
}

const ROLES = new Map([[true, "forwards for its LAN"], [false, "stands by for its LAN"]]);

function showDetails() {
  const node = nodes.get(chosen);
  element("details").hidden = node === undefined;
  if (node === undefined) return;
  setText(element("details-title"), node.name);
  const facts = [["State", node.state], ["Heard", ago(node.last_seen)], ["LAN", node.lan ?? "–"], ["Role", ROLES.get(node.is_forwarder) ?? "–"], ["Endpoints", node.endpoints.join(", ")],
    ["Groups", node.groups.join(", ") || "–"], ["Id", node.id], ["Public key", node.public_key], ["Software", node.version],
    ["Drops", `${node.rates.drops_per_s.toFixed(1)}/s`]];
  element("facts").replaceChildren(...facts.flatMap(([name, text]) => {
    const term = document.createElement("dt"), told = document.createElement("dd");
    term.textContent = name;
    told.textContent = text;
    return [term, told];
  }));
}

async function loadHistory() {
  const id = chosen, minutes = Number(element("range").value);
  if (id === null || element("details").hidden) return;
  try {
    const answer = await fetch(`api/v1/nodes/${id}/history?minutes=${minutes}`, { headers: authorization(sessionStorage.getItem(TOKEN)) });
    if (!answer.ok || id !== chosen) return;
    const history = await answer.json();
    past = history.points.map((point) => ({ ...point, reach: 2.5 * history.step_s }));
  } catch {
    return;                      // the connection's own state says that the server is away
  }
  pastPlots.forEach((plot, index) => {
    plot.show(past.map((point) => ({ at: point.at, reach: point.reach, values: SHAPES[index][4](point) })), now() - 60 * minutes, now());
  });
  element("past-none").hidden = past.length > 0;
}

element("close").addEventListener("click", () => {
  const row = [...element("nodes").tBodies[0].rows].find((one) => one.dataset.key === chosen);
  chosen = null;
  element("details").hidden = true;
  showNodes();
  (row?.cells[0].firstChild ?? element("find")).focus();
});
element("range").addEventListener("change", loadHistory);
element("find").addEventListener("input", () => {
  showNodes();
  showLinks();
});

function render() {
  showCounts();
  showNodes();
  showLinks();
  showDetails();
}

setInterval(() => {
  if (element("main").hidden || element("main").classList.contains("lost")) return;
  noteTotals();
  showPlots();
  showNodes();
  showDetails();
}, 1_000);
setInterval(loadHistory, HISTORY_EVERY_MS);
addEventListener("pagehide", () => stopped?.abort());
follow();
