// The chart of the traffic, with all that belongs to it: what is stacked, the range, legend, table, and the same data
// for the figures at the top, for the talkers and for the scatter.
import * as api from "./api.js";
import { Stack } from "./chart.js";
import { colour, night } from "./colours.js";
import { $, choice, el, meter, replace, said } from "./dom.js";
import { count, duration, moment, number, parts, percent, plain, whole, zone } from "./format.js";

const ranges = [["60", "1 min", "1"], ["900", "15 min", "2"], ["3600", "1 h", "3"], ["21600", "6 h", "4"], ["86400", "1 day", "5"], ["604800", "7 days", "6"], ["2592000", "30 days", "7"], ["7776000", "90 days", "8"], ["31536000", "1 year", "9"]];
const nice = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
const order = { pass: 0, redirect: 1, answer: 2, drop: 3, lost: 4 };
const place = (s) => (s.id === "" ? 5 : order[s.verdict || s.id] ?? 4);
const names = { pass: "passed", drop: "dropped", answer: "answered", redirect: "to a ring", lost: "lost before the policy" };

export const state = { dev: "", by: "verdict", unit: "packets", share: false, log: false, peak: false, hidden: new Set(), span: 900, to: null, points: 0 };
const now = () => Date.now() / 1000 - ahead;
let ahead = 0; // of this clock, before the agent's
export const clockIs = (t) => { ahead = Date.now() / 1000 - t; };

let chart, answer, loading, timer, failed = () => {}, loaded = [0, 0];
export const view = () => { const to = state.to ?? now(); return [to - state.span, to]; };
export const unit = () => (state.unit === "bytes" ? "bit/s" : "packets/s");
let several = false; // rules are of several interfaces
const name = (s) => (several && s.dev ? `${s.dev} ` : "") + (state.by === "verdict" ? names[s.id] || s.id : s.id === "" ? `others${s.merged ? ` (${s.merged})` : ""}` : s.label || s.text || s.id);

// ---- what is asked for ----

const stepOf = (span) => {
  const points = state.points || Math.min(1500, Math.max(150, (chart?.holder.clientWidth || 800) * 0.8));
  return nice.find((s) => s >= span / points) || 86400;
};
const load = async () => {
  loading?.abort();
  const mine = loading = new AbortController();
  const [from, to] = view(), span = to - from, step = stepOf(span);
  const query = {
    dev: state.dev, by: state.by, unit: state.unit, peak: state.peak ? "true" : "",
    from: Math.floor((from - (state.to === null ? 0.25 : 1) * span) / step) * step,
    to: Math.ceil(Math.min(to + span, now() + 1) / step) * step, step, most: state.by === "rule" ? 11 : 9,
  };
  query.from = Math.max(0, query.from);
  if (query.to <= query.from) query.to = query.from + step;
  try {
    const got = await api.series(query, mine.signal);
    if (mine !== loading) return;
    const scale = state.unit === "bytes" ? 8 : 1;
    for (const s of got.series) {
      if (scale !== 1) for (let i = 0; i < s.values.length; i++) s.values[i] *= scale;
      s.key = `${s.dev} ${s.id}`;
    }
    // what passes lies below what is answered and dropped; the sum of all others is on top
    if (state.by === "verdict" || state.by === "rule") got.series.sort((a, b) => place(a) - place(b));
    for (const s of got.series) colourOf(s); // the largest have the first colours
    several = new Set(got.series.map((s) => s.dev).filter(Boolean)).size > 1;
    answer = got;
    loaded = [got.from, got.from + got.points * got.step];
    draw();
    failed(null);
  } catch (err) {
    if (err.name !== "AbortError") failed(err);
  } finally {
    if (mine === loading) { loading = null; again(); }
  }
};
// again loads once more when there is something new to see.
const again = () => {
  clearTimeout(timer);
  if (state.to !== null || document.hidden) return;
  timer = setTimeout(load, Math.min(60, Math.max(1, answer ? answer.step / 2 : 1)) * 1000);
};
export const start = (onFail) => {
  failed = onFail;
  chart ??= new Stack($("plot"), { range: move, read: (t) => { $("plot-reader").textContent = t; } });
  return load();
};
export const stop = () => { clearTimeout(timer); loading?.abort(); };
document.addEventListener("visibilitychange", () => { if (!document.hidden && chart && state.to === null) load(); });

// ---- the range ----

