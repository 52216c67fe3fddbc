"use strict";
// Tables ---------------------------------------------------------------------------------------
for (const table of document.querySelectorAll("table.sortable")) {
  table.querySelectorAll("th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      // Numbers begin with the largest.
      const first = head.classList.contains("n") ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const order = head.getAttribute("aria-sort") === first ? other : first;
      for (const one of table.querySelectorAll("th")) one.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const key = (row) => {
        const cell = row.cells[column];
        return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.trim();
      };
      const body = table.tBodies[0];
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        return sign * (typeof x === "number" ? x - y : x.localeCompare(y));
      });
      body.append(...rows);
    });
  });
}

// Graphs ---------------------------------------------------------------------------------------
const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 28;
const make = (tag, attributes, parent) => {
  const one = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
  parent?.append(one);
  return one;
};
const short = (text) => (text.length > 24 ? text.slice(0, 23) + "…" : text);
const micro = (us) =>
  us >= 1e6 ? `${(us / 1e6).toPrecision(4)} s` : us >= 1e3 ? `${(us / 1e3).toPrecision(4)} ms` : `${us.toPrecision(4)} µs`;

class Pane {
  constructor(figure, graph) {
    this.svg = figure.querySelector("svg");
    this.graph = graph;
    this.elements = [];
    this.edges = [];
    this.draw();
    this.fit();
    for (const button of figure.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => this.command(button.dataset.zoom));
    }
    this.svg.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.svg.addEventListener("pointerdown", (event) => this.grab(event));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.fit()).observe(this.svg);
  }

  draw() {
    const layout = new dagre.graphlib.Graph();
    layout.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 30, marginx: 12, marginy: 12 });
    layout.setDefaultEdgeLabel(() => ({}));
    for (const node of this.graph.nodes) {
      layout.setNode(node.id, { width: 22 + 7.2 * short(node.op).length, height: HEIGHT });
    }
    for (const [from, to] of this.graph.edges) layout.setEdge(from, to);
    this.size = { width: 0, height: 0 };
    if (!this.graph.nodes.length) return; // constants alone
    dagre.layout(layout);
    this.size = layout.graph();
    const lines = make("g", {}, this.svg);
    for (const [from, to] of this.graph.edges) {
      const points = layout.edge(from, to).points;
      const path = points.map((p, i) => `${i ? "L" : "M"}${p.x.toFixed(1)} ${p.y.toFixed(1)}`).join("");
      this.edges.push({ from, to, line: make("path", { class: "edge", d: path }, lines) });
    }
    for (const node of this.graph.nodes) {
      const place = layout.node(node.id);
      const group = make("g", { class: `node ${node.kind}`, tabindex: "-1", role: "button" }, this.svg);
      group.setAttribute("aria-label", `${node.op} ${node.name}`);
      make("rect", { x: place.x - place.width / 2, y: place.y - HEIGHT / 2, width: place.width, height: HEIGHT, rx: node.kind === "input" || node.kind === "output" ? 14 : 5 }, group);
      make("text", { x: place.x, y: place.y }, group).textContent = short(node.op);
      make("title", {}, group).textContent = `${node.op}: ${node.type}`;
      group.addEventListener("click", () => select(this, node));
      this.elements.push({ node, group, place });
    }
  }

  get box() { return this.svg.viewBox.baseVal; }

  set(x, y, width, height) { this.svg.setAttribute("viewBox", `${x} ${y} ${width} ${height}`); }

  // A graph that is too large to be read in whole is shown at its first change.
  fit() {
    const { clientWidth: w, clientHeight: h } = this.svg;
    if (!w || !h || !this.size.width) return;
    const scale = Math.max(Math.min(w / this.size.width, h / this.size.height, 1.25), 0.75);
    const [width, height] = [w / scale, h / scale];
    const changed = this.elements.find(({ node }) => node.kind === "new" || node.kind === "gone");
    const start = (at, room, size) =>
      room >= size ? (size - room) / 2 : Math.min(Math.max(at - room / 2, 0), size - room);
    const { x, y } = changed?.place ?? { x: this.size.width / 2, y: 0 };
    this.set(start(x, width, this.size.width), start(y, height, this.size.height), width, height);
  }

  zoom(factor, ...at) { if (this.size.width) this.zoomAt(factor, ...at); }

  zoomAt(factor, x = this.box.x + this.box.width / 2, y = this.box.y + this.box.height / 2) {
    const { x: left, y: top, width, height } = this.box;
    const share = Math.min(Math.max(factor, 40 / width), (8 * Math.max(this.size.width, this.size.height)) / width);
    this.set(x - (x - left) * share, y - (y - top) * share, width * share, height * share);
  }

  command(name) {
    if (name === "fit") this.fit();
    else this.zoom(name === "in" ? 0.8 : 1.25);
  }

  wheel(event) {
    event.preventDefault();
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
    this.zoom(Math.exp(event.deltaY * 0.0015), point.x, point.y);
  }

  grab(event) {
    const start = { x: event.clientX, y: event.clientY, left: this.box.x, top: this.box.y };
    const scale = this.box.width / this.svg.clientWidth;
    const move = (now) => {
      if (Math.hypot(now.clientX - start.x, now.clientY - start.y) < 4) return;
      this.svg.classList.add("moving");
      this.set(start.left - (now.clientX - start.x) * scale, start.top - (now.clientY - start.y) * scale, this.box.width, this.box.height);
    };
    const stop = () => {
      this.svg.classList.remove("moving");
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", stop);
      removeEventListener("pointercancel", stop);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop);
    addEventListener("pointercancel", stop);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = this.box.width / 10;
    const { x, y, width, height } = this.box;
    const inside = event.target.closest(".node");
    const at = this.elements.findIndex(({ group }) => group === inside);
    const keys = {
      "+": () => this.zoom(0.8), "=": () => this.zoom(0.8), "-": () => this.zoom(1.25), "0": () => this.fit(),
      ArrowLeft: () => this.set(x - step, y, width, height), ArrowRight: () => this.set(x + step, y, width, height),
      ArrowUp: () => this.set(x, y - step, width, height), ArrowDown: () => this.set(x, y + step, width, height),
      n: () => this.focus(at + 1), p: () => this.focus(at < 0 ? -1 : at - 1),
      Enter: () => at >= 0 && select(this, this.elements[at].node),
    };
    if (!(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  }

  focus(number) {
    if (!this.elements.length) return;
    const count = this.elements.length;
    const { node, group } = this.elements[(number + count) % count];
    group.focus({ preventScroll: true });
    this.show(node.id);
  }

  show(id) {
    const { place } = this.elements.find(({ node }) => node.id === id);
    const { x, y, width, height } = this.box;
    const isInside = place.x > x && place.x < x + width && place.y > y && place.y < y + height;
    if (!isInside) this.set(place.x - width / 2, place.y - height / 2, width, height);
  }

  mark(chosen) {
    for (const { node, group } of this.elements) group.classList.toggle("selected", node === chosen);
    for (const { from, to, line } of this.edges) {
      line.classList.toggle("lit", chosen !== null && (from === chosen.id || to === chosen.id));
    }
  }

  light(test) {
    for (const { node, group } of this.elements) group.classList.toggle("lit", test(node));
  }
}

const data = document.getElementById("data");
const graphs = data ? JSON.parse(data.textContent) : [];
const panes = [...document.querySelectorAll(".pane")].map((figure, i) => new Pane(figure, graphs[i]));

function select(pane, node) {
  for (const one of panes) one.mark(one === pane ? node : null);
  // Operators of one launch are shown together.
  pane.light((other) => node.kernel !== null && other !== node && other.kernel === node.kernel);
  const details = document.getElementById("details");
  const head = document.createElement("h3");
  head.textContent = node.op === node.name ? node.op : `${node.op} · ${node.name}`;
  const list = document.createElement("dl");
  const add = (title, ...content) => {
    const [term, text] = [document.createElement("dt"), document.createElement("dd")];
    term.textContent = title;
    text.append(...content);
    list.append(term, text);
  };
  add("result", node.type);
  if (node.reads.length) add("reads", node.reads.join(", "));
  if (node.rules.length) {
    add("made by", ...node.rules.flatMap((rule, i) => {
      const link = document.createElement("a");
      link.href = `#rule-${rule}`;
      link.textContent = rule;
      return i ? [", ", link] : [link];
    }));
  }
  if (node.kind === "gone") add("in the result", "replaced");
  if (node.time_us !== null) {
    const peers = pane.graph.nodes.filter((one) => one.kernel === node.kernel).length;
    add("launch", `${micro(node.time_us)}, ${node.source}${peers > 1 ? `, together with ${peers - 1} more` : ""}`);
  }
  details.replaceChildren(head, list);
}

for (const link of document.querySelectorAll("a[data-rule]")) {
  link.addEventListener("click", () => {
    for (const pane of panes) {
      pane.light((node) => node.rules.includes(link.dataset.rule));
      const first = pane.graph.nodes.find((node) => node.rules.includes(link.dataset.rule));
      if (first) pane.show(first.id);
    }
  });
}
