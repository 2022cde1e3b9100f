"use strict";
// Plot draws series over time as lines in an SVG element. It never parses text as HTML.

const svgNS = "http://www.w3.org/2000/svg";

function svg(name, attrs, text) {
  const e = document.createElementNS(svgNS, name);
  for (const k in attrs) e.setAttribute(k, attrs[k]);
  if (text !== undefined) e.textContent = text;
  return e;
}

// scaled shortens large numbers: 1234567 becomes ["1.23", "M"].
function scaled(v) {
  for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (v >= size * 0.9995) return [digits(v / size), unit];
  }
  return [digits(v), ""];
}

function digits(v) {
  if (v === 0) return "0";
  if (v >= 99.95) return v.toFixed(0);
  return String(Number(v.toPrecision(3)));
}

// quantity formats v with a unit: bytes in powers of 1024, as everywhere in xwarp, others in powers of 1000.
function quantity(v, unit) {
  if (unit === "B") {
    for (const [name, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
      if (v >= size) return digits(v / size) + " " + name;
    }
  }
  const [n, prefix] = scaled(v);
  return n + " " + prefix + unit;
}

// niceTop returns the smallest round number not below v.
function niceTop(v) {
  const size = 10 ** Math.floor(Math.log10(v));
  for (const step of [1, 2, 4, 5, 10]) {
    if (v <= step * size * 1.0001) return step * size;
  }
  return 10 * size;
}

class Plot {
  // lines are {name, kind}: the legend's text and the class.
  constructor(box, lines, unit, least) {
    Object.assign(this, { box, lines, unit, least, times: [], values: lines.map(() => []), span: 600, at: null });
    box.addEventListener("pointermove", (e) => { this.at = e.clientX - box.getBoundingClientRect().left; this.draw(); });
    box.addEventListener("pointerleave", () => { this.at = null; this.draw(); });
    new ResizeObserver(() => this.draw()).observe(box);
  }

  // set sets the values of each line at each time in seconds, and the number of seconds shown.
  set(times, values, span) {
    Object.assign(this, { times, values, span });
    this.draw();
  }

  draw() {
    const w = this.box.clientWidth, h = this.box.clientHeight, pad = { l: 62, r: 8, t: 8, b: 22 };
    const end = this.times.at(-1) || Date.now() / 1000, begin = end - this.span;
    const top = niceTop(Math.max(this.least, ...this.values.flat()));
    const x = (t) => pad.l + (w - pad.l - pad.r) * (t - begin) / this.span;
    const y = (v) => h - pad.b - (h - pad.t - pad.b) * v / top;
    const root = svg("svg", { width: w, height: h, role: "img", "aria-label": this.summary() });
    for (let i = 0; i <= 4; i++) {
      const v = top * i / 4;
      root.append(svg("line", { class: "grid", x1: pad.l, x2: w - pad.r, y1: Math.round(y(v)), y2: Math.round(y(v)) }));
      if (i % 2 === 0) root.append(svg("text", { x: pad.l - 8, y: y(v) + 4, "text-anchor": "end" }, i ? quantity(v, this.unit) : "0"));
    }
    const step = w < 420 ? 240 : 120;
    for (let t = Math.ceil(begin / step) * step; t <= end; t += step) {
      const label = new Date(t * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
      if (x(t) > pad.l + 16 && x(t) < w - 16) root.append(svg("text", { x: x(t), y: h - 5, "text-anchor": "middle" }, label));
    }
    this.lines.forEach((line, i) => {
      const points = this.times.map((t, k) => `${x(t).toFixed(1)},${y(this.values[i][k]).toFixed(1)}`);
      if (points.length === 0) return;
      const d = "M" + points.join("L");
      root.append(svg("path", { class: "area " + line.kind, d: `${d}L${x(end).toFixed(1)},${y(0)}L${x(this.times[0]).toFixed(1)},${y(0)}Z` }));
      root.append(svg("path", { class: line.kind, d }));
    });
    const tip = this.point(root, x, y, h - pad.b, w);
    this.box.replaceChildren(root, ...tip);
  }

  // point marks the sample under the pointer.
  point(root, x, y, bottom, w) {
    if (this.at === null || this.times.length === 0) return [];
    let k = 0;
    this.times.forEach((t, i) => { if (Math.abs(x(t) - this.at) < Math.abs(x(this.times[k]) - this.at)) k = i; });
    const at = x(this.times[k]);
    root.append(svg("line", { class: "cross", x1: at, x2: at, y1: 8, y2: bottom }));
    const tip = document.createElement("div");
    tip.className = "tip";
    const when = document.createElement("div");
    when.textContent = new Date(this.times[k] * 1000).toLocaleTimeString([], { hourCycle: "h23" });
    tip.append(when);
    this.lines.forEach((line, i) => {
      root.append(svg("circle", { class: line.kind, cx: at, cy: y(this.values[i][k]), r: 3.5 }));
      const row = document.createElement("div"), key = document.createElement("i"), value = document.createElement("b");
      key.className = "key " + line.kind;
      value.textContent = quantity(this.values[i][k], this.unit);
      row.append(key, line.name + " ", value);
      tip.append(row);
    });
    if (at > w / 2) tip.style.right = `${w - at + 12}px`; else tip.style.left = `${at + 12}px`;
    return [tip];
  }

  summary() {
    return this.lines.map((l, i) => `${l.name}: ${quantity(this.values[i].at(-1) || 0, this.unit)}`).join(", ");
  }
}
