// Charts: areas that are stacked over time, or on a logarithmic scale lines side by side, and points of one series over another. uPlot draws them; moving, zooming
// and reading values by mouse, finger and keyboard are here.
import { clock, day, month, moment, number, percent, plain, year } from "./format.js";
import { css, el, said } from "./dom.js";

/* global uPlot */
const font = (px) => `${px}px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif`;
const rem = () => parseFloat(getComputedStyle(document.documentElement).fontSize);
const size = () => Math.round(rem() * 0.8);

const times = (_, splits, __, ___, incr) => splits.map((t, i) => {
  const turn = i === 0 || day(t) !== day(splits[i - 1]);
  if (incr >= 28 * 86400) return `${month(t)}${i === 0 || year(t) !== year(splits[i - 1]) ? `\n${year(t)}` : ""}`;
  if (incr >= 86400) return day(t);
  return clock(t, incr < 60) + (turn ? `\n${day(t)}` : "");
});

const minute = 60, hour = 3600, days = 86400;
const incrs = [1, 2, 5, 10, 15, 30, ...[1, 2, 5, 10, 15, 30].map((n) => n * minute), ...[1, 2, 3, 4, 6, 8, 12].map((n) => n * hour), ...[1, 2, 3, 4, 5, 7, 10, 15].map((n) => n * days), ...[1, 2, 3, 4, 6].map((n) => n * 30 * days), 365 * days];
const axis = (more) => ({ stroke: () => css("--axis"), grid: { stroke: () => css("--grid"), width: 1 }, ticks: { stroke: () => css("--line"), width: 1, size: 4 }, font: font(size()), ...more });

export class Stack {
  // asked are callbacks: range(from, to) when the range is to be another, read(text) for what a reader is to say.
  constructor(holder, asked) {
    Object.assign(this, { holder, asked, plot: null, view: null, shown: [], answer: null, at: null });
    this.tip = el("div", { class: "tip", hidden: true, role: "presentation" });
    this.none = el("div", { class: "none", hidden: true });
    holder.append(this.tip, this.none);
    new ResizeObserver(() => this.resize()).observe(holder);
    holder.addEventListener("keydown", (e) => this.key(e));
    holder.addEventListener("blur", () => this.read(null));
    this.pointers();
  }

  // show draws an answer. how: unit, share (percent), hidden ids, colour(s), name(s), view [from, to].
  show(answer, how) {
    const before = this.how, read = this.at === null ? null : this.answer.from + (this.at + 0.5) * this.answer.step;
    Object.assign(this, { answer, how, view: how.view });
    this.shown = answer.series.filter((s) => !how.hidden.has(s.key));
    this.layers = [...this.shown].reverse(); // the highest is drawn first, and the others over it
    this.stack();
    const same = this.plot && before && before.unit === how.unit && before.share === how.share && before.log === how.log && before.night === how.night &&
      this.plot.series.length === this.shown.length + 1 && this.layers.every((s, i) => this.plot.series[i + 1].key === s.key);
    if (same) {
      this.plot.batch(() => {
        this.plot.setData(this.data, false);
        this.plot.setScale("x", { min: this.view[0], max: this.view[1] });
      });
    } else this.draw();
    const any = this.data.slice(1).some((row) => row.some((v) => v !== null));
    this.none.hidden = any;
    this.none.textContent = any ? "" : answer.series.length && !this.shown.length ? "All series are switched off." : "Nothing was counted in this range.";
    if (read !== null) { // the same time, wherever it is now
      const i = Math.floor((read - answer.from) / answer.step);
      this.read(i >= 0 && i < answer.points ? i : null);
    }
  }

