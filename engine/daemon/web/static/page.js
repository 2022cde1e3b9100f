"use strict";
// The page polls the daemon and shows the answers. Data from programs and peers becomes text, never HTML.

const $ = (id) => document.getElementById(id);
const maxRows = 200;
const state = { device: "", kind: "all", filter: "", sort: "in_bits_per_second", down: true, data: null };

function node(tag, className, ...content) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  e.append(...content);
  return e;
}

const columns = [
  { key: "owner", name: "Owner" },
  { key: "device", name: "Device" },
  { key: "local", name: "Local", mono: true },
  { key: "remote", name: "Remote", mono: true },
  { key: "state", name: "State" },
  { key: "in_bits_per_second", name: "Received", unit: "bit/s" },
  { key: "out_bits_per_second", name: "Sent", unit: "bit/s" },
  { key: "placed_out_of_order_per_second", name: "Ahead", unit: "/s", title: "FPDUs placed behind a gap" },
  { key: "held_bytes", name: "Held", unit: "B", title: "bytes held because earlier bytes are missing" },
  { key: "retransmitted_bytes", name: "Resent", unit: "B", title: "bytes retransmitted so far" },
];

const badges = { RTS: "good", IDLE: "", TERMINATE: "warn", CLOSING: "warn", ERROR: "bad" };

function heads() {
  const row = document.querySelector("#conns thead tr");
  for (const c of columns) {
    const b = node("button", "", c.name);
    b.type = "button";
    if (c.title) b.title = c.title;
    b.addEventListener("click", () => {
      state.down = state.sort === c.key ? !state.down : Boolean(c.unit);
      state.sort = c.key;
      showConns();
    });
    const th = node("th", c.unit ? "num" : "", b);
    th.dataset.key = c.key;
    row.append(th);
  }
}

function inView(row) { return !state.device || row.device === state.device; }

function showConns() {
  const all = state.data.top.connections.filter(inView);
  const words = state.filter.toLowerCase().split(/\s+/);
  const list = all.filter((c) => {
    const text = [c.owner, c.device, c.local, c.remote, c.state].join(" ").toLowerCase();
    return words.every((w) => text.includes(w));
  });
  list.sort((a, b) => {
    const x = a[state.sort], y = b[state.sort];
    const order = typeof x === "number" ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true });
    return (state.down ? -order : order) || a.remote.localeCompare(b.remote);
  });
  $("conns-count").textContent = list.length === all.length ? all.length : `${list.length} of ${all.length}`;
  const rows = list.slice(0, maxRows).map((c) => node("tr", "", ...columns.map((col) => cell(c, col))));
  if (rows.length === 0) {
    const td = node("td", "nothing", all.length ? "No connection matches the filter." : "No connections.");
    td.colSpan = columns.length;
    rows.push(node("tr", "", td));
  }
  document.querySelector("#conns tbody").replaceChildren(...rows);
  for (const th of document.querySelectorAll("#conns th")) {
    if (th.dataset.key === state.sort) th.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    else th.removeAttribute("aria-sort");
  }
  $("conns-more").hidden = list.length <= maxRows;
  $("conns-more").textContent = `and ${list.length - maxRows} more; use the filter to find them`;
}

function cell(c, col) {
  const v = c[col.key];
  if (col.key === "state") return node("td", "", node("span", "badge " + (badges[v] || ""), v));
  if (!col.unit) return node("td", col.mono ? "mono" : "", v || "\u2013");
  return node("td", "num" + (v ? "" : " zero"), quantity(v, col.unit));
}

const kinds = {
  all: ["All", () => true],
  conns: ["Connections", (e) => /^(RDMA_CM|IBV_WC)/.test(e.event) || e.event.startsWith("connection")],
  bad: ["Problems", (e) => e.level !== "INFO" || Boolean(e.error)],
};

function showEvents() {
  const list = state.data.events.events.filter((e) => kinds[state.kind][1](e)).reverse().slice(0, maxRows);
  const rows = list.map((e) => {
    const when = new Date(e.time);
    const time = node("time", "", when.toLocaleTimeString([], { hourCycle: "h23" }));
    time.dateTime = e.time;
    time.title = when.toLocaleString();
    const what = node("div", "what" + (/^[A-Z_]+\b/.test(e.event) ? " word" : ""), e.event);
    const more = [];
    if (e.remote) more.push(e.local ? `${e.local} \u2194 ${e.remote}` : e.remote);
    else if (e.local) more.push(e.local);
    if (e.device) more.push(e.device);
    if (e.session) more.push(`session ${e.session}`);
    if (e.export) more.push(`export ${e.export}`);
    for (const [k, v] of Object.entries(e.detail || {})) if (v) more.push(`${k} ${v}`);
    const body = node("div", "", what);
    if (e.error) body.append(node("div", "why", e.error));
    if (more.length) body.append(node("div", "more", more.join(" \u00b7 ")));
    return node("li", e.level, time, body);
  });
  $("events").replaceChildren(...(rows.length ? rows : [node("li", "nothing", "No such events.")]));
}