// move makes the range another; at the end of a movement what is missing is loaded.
let soon;
const move = (from, to, end) => {
  const t = now();
  let span = Math.max(10, Math.min(366 * 86400, to - from));
  if (to >= t - span * 0.001 && from < to) state.to = null; // at the present it is followed
  else state.to = Math.min(t, from + (to - from) / 2 + span / 2);
  state.span = span;
  const v = view();
  chart.look(v);
  if (!end) { rangeText(); return; }
  controls();
  clearTimeout(soon);
  soon = setTimeout(() => { changed(); load(); }, v[0] < loaded[0] || v[1] > loaded[1] + (answer?.step || 0) ? 0 : 250);
};
const zoom = (factor) => {
  const [a, b] = view(), around = state.to === null ? 1 : 0.5, c = a + (b - a) * around, w = (b - a) * factor;
  move(c - w * around, c + w * (1 - around), true);
};
export const actions = {
  range: (i) => { state.span = Number(ranges[i][0]); state.to = null; update(); },
  back: () => { const [a, b] = view(); move(a - state.span / 2, b - state.span / 2, true); },
  forth: () => { const [a, b] = view(); move(a + state.span / 2, b + state.span / 2, true); },
  closer: () => zoom(0.5),
  wider: () => zoom(2),
  live: () => { state.to = null; update(); },
};
const update = () => { changed(); controls(); chart.look(view()); load(); };

// ---- in the address, so that a view can be passed on ----

const changed = () => {
  const p = new URLSearchParams();
  if (state.dev) p.set("dev", state.dev);
  if (state.by !== "verdict") p.set("by", state.by);
  if (state.unit !== "packets") p.set("unit", state.unit);
  if (state.share) p.set("share", "1");
  if (state.log) p.set("log", "1");
  if (state.peak) p.set("peak", "1");
  p.set("span", String(Math.round(state.span)));
  if (state.to !== null) p.set("to", String(Math.round(state.to)));
  if (state.points) p.set("points", String(state.points));
  if (state.hidden.size) p.set("off", [...state.hidden].join("\n"));
  history.replaceState(null, "", `${location.pathname}?${p}${location.hash}`);
};
export const restore = () => {
  const p = new URLSearchParams(location.search), one = (k, of, or) => (of.includes(p.get(k)) ? p.get(k) : or);
  state.dev = p.get("dev") || "";
  state.by = one("by", ["verdict", "rule", "protocol", "source"], "verdict");
  state.unit = one("unit", ["packets", "bytes"], "packets");
  state.share = p.get("share") === "1";
  state.log = !state.share && p.get("log") === "1";
  state.peak = p.get("peak") === "1";
  const span = Number(p.get("span")), to = Number(p.get("to")), points = Number(p.get("points"));
  if (points >= 10 && points <= 50_000) state.points = points; // of a window: more than fit, if somebody wants them
  if (span >= 10 && span <= 366 * 86400) state.span = span;
  if (to > 0 && to < 1e11) state.to = to;
  state.hidden = new Set((p.get("off") || "").split("\n").filter(Boolean));
};
export const setDev = (dev) => { state.dev = dev; update(); };

// ---- controls ----

export const controls = () => {
  const pick = (key, convert = (v) => v) => (v) => { state[key] = convert(v); if (key === "by") state.hidden.clear(); update(); };
  choice($("by"), [["verdict", "Verdict"], ["rule", "Rule"], ["protocol", "Protocol"], ["source", "Source"]], state.by, pick("by"));
  choice($("unit"), [["packets", "Packets"], ["bytes", "Bits"]], state.unit, pick("unit"));
  choice($("scale"), [["", "Absolute"], ["share", "Percent"], ["log", "Logarithmic", "Each series by itself, a line a power of ten"]], state.share ? "share" : state.log ? "log" : "",
    (v) => { state.share = v === "share"; state.log = v === "log"; update(); });
  choice($("peak"), [["", "Mean", "The mean over the time of a point"], ["1", "Busiest second", "The most in any one second of a point"]], state.peak ? "1" : "", pick("peak", (v) => v === "1"));
  choice($("range"), ranges, String(ranges.some(([s]) => Number(s) === state.span) ? state.span : ""), (v) => { state.span = Number(v); state.to = null; update(); });
  const holder = $("move");
  if (!holder.children.length) {
    for (const [key, text, label] of [["back", "←", "Earlier"], ["forth", "→", "Later"], ["closer", "+", "Zoom in"], ["wider", "−", "Zoom out"], ["live", "Live", "Follow the present"]]) {
      holder.append(el("button", { type: "button", "data-value": key, "aria-label": text === "Live" ? null : label, title: label, on: { click: () => actions[key]() } }, text));
    }
  }
  for (const b of holder.children) if (b.dataset.value === "live") b.setAttribute("aria-pressed", String(state.to === null));
  for (const b of holder.children) if (b.dataset.value === "forth") b.disabled = state.to === null;
  rangeText();
};
const rangeText = () => {
  const [a, b] = view();
  $("range-text").textContent = `${moment(a, state.span < 7200 ? 1 : 60)} to ${state.to === null ? "now" : moment(b, state.span < 7200 ? 1 : 60)}, ${zone()}`;
};