  // stack sums the series up, from below. Where nobody looked there is a gap.
  stack() {
    const n = this.answer.points, xs = new Array(n), half = this.answer.step / 2;
    for (let i = 0; i < n; i++) xs[i] = this.answer.from + i * this.answer.step + half;
    this.total = new Float64Array(n).fill(NaN);
    for (const s of this.shown) for (let i = 0; i < n; i++) { const v = s.values[i]; if (v === v) this.total[i] = (this.total[i] === this.total[i] ? this.total[i] : 0) + v; }
    const sum = new Float64Array(n);
    this.data = [xs];
    for (const s of this.shown) {
      const row = new Array(n);
      for (let i = 0; i < n; i++) {
        const v = s.values[i];
        if (v === v) sum[i] += v;
        row[i] = this.total[i] !== this.total[i] ? null : this.how.log ? (v > 0 ? v : null) : this.how.share ? (this.total[i] > 0 ? sum[i] / this.total[i] * 100 : null) : sum[i];
      }
      this.data.splice(1, 0, row);
    }
  }

  size() { return { width: Math.max(200, this.holder.clientWidth), height: Math.max(200, this.holder.clientHeight) }; }
  resize() { if (this.plot) { const s = this.size(); if (s.width !== this.plot.width || s.height !== this.plot.height) this.plot.setSize(s); } }