// choose creates buttons, and recreates them only if they changed, so that they keep the keyboard focus.
function choose(box, options, current, pick) {
  const made = JSON.stringify([options, current]);
  if (box.dataset.made === made) return;
  const focused = [...box.children].indexOf(document.activeElement);
  box.dataset.made = made;
  box.replaceChildren(...options.map(([value, name]) => {
    const b = node("button", "", name);
    b.type = "button";
    b.setAttribute("aria-pressed", String(value === current));
    b.addEventListener("click", () => pick(value));
    return b;
  }));
  if (focused >= 0) box.children[focused]?.focus();
}

function showChoices() {
  choose($("event-kinds"), Object.entries(kinds).map(([k, v]) => [k, v[0]]), state.kind, (k) => { state.kind = k; showChoices(); showEvents(); });
  const names = state.data.status.devices.map((d) => d.device);
  $("devices").hidden = names.length < 2;
  if (state.device && !names.includes(state.device)) state.device = "";
  choose($("devices"), [["", "All devices"], ...names.map((n) => [n, n])], state.device, (d) => { state.device = d; show(); });
}

const rates = new Plot($("plot-rates"), [{ name: "received", kind: "in" }, { name: "sent", kind: "out" }], "bit/s", 1000);
const drops = new Plot($("plot-drops"), [{ name: "dropped", kind: "drop" }], "/s", 10);

function showPlots() {
  const h = state.data.history, list = h.devices.filter(inView);
  const sum = (key) => h.times.map((_, i) => list.reduce((s, d) => s + (d[key][i - h.times.length + d[key].length] || 0), 0));
  const series = ["in_bits_per_second", "out_bits_per_second", "dropped_frames_per_second"].map(sum);
  rates.set(h.times, series.slice(0, 2), 600);
  drops.set(h.times, series.slice(2), 600);
  big("t-in", series[0].at(-1), "bit/s");
  big("t-out", series[1].at(-1), "bit/s");
  big("t-drops", series[2].at(-1), "/s");
}

function big(id, v, unit) {
  const [n, prefix] = scaled(v || 0);
  $(id).replaceChildren(n, node("small", "", prefix + unit));
}

function duration(s) {
  const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
  if (d) return [d, "d", h, "h"];
  return h ? [h, "h", m, "min"] : [m, "min", Math.floor(s) % 60, "s"];
}

function plural(n, what) { return `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`; }

function showTotals() {
  const s = state.data.status, conns = state.data.top.connections.filter(inView);
  $("version").textContent = s.version;
  $("t-conns").textContent = conns.filter((c) => c.remote).length;
  $("t-conns-more").textContent = `${plural(conns.length, "queue pair")}, ${plural(s.objects.session, "program")}`;
  $("t-up").replaceChildren(...duration(s.uptime_seconds).map((v) => typeof v === "number" ? String(v) : node("small", "", v + " ")));
  $("t-up-more").textContent = `process ${s.pid}`;
  const causes = s.devices.filter(inView).flatMap((d) => d.dropped || []);
  const total = causes.reduce((n, c) => n + c.frames, 0);
  $("t-drops-more").textContent = total ? `${plural(total, "frame")} so far` : "no frames so far";
  causes.sort((a, b) => b.frames - a.frames);
  $("drops-legend").textContent = causes.slice(0, 3).map((c) => `${c.cause} ${c.frames}`).join(" \u00b7 ");
}

