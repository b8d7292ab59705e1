// Line plots and the map of links, in SVG of our own. Everything that comes from a node goes in as text.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 320, HEIGHT = 130, LEFT = 8, RIGHT = 8, TOP = 10, BOTTOM = 18;
const MAP_NODES = 30;
const MAP_NODES_LEVEL = 8;       // with more, names stand around the map like spokes: side by side they would cover each other
const NAME_CHARACTERS = 16, NAME_CHARACTERS_NARROW = 12, CHARACTER = 7.5;

function svg(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// 1, 2 or 5 times a power of ten, not below the value.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((limit) => limit >= value * (1 - 1e-9));
}

export class Plot {
  constructor(parent, title, names, format, least) {
    this.title = title;
    this.names = names;
    this.format = format;
    this.least = least;
    this.points = [];
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    const label = document.createElement("span");
    label.textContent = title;
    this.value = document.createElement("span");
    this.value.className = "value";
    caption.append(label, this.value);
    this.svg = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title });
    this.svg.addEventListener("pointermove", (event) => this.#point(event));
    this.svg.addEventListener("pointerleave", () => { this.at = null; this.#draw(); });
    figure.append(caption, this.svg);
    parent.append(figure);
  }

  // Points are {at, values}; a value of null is a gap. Times from `start` to `end` are shown.
  show(points, start, end) {
    this.points = points.filter((point) => point.at >= start);
    this.start = start;
    this.end = end;
    this.#draw();
  }

  #x(at) { return LEFT + ((at - this.start) / (this.end - this.start)) * (WIDTH - LEFT - RIGHT); }

  #draw() {
    const shown = this.points.flatMap((point) => point.values).filter((value) => value !== null);
    const top = roundUp(Math.max(this.least, ...shown));
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
    const parts = [];
    for (const level of [0, top / 2, top]) {
      parts.push(svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(level), y2: y(level) }));
    }
    this.names.forEach((_, index) => {
      parts.push(svg("path", { class: `series series-${index}`, d: this.#path(index, y) }));
    });
    parts.push(svg("text", { x: LEFT + 2, y: TOP + 11 }, this.format(top)));
    parts.push(svg("text", { x: LEFT, y: HEIGHT - 4 }, clock(this.start, this.end - this.start)));
    parts.push(svg("text", { x: WIDTH - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, clock(this.end, this.end - this.start)));
    const point = this.#chosen();
    if (this.at && point) parts.push(svg("line", { class: "cursor", x1: this.#x(point.at), x2: this.#x(point.at), y1: TOP, y2: HEIGHT - BOTTOM }));
    this.svg.replaceChildren(...parts);
    this.#tell(point);
    this.svg.setAttribute("aria-label", `${this.title}: ${this.value.textContent}`);
  }

  #path(index, y) {
    let path = "", last = null;
    for (const point of this.points) {
      const value = point.values[index];
      if (value === null) { last = null; continue; }
      const isJoined = last !== null && point.at - last <= (point.reach ?? 5);
      path += `${isJoined ? "L" : "M"}${this.#x(point.at).toFixed(1)} ${y(value).toFixed(1)}`;
      if (!isJoined) path += "h0.01";
      last = point.at;
    }
    return path;
  }

  #chosen() {
    if (!this.at) return this.points.at(-1);
    let best = null;
    for (const point of this.points) {
      if (best === null || Math.abs(point.at - this.at) < Math.abs(best.at - this.at)) best = point;
    }
    return best;
  }

  // The values, each in its line's colour where there are several.
  #tell(point) {
    const parts = this.names.map((name, index) => {
      const part = document.createElement("span");
      const value = point?.values[index] ?? null;
      part.textContent = `${name ? `${name} ` : ""}${value === null ? "–" : this.format(value)}`;
      if (this.names.length > 1) part.className = `key-${index}`;
      return part;
    });
    const when = this.at && point ? `  at ${clock(point.at, this.end - this.start)}` : "";
    this.value.replaceChildren(...parts.flatMap((part, index) => (index ? [", ", part] : [part])), when);
  }

  #point(event) {
    const box = this.svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * WIDTH;
    this.at = this.start + ((x - LEFT) / (WIDTH - LEFT - RIGHT)) * (this.end - this.start);
    this.#draw();
  }
}

function clock(at, span) {
  const parts = { hour: "2-digit", minute: "2-digit" };
  if (span > 100_000) Object.assign(parts, { weekday: "short" });
  if (span < 1_000) Object.assign(parts, { second: "2-digit" });
  return new Date(at * 1000).toLocaleTimeString([], parts);
}

export function linkKind(link) {
  if (link.is_up === false || link.loss > 0.05) return "bad";
  return link.loss > 0.005 ? "lossy" : "fine";
}

// Returns the worse of the reports of a link's two ends.
function worse(one, other) {
  if (other === undefined) return one;
  return {
    ...one, loss: Math.max(one.loss, other.loss), is_up: one.is_up === false ? false : other.is_up,
    in_bps: Math.max(one.in_bps, other.out_bps), out_bps: Math.max(one.out_bps, other.in_bps),
  };
}

// Returns the attributes of a name that points away from the middle, and is never upside down.
function spoke({ angle, x, y }) {
  const isLeft = Math.cos(angle) < -1e-9;
  const turn = (angle * 180) / Math.PI + (isLeft ? 180 : 0);
  return { x: isLeft ? x - 12 : x + 12, y: y + 4, transform: `rotate(${turn} ${x} ${y})`, "text-anchor": isLeft ? "end" : "start" };
}

const KINDS = ["fine", "lossy", "bad"];

// Draws nodes in a circle, by LAN, and a line for every link that either end reports. Of too many nodes, it keeps those
// that are silent before the others.
export function drawMap(figure, nodes, links) {
  const present = nodes.filter((node) => node.state !== "gone");
  const byLan = (a, b) => (a.lan ?? "").localeCompare(b.lan ?? "") || a.name.localeCompare(b.name);
  const shown = present.sort((a, b) => (a.state === "live") - (b.state === "live") || byLan(a, b)).slice(0, MAP_NODES).sort(byLan);
  figure.hidden = shown.length < 2;
  const isLevel = shown.length <= MAP_NODES_LEVEL;
  // On a phone the map is narrower, but its names are as large.
  const width = Math.min(640, Math.max(320, figure.clientWidth)), height = isLevel ? 320 : 500;
  const characters = width < 500 ? NAME_CHARACTERS_NARROW : NAME_CHARACTERS;
  const radius = Math.min(130, width / 2 - 12 - characters * CHARACTER), [radiusX, radiusY] = isLevel ? [width / 2 - 100, 115] : [radius, radius];
  const places = new Map(shown.map((node, index) => {
    const angle = (2 * Math.PI * index) / shown.length - Math.PI / 2;
    return [node.id, { angle, x: width / 2 + radiusX * Math.cos(angle), y: height / 2 + radiusY * Math.sin(angle) }];
  }));
  const parts = [];
  const drawn = new Map();
  for (const link of links) {
    const key = [link.from, link.to].sort().join();
    if (places.has(link.from) && places.has(link.to)) drawn.set(key, worse(link, drawn.get(key)));
  }
  const worstLast = [...drawn.values()].sort((a, b) => KINDS.indexOf(linkKind(a)) - KINDS.indexOf(linkKind(b)));
  for (const link of worstLast) {
    const from = places.get(link.from), to = places.get(link.to);
    const width = 1.2 + Math.min(5, Math.log10(1 + (link.in_bps + link.out_bps) / 1e5));
    const line = svg("line", { class: `link ${linkKind(link)}`, x1: from.x, y1: from.y, x2: to.x, y2: to.y, "stroke-width": width });
    line.append(svg("title", {}, `${link.fromName} and ${link.toName}`));
    parts.push(line);
  }
  for (const node of shown) {
    const place = places.get(node.id), { x, y } = place;
    const short = node.name.length > characters ? `${node.name.slice(0, characters - 1)}…` : node.name;
    const circle = svg("circle", { class: `node ${node.state}`, cx: x, cy: y, r: isLevel ? 9 : 6 });
    circle.append(svg("title", {}, node.name));
    parts.push(circle, svg("text", isLevel ? { x, y: y < height / 2 ? y - 15 : y + 25 } : spoke(place), short));
  }
  const label = `Map of ${shown.length} nodes and ${drawn.size} links; the tables tell the same.`;
  const map = svg("svg", { class: isLevel ? "level" : "crowded", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  map.append(...parts);
  figure.replaceChildren(map);
  if (present.length > MAP_NODES) {
    const caption = document.createElement("figcaption");
    caption.textContent = `The map shows ${MAP_NODES} of ${present.length} nodes.`;
    figure.append(caption);
  }
}