  draw() {
    this.plot?.destroy();
    const unit = this.how.share ? "" : this.how.unit;
    const options = {
      ...this.size(), padding: [10, 8, 0, 0], legend: { show: false },
      scales: {
        x: { time: true, auto: false, min: this.view[0], max: this.view[1] },
        y: { auto: false, distr: this.how.log ? 3 : 1, range: () => (this.how.log ? this.decades() : this.ceiling()) },
      },
      axes: [
        axis({ values: times, incrs, space: 80, size: Math.round(rem() * 2.7) }),
        axis({ values: (_, v) => v.map((y) => (y === null ? "" : this.how.share ? `${y} %` : number(y))), size: Math.round(rem() * 4.1), label: unit ? unit : "share", labelSize: Math.round(rem() * 1.3), labelFont: font(size()), labelGap: 0 }),
      ],
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false, dist: 6 }, bind: { mousedown: (u, _, f) => (e) => { if (!e.shiftKey && e.button === 0) f(e); }, dblclick: () => () => { this.zoom(2); } } },
      series: [{}, ...this.layers.map((s) => (this.how.log ? { key: s.key, width: 2, stroke: this.how.colour(s), points: { show: this.answer.points < 3 } } : { key: s.key, width: 0, fill: this.how.colour(s), points: { show: false } }))],
      hooks: {
        drawClear: [(u) => this.gaps(u)],
        setSelect: [(u) => {
          if (u.select.width < 6) return;
          const [a, b] = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          this.asked.range(a, b, true);
        }],
        setCursor: [(u) => { if (this.byKey) return; this.hover(u.cursor.idx === null || u.cursor.left < 0 ? null : u.cursor.idx); }],
      },
    };
    this.plot = new uPlot(options, this.data, this.holder);
  }

  // ceiling is the range of values that is seen.
  ceiling() {
    if (this.how.share) return [0, 100];
    const top = this.data[1], xs = this.data[0];
    let most = 0;
    if (this.data.length > 1) for (let i = 0; i < xs.length; i++) if (xs[i] >= this.view[0] - this.answer.step && xs[i] <= this.view[1] + this.answer.step && top[i] > most) most = top[i];
    return [0, (most || 1) * 1.06];
  }

  // decades is the range of values that is seen on a logarithmic scale: whole powers of ten, at most nine.
  decades() {
    const xs = this.data[0];
    let most = 0, least = Infinity;
    for (const row of this.data.slice(1)) for (let i = 0; i < xs.length; i++) if (xs[i] >= this.view[0] - this.answer.step && xs[i] <= this.view[1] + this.answer.step && row[i] > 0) { most = Math.max(most, row[i]); least = Math.min(least, row[i]); }
    if (!most) return [1, 10];
    const top = Math.ceil(Math.log10(most) + 0.02), low = Math.max(top - 9, Math.floor(Math.log10(least)));
    return [10 ** Math.min(low, top - 1), 10 ** top];
  }

  // gaps marks the time in which nobody looked.
  gaps(u) {
    const { ctx, bbox } = u, step = this.answer.step;
    const left = Math.max(this.view[0], this.answer.from), right = Math.min(this.view[1], this.answer.from + this.answer.points * step, this.how.now);
    const paint = (a, b) => {
      const x = Math.max(bbox.left, u.valToPos(a, "x", true)), w = Math.min(bbox.left + bbox.width, u.valToPos(b, "x", true)) - x;
      if (w > 1) ctx.fillRect(x, bbox.top, w, bbox.height);
    };
    ctx.save();
    ctx.fillStyle = css("--gap");
    const first = Math.max(0, Math.floor((left - this.answer.from) / step)), last = Math.min(this.answer.points, Math.ceil((right - this.answer.from) / step));
    for (let i = first; i < last; i++) {
      if (this.total[i] === this.total[i]) continue;
      let j = i;
      while (j < last && this.total[j] !== this.total[j]) j++;
      // the newest point may not be there yet
      if (!(j === last && this.answer.from + i * step > this.how.now - 3 * step - 3)) paint(this.answer.from + i * step, Math.min(right, this.answer.from + j * step));
      i = j;
    }
    ctx.restore();
  }

  // look moves what is seen within what is loaded.
  look(view) {
    this.view = view;
    this.plot?.setScale("x", { min: view[0], max: view[1] });
  }
  zoom(factor, around = 0.5) {
    const [a, b] = this.view, w = b - a, c = a + w * around;
    this.asked.range(c - w * factor * around, c + w * factor * (1 - around), true);
  }

  pointers() {
    const h = this.holder;
    let from = null;
    const width = () => (this.plot ? this.plot.bbox.width / devicePixelRatio : h.clientWidth);
    h.addEventListener("pointerdown", (e) => {
      if (!this.plot || !(e.pointerType === "touch" || e.shiftKey && e.button === 0)) return;
      from = { x: e.clientX, view: [...this.view], id: e.pointerId };
      this.tip.hidden = true;
      if (e.pointerType !== "touch") { h.setPointerCapture(e.pointerId); h.classList.add("moving"); e.preventDefault(); }
    });
    h.addEventListener("pointermove", (e) => {
      if (!from || e.pointerId !== from.id) return;
      const by = (from.x - e.clientX) / width() * (from.view[1] - from.view[0]);
      from.next = [from.view[0] + by, from.view[1] + by];
      if (!from.waits) { from.waits = true; requestAnimationFrame(() => { if (from) { from.waits = false; this.look(from.next); this.asked.range(...from.next, false); } }); }
    });
    const end = (e) => {
      if (!from || e.pointerId !== from.id) return;
      const next = from.next;
      from = null;
      h.classList.remove("moving");
      if (next) this.asked.range(...next, true);
    };
    h.addEventListener("pointerup", end);
    h.addEventListener("pointercancel", end);
    h.addEventListener("wheel", (e) => {
      if (!this.plot) return;
      const [a, b] = this.view;
      if (e.ctrlKey) {
        e.preventDefault();
        const box = this.plot.over.getBoundingClientRect();
        this.zoom(e.deltaY > 0 ? 1.25 : 0.8, Math.max(0, Math.min(1, (e.clientX - box.left) / box.width)));
      } else if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
        e.preventDefault();
        const by = e.deltaX / width() * (b - a);
        this.asked.range(a + by, b + by, true);
      }
    }, { passive: false });
    h.addEventListener("pointerleave", () => { if (!this.byKey) this.hover(null); });
  }

  key(e) {
    if (e.ctrlKey || e.altKey || e.metaKey || !this.plot) return;
    const xs = this.data[0], step = this.answer.step;
    const inside = (i) => Math.max(0, Math.min(xs.length - 1, i));
    const index = (t) => inside(Math.floor((t - this.answer.from) / step));
    const [a, b] = this.view;
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    if (e.shiftKey && (e.key === "ArrowLeft" || e.key === "ArrowRight")) {
      const by = (b - a) / 4 * moves[e.key];
      this.asked.range(a + by, b + by, true);
    } else if (e.key in moves) {
      const now = this.at === null ? index(b) : inside(this.at + moves[e.key]);
      this.read(now);
      const t = xs[now];
      if (t < a || t > b) this.asked.range(t - (b - a) / 2, t + (b - a) / 2, true);
    } else if (e.key === "Home") this.read(index(a + step));
    else if (e.key === "End") this.read(index(b - step));
    else if (e.key === "Escape") this.read(null);
    else return;
    e.preventDefault();
  }

  // read shows and says the values at a point.
  read(i) {
    this.at = i;
    this.byKey = i !== null;
    this.hover(i);
    if (i === null || !this.data) { this.asked.read(""); return; }
    const rows = this.values(i);
    this.plot?.setCursor({ left: this.plot.valToPos(this.data[0][i], "x"), top: 10 }, false);
    this.asked.read(`${moment(this.answer.from + i * this.answer.step, this.answer.step)}: ${rows ? rows.map(([s, v, share]) => `${plain(this.how.name(s))} ${number(v, this.how.unit)}, ${percent(share)}`).join("; ") : "no data"}`);
  }
  values(i) {
    const total = this.total[i];
    if (total !== total) return null;
    return [...this.shown].reverse().map((s) => [s, s.values[i], total > 0 ? s.values[i] / total : NaN]);
  }
  hover(i) {
    if (i === null || i === undefined || !this.data || !this.plot) { this.tip.hidden = true; return; }
    const rows = this.values(i), t = this.answer.from + i * this.answer.step;
    const head = el("p", { class: "when" }, `${moment(t, this.answer.step)}${this.answer.step > 1 ? ` – ${moment(t + this.answer.step, this.answer.step)}` : ""}`);
    if (!rows) this.tip.replaceChildren(head, el("p", {}, "No data: the agent did not run, or had no policy to watch."));
    else {
      const seen = rows.filter(([, v]) => v > 0).slice(0, 12);
      const body = el("tbody", {}, seen.map(([s, v, share]) => el("tr", {}, el("td", {}, el("span", { class: "swatch", colour: this.how.colour(s) })), el("td", { class: "name" }, said(this.how.name(s))), el("td", { class: "num" }, number(v, this.how.unit)), el("td", { class: "num" }, percent(share)))),
        el("tr", {}, el("td"), el("td", { class: "name" }, el("strong", {}, rows.length > 1 ? "All" : "")), el("td", { class: "num" }, rows.length > 1 ? el("strong", {}, number(this.total[i], this.how.unit)) : ""), el("td")));
      this.tip.replaceChildren(head, el("table", {}, body));
    }
    this.tip.hidden = false;
    const x = this.plot.valToPos(this.data[0][i], "x") + this.plot.bbox.left / devicePixelRatio, w = this.tip.offsetWidth;
    this.tip.style.left = `${x + w + 24 > this.holder.clientWidth ? Math.max(2, x - w - 12) : x + 12}px`;
    this.tip.style.top = `${12}px`;
  }
}