function showDevices() {
  const s = state.data.status, notes = [];
  if (s.unconfirmed_seconds) notes.push(["xwarpd shuts down unless confirmed: ", "xwarp confirm"]);
  if (s.replaced) notes.push(["another version of xwarpd is installed; to run it: ", "systemctl restart xwarpd"]);
  if (s.pending.length) notes.push([`not in effect until xwarpd restarts: ${s.pending.join(", ")}; to apply: `, "systemctl restart xwarpd"]);
  $("device-list").replaceChildren(...notes.map(([text, cure]) => node("p", "warn", text, node("code", "", cure))), ...state.data.status.devices.filter(inView).map((d) => {
    const how = [d.transport, d.vlan && `VLAN ${d.vlan} on ${d.trunk}`, d.xdp_mode, d.copy, d.mtu && `MTU ${d.mtu}`, d.queues && plural(d.queues, "queue")].filter(Boolean);
    const item = node("div", "item", node("b", "", d.device), node("p", "", how.join(", ")));
    if (d.addresses?.length) item.append(node("p", "", `addresses ${d.addresses.join(", ")}`));
    if (d.members) item.append(node("p", d.senders ? "" : "bad", `members ${d.members.join(", ")}; sends on ${(d.senders || ["none"]).join(", ")}`));
    if (d.xdp_mode) item.append(node("p", "", `${plural(d.rx_frames, "frame")} in, ${d.tx_frames.toLocaleString("en")} out`));
    for (const c of d.dropped || []) item.append(node("p", "bad", `${plural(c.frames, "frame")} dropped: ${c.cause}`));
    if (d.link && d.link !== "up") item.append(node("p", "warn", `link ${d.link}${d.link_since ? " since " + d.link_since : ""}`));
    for (const a of d.missing_addresses || []) item.append(node("p", "warn", `address ${a} was removed: its connections and listeners wait for it`));
    if (d.unowned) {
      const cure = node("code", "", `xwarp doctor --interface ${d.device}`);
      item.append(node("p", "warn", `${plural(d.unowned, "frame")} dropped on unserved queues (${(d.unowned_queues || []).join(", ")}): `, cure));
    }
    if (d.way) item.append(node("p", "", `segments: ${d.way}`));
    if (d.beside) item.append(node("p", "", `in libxdp's dispatcher, beside ${d.beside}`));
    if (d.no_zero_copy) item.append(node("p", "", `no zero-copy: ${d.no_zero_copy}`));
    if (d.fallback) item.append(node("p", "warn", d.fallback));
    if (d.busy_poll) item.append(node("p", "", `busy polling: ${d.busy_poll}`));
    if (d.port_mapper) item.append(node("p", "warn", `port mapper: ${d.port_mapper}`));
    if (d.health) item.append(node("p", "bad", d.health));
    if (d.error) item.append(node("p", "bad", d.error));
    return item;
  }));
  const exports = state.data.status.exports.filter(inView);
  $("exports-head").hidden = exports.length === 0;
  $("export-list").replaceChildren(...exports.map((e) => node("div", "item", node("b", "", e.export),
    node("p", "", `${e.serve} on ${e.listen}, ${sizeOf(e)}, ${e.access}`),
    node("p", "", `${plural(e.connections, "connection")}, ${e.rejected} rejected`), ...transfers(e),
    ...(e.error ? [node("p", "bad", e.error)] : []))));
}

// sizeOf returns the size of an export, or the used part of a directory's limit.
function sizeOf(e) {
  if (e.serve !== "directory") return `${e.memory}, ${quantity(e.size, "B")}`;
  return `${quantity(e.used, "B")} used${e.size ? " of " + quantity(e.size, "B") : ""}`;
}

// transfers returns the counters of an export of a directory.
function transfers(e) {
  if (e.serve === "memory") return [];
  const list = [node("p", "", `${plural(e.puts, "file")} stored: ${quantity(e.put_bytes, "B")}, ${plural(e.gets, "file")} fetched: ${quantity(e.get_bytes, "B")}`)];
  if (e.failed) list.push(node("p", "warn", `${plural(e.failed, "transfer")} refused or aborted`));
  return list;
}

function show() {
  showTotals();
  showChoices();
  showPlots();
  showConns();
  showEvents();
  showDevices();
}

function live(on, text) {
  $("live").className = on ? "on" : "off";
  $("live-text").textContent = text;
}

async function ask(name) {
  const r = await fetch(name + ".json", { cache: "no-store" });
  if (!r.ok) throw new Error(`${r.status} ${r.statusText}`);
  return [name, await r.json()];
}

async function refresh() {
  let wait = 2000;
  try {
    const parts = await Promise.all(["status", "top", "history", "events"].map(ask));
    state.data = Object.fromEntries(parts);
    wait = 1000 * state.data.history.interval_seconds;
    show();
    live(true, `live, updated every ${state.data.history.interval_seconds} s`);
  } catch (e) {
    live(false, "the daemon does not answer");
    console.warn(e);
  }
  document.documentElement.dataset.ready = state.data ? "yes" : "no";
  setTimeout(refresh, document.hidden ? 5 * wait : wait);
}

function theme() {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
  try { root.dataset.theme = localStorage.getItem("theme") || (dark ? "dark" : "light"); } catch { root.dataset.theme = dark ? "dark" : "light"; }
  $("theme").addEventListener("click", () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* kept for this visit only */ }
  });
}

theme();
heads();
$("filter").addEventListener("input", (e) => { state.filter = e.target.value.trim(); if (state.data) showConns(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden && state.data) show(); });
refresh();