// ---- drawing ----

const listeners = [];
export const onData = (f) => listeners.push(f);
export const current = () => answer;
export const nameOf = name;
export const colourOf = (s) => colour(state.by, s);
export const draw = () => {
  if (!answer) return;
  controls();
  chart.show(answer, { unit: unit(), share: state.share, log: state.log, hidden: state.hidden, colour: colourOf, name, view: view(), night: night(), now: now() });
  legend();
  note();
  if ($("values").open) table();
  for (const f of listeners) f();
};
const inView = (i) => { const [a, b] = view(), t = answer.from + i * answer.step; return t + answer.step > a && t < b; };
// sums are packets or bits of the series in what is seen.
export const sums = () => answer.series.map((s) => {
  let v = 0;
  for (let i = 0; i < answer.points; i++) if (inView(i) && s.values[i] === s.values[i]) v = state.peak ? Math.max(v, s.values[i]) : v + s.values[i] * answer.step;
  return v;
});
const legend = () => {
  const all = sums(), sum = all.reduce((a, b) => a + b, 0), word = state.unit === "bytes" ? "bit" : "packets";
  // What nothing was counted by in the range stands in the table alone.
  const some = answer.series.filter((s, i) => all[i] > 0 || state.hidden.has(s.key));
  replace($("legend"), (some.length ? some : [...answer.series]).reverse().map((s) => {
    const v = all[answer.series.indexOf(s)], off = state.hidden.has(s.key);
    const b = el("button", { type: "button", "aria-pressed": String(!off), "data-key": s.key, title: s.text ? plain(s.text) : null },
      el("span", { class: "swatch", colour: colourOf(s) }), said(name(s), { class: "name" }),
      el("span", { class: "sum" }, state.peak ? number(v, unit()) : `${count(v, word)}, ${percent(sum ? v / sum : NaN)}`));
    b.addEventListener("click", () => { if (off) state.hidden.delete(s.key); else state.hidden.add(s.key); changed(); draw(); });
    return b;
  }));
};
const note = () => {
  const notes = [];
  const step = answer.step > 1 ? `A point is ${state.peak ? "the busiest second" : "the mean"} of ${duration(answer.step)}.` : "";
  if (step) notes.push(step);
  if (state.log) notes.push("On a logarithmic scale each series is a line by itself; nothing is stacked.");
  if (state.peak && answer.series.length > 1 && answer.step > 1) notes.push("The busiest seconds of the series need not be the same ones, so their sum is at least what came.");
  if (!answer.series.length) {
    notes.push(state.by === "protocol" || state.by === "source"
      ? "Protocols and sources come from sampled headers. There are none in this range: they need a detect statement in the policy."
      : "There is nothing in this range. The agent counts from when it first runs.");
  }
  if (state.by === "protocol" || state.by === "source") if (answer.series.length) notes.push("Estimated from sampled headers; sources of a flood may be forged.");
  $("traffic-note").hidden = !notes.length;
  $("traffic-note").textContent = notes.join(" ");
};

// ---- values ----