// scatter draws points [x, y]; what is what the axes say.
export class Scatter {
  constructor(holder) {
    this.holder = holder;
    this.none = el("div", { class: "none", hidden: true });
    holder.append(this.none);
    new ResizeObserver(() => { const w = this.holder.clientWidth; if (this.plot && w !== this.plot.width && w > 0) this.plot.setSize({ width: w, height: this.holder.clientHeight }); }).observe(holder);
  }
  show(points, what) {
    this.plot?.destroy();
    this.plot = null;
    this.none.hidden = points.length > 0;
    this.none.textContent = points.length ? "" : "No second in which both were counted.";
    if (!points.length) return;
    points.sort((a, b) => a[0] - b[0]);
    const range = (_, __, max) => [0, (max || 1) * 1.06];
    const values = (_, v) => v.map((n) => number(n));
    this.plot = new uPlot({
      width: this.holder.clientWidth, height: this.holder.clientHeight, legend: { show: false }, padding: [10, 12, 0, 0],
      cursor: { show: false },
      scales: { x: { time: false, range }, y: { range } },
      axes: [axis({ values, label: what.x, labelSize: Math.round(rem() * 1.4), labelFont: font(size()), space: 70 }), axis({ values, label: what.y, labelSize: Math.round(rem() * 1.4), labelFont: font(size()), size: Math.round(rem() * 3.9) })],
      series: [{}, { paths: () => null, points: { show: true, size: 6, fill: what.colour, stroke: what.edge, width: 0.5 } }],
    }, [points.map((p) => p[0]), points.map((p) => p[1])], this.holder);
  }
}