const rows = () => {
  const out = [];
  for (let i = 0; i < answer.points; i++) if (inView(i)) out.push(i);
  return out;
};
const table = () => {
  const shown = answer.series.filter((s) => !state.hidden.has(s.key)), all = rows(), most = 400;
  const head = el("tr", {}, el("th", { scope: "col" }, "Begin"), shown.map((s) => el("th", { scope: "col", class: "num" }, said(name(s)), el("br"), el("span", { class: "quiet" }, unit()))));
  const body = all.slice(-most).reverse().map((i) => el("tr", {}, el("th", { scope: "row" }, moment(answer.from + i * answer.step, answer.step)),
    shown.map((s) => el("td", { class: "num" }, s.values[i] === s.values[i] ? number(s.values[i]) : "no data"))));
  const box = $("values").querySelector("table");
  box.tHead.replaceChildren(head);
  box.tBodies[0].replaceChildren(...body);
};
$("values").addEventListener("toggle", () => { if ($("values").open && answer) table(); });
$("csv").addEventListener("click", () => {
  if (!answer) return;
  const cell = (t) => { const s = /^[=+\-@\t\r]/.test(t) ? `'${t}` : String(t); return /[",\r\n]/.test(s) ? `"${s.replaceAll('"', '""')}"` : s; };
  const shown = answer.series.filter((s) => !state.hidden.has(s.key));
  const lines = [["begin", "seconds", ...shown.map((s) => `${plain(name(s))} ${unit()}`)].map(cell).join(",")];
  for (const i of rows()) lines.push([new Date((answer.from + i * answer.step) * 1000).toISOString(), answer.step, ...shown.map((s) => (s.values[i] === s.values[i] ? s.values[i] : ""))].join(","));
  const link = el("a", { download: "levee-traffic.csv", href: URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
});

// ---- the figures at the top: the last seconds, whatever the chart shows ----

export const tiles = async (others) => {
  const t = Math.floor(now()), span = 60;
  const ask = (unit) => api.series({ dev: state.dev, by: "verdict", unit, from: t - span, to: t + 1, step: 1 });
  const [packets, bytes] = await Promise.all([ask("packets"), ask("bytes")]);
  // the mean of the last five seconds that were counted
  const last = (got, id) => {
    const s = got.series.filter((x) => !id || x.id === id);
    let sum = NaN, n = 0;
    for (let i = got.points - 1; i >= 0 && n < 5; i--) {
      const v = s.map((x) => x.values[i]).filter((x) => x === x);
      if (!v.length) continue;
      sum = (n ? sum : 0) + v.reduce((a, b) => a + b, 0);
      n++;
    }
    return n ? sum / n : NaN;
  };
  const arrived = last(packets), dropped = last(packets, "drop"), passed = last(packets, "pass"), lost = last(packets, "lost"), bits = last(bytes) * 8;
  const figure = (v, unit) => { const [n, u] = parts(v, unit, true); return [n, u ? el("small", {}, ` ${u}`) : null]; };
  const tile = (title, body, more, edge) => { const d = el("dl", { class: "tile" }, el("dt", {}, title), el("dd", { class: "figure" }, body), el("dd", { class: "more" }, more)); if (edge) d.style.setProperty("--edge", `var(--${edge})`); return d; };
  replace($("tiles"),
    tile("Arriving", figure(arrived, "packets/s"), number(bits, "bit/s")),
    tile("Passed", figure(passed, "packets/s"), percent(passed / arrived), "pass"),
    tile("Dropped", figure(dropped, "packets/s"), percent(dropped / arrived), "drop"),
    lost > 0 ? tile("Lost before the policy", figure(lost, "packets/s"), percent(lost / arrived), "lost") : null,
    ...others(tile, (v) => el("span", {}, whole(v))));
};

// ---- top talkers, in the range of the chart ----

export const talkers = async () => {
  const [from, to] = view(), span = to - from;
  const got = await api.series({ dev: state.dev, by: "source", unit: state.unit, from: Math.floor(from), to: Math.ceil(to), step: Math.max(1, Math.ceil(span / 100)), most: 15 });
  const amount = (s) => (state.unit === "bytes" ? s.bytes * 8 : s.packets), word = state.unit === "bytes" ? "bit" : "packets";
  const sum = got.series.reduce((a, s) => a + amount(s), 0), first = Math.max(1, ...got.series.filter((s) => s.id !== "").map(amount));
  const body = $("talkers").querySelector(".body");
  $("talkers-what").textContent = got.series.length ? "estimated from samples, in the range above" : "";
  if (!got.series.length) {
    replace(body, el("p", { class: "empty" }, el("strong", {}, "No sources yet"), "Sources come from sampled headers, which the agent takes while a policy has a detect statement."));
    return;
  }
  replace(body, el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Sources by traffic" }, el("table", {},
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Source"), el("th", { scope: "col", class: "num" }, word), el("th", { scope: "col", class: "num" }, "Share"))),
    el("tbody", {}, got.series.map((s) => el("tr", {}, el("th", { scope: "row", class: "grow" }, said(s.id === "" ? "all others" : s.label || s.id), s.id === "" ? null : meter(amount(s) / first)),
      el("td", { class: "num" }, count(amount(s))), el("td", { class: "num" }, percent(sum ? amount(s) / sum : NaN))))))));
};
