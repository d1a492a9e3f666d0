// Draws the charts of a report. In goes the document that the page carries (its schema is in docs/reference/report.md),
// out come uPlot charts with controls. Names in the document are hostile: they become text nodes and
// strokes on a canvas, never markup.
(() => {
  "use strict";
  const doc = JSON.parse(document.getElementById("document").textContent);

  // Told apart also by those who see no red or green: Okabe and Ito, "Color Universal Design", and, behind them,
  // two of Tol's. On a dark ground the same hues, lighter. Past the last colour, lines are dashed.
  const palettes = {
    light: ["#0072b2", "#d55e00", "#009e73", "#b8528d", "#a87400", "#2f8fcf", "#444a52", "#7d7d1c", "#882255"],
    dark: ["#4fb0ee", "#ff8b45", "#2fd0a2", "#eaa0ca", "#f2bb45", "#9bd6fa", "#c3cad3", "#cfcf5b", "#e884b1"],
  };
  const dashes = [[], [7, 4], [2, 3]];
  const night = matchMedia("(prefers-color-scheme: dark)");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (i) => { const p = palettes[night.matches ? "dark" : "light"]; return p[i % p.length]; };
  const font = (px, weight = "") => `${weight} ${px}px ${getComputedStyle(document.documentElement).fontFamily}`.trim();

  const element = (tag, attributes = {}, ...children) => {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    e.append(...children);
    return e;
  };

  // ---- numbers ----

  const seconds = { ns: 1e-9, us: 1e-6, "µs": 1e-6, ms: 1e-3, s: 1 };
  const digits = (v, n) => {
    if (v === 0) return "0";
    const magnitude = Math.floor(Math.log10(Math.abs(v)));
    return String(Number(v.toFixed(Math.min(20, Math.max(0, n - 1 - magnitude)))));
  };
  const scaled = (v, steps, n) => {
    const size = Math.abs(v);
    for (const [limit, name] of steps) if (size >= limit * 0.9995) return [digits(v / limit, n), name];
    const [limit, name] = steps[steps.length - 1];
    return [digits(v / limit, n), name];
  };
  const si = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "K"], [1, ""]];
  const time = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
  const binary = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "bytes"]];
  // print is a value with its unit; short ones are for axes.
  const print = (v, unit, n = 3, short = false) => {
    if (unit === "×") return digits(v, n) + "×";
    if (unit in seconds && v !== 0) return scaled(v * seconds[unit], time, n).join(" ");
    if (unit === "bytes") return scaled(v, binary, n).join(" ");
    const [number, prefix] = scaled(v, si, n);
    const named = prefix ? `${number} ${prefix}` : number;
    return short || !unit ? named : `${named} ${unit}`;
  };
  const axisTitle = (axis, unit) => {
    const named = unit in seconds || unit === "bytes" || !unit ? "" : unit === "×" ? " (ratio)" : ` (${unit})`;
    return (axis.label || "") + named;
  };

  // ---- what is shown ----

  // levee's own figures carry a sign, so that they stand out without colour as well (isLevee in headline.go).
  const ours = (name) => /^levee([ ,:(]|$)/.test(name);
  const signed = (name) => (ours(name) ? "\u25BA " : "") + name;

  // Boxes stand as bars do, each within the spread of its values.
  const bars = (chart) => chart.kind === "bar" || chart.kind === "box";
  const columns = (chart) => chart.kind === "histogram";

  // relative is the point over its base; its interval is all that the two intervals allow.
  const relative = (p, base) => {
    if (p.y === null) return p;
    if (!base || base.y === null || base.y === undefined || base.y === 0) return { ...p, y: null, low: null, high: null, why: "there is no figure to compare with here" };
    const low = p.low ?? p.y, high = p.high ?? p.y, baseLow = base.low ?? base.y, baseHigh = base.high ?? base.y;
    const spread = p.spread ? Object.fromEntries(Object.entries(p.spread).map(([k, v]) => [k, v / base.y])) : undefined;
    const bounded = (p.low != null || base.low != null) && baseLow > 0;
    return {
      ...p, y: p.y / base.y, rounds: [], spread,
      low: p === base ? 1 : bounded ? low / baseHigh : null, high: p === base ? 1 : bounded ? high / baseLow : null,
      at_least: p !== base && (p.at_least || base.at_most), at_most: p !== base && (p.at_most || base.at_least),
    };
  };

  // figures lists, a series each, the points to draw under the present choices.
  const figures = (chart, state) => chart.series.map((s) => s.points.map((q) => {
    const p = { ...q, y: q.y ?? null, of: s.name };
    if (state.base === null) return p;
    const pool = bars(chart) ? s.points.filter((b) => b.label === state.base) : (chart.series.find((b) => b.name === state.base) || { points: [] }).points.filter((b) => b.x === q.x);
    const base = pool[0];
    return relative(base === q ? Object.assign(q, { y: q.y ?? null }) : p, base);
  }).map((p) => ({ ...p, of: s.name })).map((p) => (
    state.logY && p.y !== null && p.y <= 0 ? { ...p, y: null, low: null, high: null, why: `${print(p.y, unitOf(chart, state))} has no place on a logarithmic axis` } : p)));

  const unitOf = (chart, state) => (state.base === null ? chart.y.unit || "" : "×");
  const choicesOf = (chart) => (columns(chart) ? [] : bars(chart) ? labelsOf(chart) : chart.series.map((s) => s.name));
  const labelsOf = (chart) => [...new Set(chart.series.flatMap((s) => s.points.map((p) => p.label)))];

  const extent = (values, log) => {
    const usable = values.filter((v) => Number.isFinite(v) && (!log || v > 0));
    return usable.length ? [Math.min(...usable), Math.max(...usable)] : log ? [1, 10] : [0, 1];
  };
  const yRange = (chart, state, lists, room) => {
    const values = lists.flat().flatMap((p) => (p.y === null ? [] : [p.y, p.low ?? p.y, p.high ?? p.y, ...(p.spread ? [p.spread.p5, p.spread.p95] : [])]));
    let [low, high] = extent(values, state.logY);
    if (state.logY) {
      low = bars(chart) ? 10 ** Math.floor(Math.log10(low) - 0.05) : low / 1.3;
      return [low, high * (room > 0 ? (high / low) ** room : 1) * 1.3];
    }
    low = Math.min(0, low);
    return [low * 1.08, low + (high - low || 1) * (1.06 + room)];
  };

  // ---- a link to a view ----

  // The fragment holds what differs from the page as it opens: #view=ID&ID_off=1.2&ID_base=name&ID_logY=0. An id has
  // no "_". Whoever opens the link sees chart ID first.
  const views = new Map(), switches = ["logX", "logY", "rounds"];
  const fragment = (id) => {
    const out = new URLSearchParams([["view", id]]);
    views.forEach(({ state, initial }, chart) => {
      if (state.hidden.size) out.set(`${chart}_off`, [...state.hidden].sort((a, b) => a - b).join("."));
      if (state.base !== null) out.set(`${chart}_base`, state.base);
      for (const key of switches) if (state[key] !== initial[key]) out.set(`${chart}_${key}`, String(Number(state[key])));
    });
    return `#${out}`;
  };
  const remember = (id) => history.replaceState(null, "", fragment(id));
  const restore = () => {
    const from = new URLSearchParams(location.hash.slice(1)), id = from.get("view");
    if (!views.has(id)) return;
    views.forEach(({ state, initial, chart, apply }, name) => {
      const off = (from.get(`${name}_off`) || "").split(".").filter((n) => /^\d+$/.test(n)).map(Number);
      const base = from.get(`${name}_base`);
      state.hidden = new Set(off.filter((n) => n < chart.series.length));
      state.base = choicesOf(chart).includes(base) ? base : null;
      for (const key of switches) state[key] = from.has(`${name}_${key}`) ? from.get(`${name}_${key}`) === "1" : initial[key];
      apply();
    });
    document.getElementById(id).scrollIntoView();
  };

  // ---- files ----

  const save = (blob, name) => {
    const link = element("a", { download: name, href: URL.createObjectURL(blob) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  };
  // toPixels draws a picture with two pixels for one, which is sharp on a wide page.
  const toPixels = async (svg) => {
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
    await image.decode();
    const canvas = element("canvas", { width: image.naturalWidth * 2, height: image.naturalHeight * 2 });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  };
  // table is the chart as the report's own CSV has it (csv.go), rounds and all.
  const csvColumns = ["chart", "series", "label", "x", "x_to", "x_unit", "y", "y_unit", "low", "high", "bound", "valid", "why", "outlier", "round", "p5", "p25", "p75", "p95"];
  const table = (chart) => {
    const words = (t) => (/^[=+\-@\t\r]/.test(t || "") ? `'${t}` : t || "");
    const quoted = (v) => (/[",\r\n]|^\s|^\\\.$/.test(v) ? `"${v.replaceAll('"', '""')}"` : v);
    const rows = [csvColumns];
    for (const s of chart.series) for (const p of s.points) {
      const bound = p.at_least && p.at_most ? "unknown" : p.at_least ? "at least" : p.at_most ? "at most" : "";
      const row = (y, low, high, limit, far, round, spread = {}) => rows.push([chart.id, words(s.name), words(p.label), bars(chart) ? "" : p.x, p.x_to, chart.x.unit, y, chart.y.unit, low, high, limit, !p.invalid, words(p.why), far, round, spread.p5, spread.p25, spread.p75, spread.p95]);
      row(p.y, p.low, p.high, bound, !!p.outlier, "", p.spread);
      const far = outside(p.rounds || []);
      (p.rounds || []).forEach((v, i) => row(v, null, null, "", far(v), i + 1));
    }
    return rows.map((r) => r.map((v) => quoted(String(v ?? ""))).join(",")).join("\n") + "\n";
  };
  // outside tells outliers as the report does (Tukey's fences, more than three values).
  const outside = (values) => {
    if (values.length < 4) return () => false;
    const s = [...values].sort((a, b) => a - b);
    const q = (f) => { const k = f * (s.length - 1), i = Math.floor(k); return i + 1 < s.length ? s[i] + (k - i) * (s[i + 1] - s[i]) : s[s.length - 1]; };
    const reach = 1.5 * (q(0.75) - q(0.25));
    return (v) => v < q(0.25) - reach || v > q(0.75) + reach;
  };

  // ---- one chart ----

  const build = (chart, section) => {
    const state = { hidden: new Set(), logX: !!chart.x.log, logY: !!chart.y.log, base: null, rounds: bars(chart) };
    const holder = section.querySelector(".plot"), legend = section.querySelector(".legend"), controls = section.querySelector(".controls");
    const reader = section.querySelector(".reader");
    const initial = { ...state };
    let plot = null, hits = [], at = -1, width = 0;
    const tip = element("div", { class: "tip", role: "presentation" });
    tip.hidden = true;

    const appliers = []; // put the state into the controls
    const changed = () => { remember(chart.id); draw(); };
    const check = (text, key) => {
      const box = element("input", { type: "checkbox", "data-switch": key });
      box.checked = state[key];
      box.addEventListener("change", () => { state[key] = box.checked; changed(); });
      appliers.push(() => { box.checked = state[key]; });
      controls.append(element("label", {}, box, text));
    };
    const controlsOnce = () => {
      const choices = choicesOf(chart);
      if (choices.length > 1) {
        const select = element("select", { "data-switch": "base" }, element("option", { value: "" }, "absolute values"));
        choices.forEach((name, i) => select.append(element("option", { value: String(i + 1) }, `relative to ${name}`)));
        select.addEventListener("change", () => { state.base = select.value ? choices[Number(select.value) - 1] : null; changed(); });
        appliers.push(() => { select.value = state.base === null ? "" : String(choices.indexOf(state.base) + 1); });
        controls.append(element("label", {}, "Show", select));
      }
      check(`log ${bars(chart) ? "scale" : "y"}`, "logY");
      if (!bars(chart)) check("log x", "logX");
      if (chart.series.some((s) => s.points.some((p) => (p.rounds || []).length > 1))) check("single rounds", "rounds");
      chart.series.forEach((s, i) => {
        const swatch = element("span", { class: "swatch" });
        const button = element("button", { type: "button", "aria-pressed": "true", "data-series": String(i) }, swatch, signed(s.name));
        button.classList.toggle("ours", ours(s.name));
        button.addEventListener("click", () => {
          if (!state.hidden.delete(i)) state.hidden.add(i);
          button.setAttribute("aria-pressed", String(!state.hidden.has(i)));
          changed();
        });
        appliers.push(() => button.setAttribute("aria-pressed", String(!state.hidden.has(i))));
        legend.append(button);
      });
      actions();
      controls.hidden = false;
      legend.hidden = chart.series.length < 2;
      holder.hidden = false;
      holder.tabIndex = 0;
      holder.setAttribute("role", "group");
      holder.setAttribute("aria-roledescription", "chart");
      holder.setAttribute("aria-label", `${chart.title}. ${chart.series.length} series. Arrow keys read the figures one by one.`);
    };

    // actions are the buttons that take the chart out of the page.
    const actions = () => {
      const picture = section.querySelector("template");
      const action = (text, what, act) => {
        const button = element("button", { type: "button", "data-action": text.toLowerCase().replace(" ", "-"), "aria-label": `${chart.title}: ${what}` }, text);
        button.addEventListener("click", async () => { try { await act(button); } catch { button.textContent = `No ${text} here`; } });
        controls.append(button);
      };
      if (document.fullscreenEnabled) action("Full screen", "full screen, and back", () => (document.fullscreenElement ? document.exitFullscreen() : section.requestFullscreen()));
      if (picture) {
        const svg = () => picture.content.textContent;
        action("SVG", "save as SVG", () => save(new Blob([svg()], { type: "image/svg+xml" }), `${chart.id}.svg`));
        action("PNG", "save as PNG", async () => save(await toPixels(svg()), `${chart.id}.png`));
      }
      action("CSV", "save the figures as CSV", () => save(new Blob([table(chart)], { type: "text/csv" }), `${chart.id}.csv`));
      action("Link", "link to this view", async (button) => {
        remember(chart.id);
        button.textContent = "Link is in the address bar";
        if (!navigator.clipboard) return;
        try { await navigator.clipboard.writeText(location.href); button.textContent = "Link copied"; } catch { /* it may not be allowed: the address bar has it */ }
      });
    };

    const draw = () => {
      if (plot) plot.destroy();
      hideTip();
      legend.querySelectorAll(".swatch").forEach((e, i) => { e.style.background = colour(i); });
      width = Math.max(260, Math.floor(holder.clientWidth));
      const lists = figures(chart, state).map((list, i) => (state.hidden.has(i) ? [] : list));
      plot = (bars(chart) ? drawBars : drawLines)(lists);
      plot.over.append(tip);
      plot.over.addEventListener("mousemove", (e) => hover(e.offsetX, e.offsetY, e.target));
      plot.over.addEventListener("mouseleave", hideTip);
      plot.over.addEventListener("click", (e) => hover(e.offsetX, e.offsetY, e.target));
    };

    const axisStyle = () => ({ stroke: css("--soft"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--grid"), width: 1, size: 5 }, font: font(12), labelFont: font(12), labelSize: 22, labelGap: 4 });
    const valueAxis = (axis, unit, log, extra) => ({
      ...axisStyle(), label: axisTitle(axis, unit),
      values: (_, splits) => splits.map((v) => (v === null ? null : print(v, unit, 4, true))),
      ...(log ? { splits: (_, i, low, high) => logTicks(low, high), filter: (_, splits) => splits } : {}), ...extra,
    });
    // logTicks are powers of ten, with 2 and 5 between them where there are few. uPlot's own begin at the end of the
    // axis, round or not.
    const logTicks = (low, high) => {
      const decades = Math.log10(high / low), every = Math.ceil(decades / 8), out = [];
      for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) {
        for (const m of [1, 2, 5]) {
          const v = Number(`${m}e${e}`);
          if (v >= low && v <= high && ((m === 1 && e % every === 0) || decades < 2)) out.push(v);
        }
      }
      return out;
    };

    // ---- lines, time series and histograms ----

    const drawLines = (lists) => {
      // uPlot wants one list of x for all series: undefined is "nothing here", null a gap in the line.
      const rows = new Map();
      lists.forEach((list, i) => {
        const times = new Map();
        for (const p of list) {
          if (state.logX && p.x <= 0 && !columns(chart)) continue;
          const n = times.get(p.x) || 0;
          times.set(p.x, n + 1);
          const key = `${p.x}/${n}`;
          if (!rows.has(key)) rows.set(key, { x: p.x, n, values: new Array(lists.length) });
          rows.get(key).values[i] = p.y;
        }
      });
      const sorted = [...rows.values()].sort((a, b) => a.x - b.x || a.n - b.n);
      const data = [sorted.map((r) => r.x), ...lists.map((_, i) => sorted.map((r) => r.values[i]))];
      const edges = lists.flat().flatMap((p) => [p.x, ...(p.x_to != null ? [p.x_to] : [])]).concat(chart.marks && chart.marks.length && lists.flat().length ? chart.marks.flatMap((m) => [m.from, m.to]) : []);
      const [xLow, xHigh] = extent(edges, state.logX);
      const pad = columns(chart) ? 0 : 0.03;
      const xRange = state.logX
        ? [xLow / ((xHigh / xLow) ** pad || 1) / (xLow === xHigh ? 2 : 1), xHigh * ((xHigh / xLow) ** pad || 1) * (xLow === xHigh ? 2 : 1)]
        : [xLow - (xHigh - xLow || 1) * pad, xHigh + (xHigh - xLow || 1) * pad];
      const unit = unitOf(chart, state), range = yRange(chart, state, lists, 0);
      let first = true;
      return new uPlot({
        width, height: document.fullscreenElement === section ? Math.max(280, innerHeight - 220) : Math.round(Math.min(420, Math.max(280, width * 0.5))), legend: { show: false }, padding: [12, 14, 0, 0],
        cursor: { points: { show: false }, x: false, y: false, drag: { x: true, y: false } },
        scales: {
          x: { time: false, distr: state.logX ? 3 : 1, range: (_, low, high) => { const r = first || low == null || (low <= data[0][0] && high >= data[0][data[0].length - 1]) ? xRange : [low, high]; first = false; return r; } },
          y: { distr: state.logY ? 3 : 1, range: () => range },
        },
        axes: [valueAxis(chart.x, chart.x.unit || "", state.logX, { size: 34 }), valueAxis(chart.y, unit, state.logY, { size: 80 })],
        series: [{}, ...lists.map((_, i) => ({
          stroke: colour(i), width: ours(chart.series[i].name) ? 3.5 : 2, dash: dashes[Math.floor(i / palettes.light.length) % dashes.length],
          ...(columns(chart) ? { paths: () => null } : {}),
          points: { show: !columns(chart) && data[0].length <= 200, size: 7, fill: colour(i), stroke: colour(i) },
        }))],
        hooks: { drawAxes: [drawMarks], draw: [(u) => drawPoints(u, lists)] },
      }, data, holder);
    };

    const clipped = (u, paint) => {
      const ctx = u.ctx;
      ctx.save();
      ctx.beginPath();
      ctx.rect(u.bbox.left - 8 * devicePixelRatio, u.bbox.top - 8 * devicePixelRatio, u.bbox.width + 16 * devicePixelRatio, u.bbox.height + 8 * devicePixelRatio);
      ctx.clip();
      ctx.textAlign = "left"; // the axes leave it in the middle
      paint(ctx, devicePixelRatio);
      ctx.restore();
    };

    const drawMarks = (u) => clipped(u, (ctx, r) => {
      for (const mark of chart.marks || []) {
        if (state.logX && mark.from <= 0) continue;
        const a = u.valToPos(mark.from, "x", true), b = u.valToPos(mark.to, "x", true);
        ctx.fillStyle = css("--text");
        ctx.globalAlpha = 0.07;
        ctx.fillRect(a, u.bbox.top, Math.max(b - a, r), u.bbox.height);
        ctx.globalAlpha = 1;
        ctx.fillStyle = css("--soft");
        ctx.font = font(12 * r);
        ctx.textBaseline = "top";
        ctx.fillText(mark.label, a + 5 * r, u.bbox.top + 4 * r);
      }
    });

    const stroke = (ctx, x1, y1, x2, y2) => { ctx.beginPath(); ctx.moveTo(x1, y1); ctx.lineTo(x2, y2); ctx.stroke(); };
    const dot = (ctx, x, y, size, hollow) => {
      ctx.beginPath();
      ctx.arc(x, y, size, 0, 2 * Math.PI);
      if (hollow) ctx.stroke(); else ctx.fill();
    };
    const drawPoints = (u, lists) => {
      hits = [];
      clipped(u, (ctx, r) => lists.forEach((list, i) => {
        ctx.strokeStyle = ctx.fillStyle = colour(i);
        ctx.lineWidth = 1.4 * r;
        for (const p of list) {
          if (state.logX && p.x <= 0 && !columns(chart)) continue;
          const middle = columns(chart) ? (state.logX ? Math.sqrt(Math.max(p.x, 1e-300) * p.x_to) : (p.x + p.x_to) / 2) : p.x;
          const x = u.valToPos(middle, "x", true), foot = u.bbox.top + u.bbox.height;
          if (p.y === null) {
            const y = foot - 9 * r, k = 4 * r;
            stroke(ctx, x - k, y - k, x + k, y + k);
            stroke(ctx, x - k, y + k, x + k, y - k);
            hits.push({ i, p, x: u.valToPos(middle, "x"), y: u.bbox.height / r - 9 });
            continue;
          }
          const y = u.valToPos(p.y, "y", true);
          if (columns(chart)) {
            const a = u.valToPos(state.logX ? Math.max(p.x, u.scales.x.min) : p.x, "x", true), b = u.valToPos(p.x_to, "x", true);
            ctx.globalAlpha = lists.filter((l) => l.length).length > 1 ? 0.45 : 0.85;
            ctx.fillRect(a, y, Math.max(b - a - (b - a > 3 * r ? r : 0), r), foot - y);
            ctx.globalAlpha = 1;
          } else if (p.low != null && p.high != null && list.length <= 200) {
            const low = u.valToPos(state.logY ? Math.max(p.low, u.scales.y.min) : p.low, "y", true), high = u.valToPos(p.high, "y", true), k = 4 * r;
            stroke(ctx, x, low, x, high);
            stroke(ctx, x - k, low, x + k, low);
            stroke(ctx, x - k, high, x + k, high);
          }
          if (!columns(chart) && ours(p.of) && list.length <= 200) ctx.fillRect(x - 5 * r, y - 5 * r, 10 * r, 10 * r);
          if (p.invalid || p.outlier) dot(ctx, x, y, 7 * r, true);
          if (p.at_least) arrow(ctx, x, y - 9 * r, r, 0);
          if (state.rounds) {
            const far = outside(p.rounds || []);
            ctx.globalAlpha = 0.6;
            for (const v of p.rounds || []) if (!state.logY || v > 0) dot(ctx, x, u.valToPos(v, "y", true), 2.2 * r, far(v));
            ctx.globalAlpha = 1;
          }
          hits.push({ i, p, x: u.valToPos(middle, "x"), y: u.valToPos(p.y, "y") });
        }
      }));
      sortHits((a, b) => a.i - b.i || a.p.x - b.p.x);
    };
    // arrow says that the true value lies further out: up (0) or to the right (1).
    const arrow = (ctx, x, y, r, right) => {
      const k = 5 * r;
      ctx.beginPath();
      if (right) { ctx.moveTo(x + k * 1.5, y); ctx.lineTo(x, y - k); ctx.lineTo(x, y + k); } else { ctx.moveTo(x, y - k * 1.5); ctx.lineTo(x - k, y); ctx.lineTo(x + k, y); }
      ctx.fill();
    };

    // ---- bars ----

    const measure = document.createElement("canvas").getContext("2d");
    const fit = (text, room, face) => {
      measure.font = face;
      if (measure.measureText(text).width <= room) return text;
      let end = text.length;
      while (end > 1 && measure.measureText(text.slice(0, end) + "…").width > room) end--;
      return text.slice(0, end).trimEnd() + "…";
    };

    // wrap breaks a name at blanks into as many lines as fit; the last is cut.
    const wrap = (text, room, face) => {
      measure.font = face;
      const out = [];
      for (const word of text.split(" ")) {
        const longer = out.length ? `${out[out.length - 1]} ${word}` : word;
        if (out.length && (out.length === 4 || measure.measureText(longer).width <= room)) out[out.length - 1] = longer;
        else out.push(word);
      }
      return out.map((line) => fit(line, room, face));
    };
    const face = (label, r = 1) => font(12 * r, ours(label) ? "700" : "");

    const drawBars = (lists) => {
      const shown = lists.map((list, i) => ({ list, i })).filter((l) => !state.hidden.has(l.i));
      const labels = labelsOf(chart).filter((label) => shown.some((l) => l.list.some((p) => p.label === label)));
      const thick = shown.length > 1 ? 16 : 22, wide = (l) => { measure.font = face(l); return measure.measureText(signed(l)).width + 18; };
      const side = Math.min(Math.max(60, ...labels.map(wide)), width * 0.36);
      const names = labels.map((l) => wrap(signed(l), side - 14, face(l)));
      const row = Math.max(Math.max(1, shown.length) * thick, ...names.map((n) => n.length * 15)) + 16;
      const unit = unitOf(chart, state), range = yRange(chart, state, lists, 0.16);
      const axes = [
        { ...axisStyle(), side: 3, size: side, gap: 8, grid: { show: false }, ticks: { show: false }, splits: () => labels.map((_, i) => i), values: () => labels.map(() => "") },
        valueAxis(chart.y, unit, state.logY, { side: 2, size: 34, space: 70 }),
      ];
      return new uPlot({
        width, height: labels.length * row + 76, legend: { show: false }, padding: [6, 14, 0, 0],
        cursor: { points: { show: false }, x: false, y: false, drag: { x: false, y: false } },
        scales: {
          x: { time: false, ori: 1, dir: -1, range: () => [-0.5, Math.max(0.5, labels.length - 0.5)] },
          y: { ori: 0, dir: 1, distr: state.logY ? 3 : 1, range: () => range },
        },
        axes, series: [{}, { paths: () => null, points: { show: false } }],
        hooks: { draw: [(u) => paintNames(u, labels, names), (u) => paintBars(u, shown, labels, unit, thick)] },
      }, [labels.map((_, i) => i), labels.map(() => range[1])], holder);
    };

    const paintNames = (u, labels, names) => {
      const ctx = u.ctx, r = devicePixelRatio;
      ctx.save();
      ctx.textAlign = "right";
      ctx.textBaseline = "middle";
      labels.forEach((label, i) => {
        ctx.font = face(label, r);
        ctx.fillStyle = css(ours(label) ? "--text" : "--soft");
        names[i].forEach((line, n) => ctx.fillText(line, u.bbox.left - 8 * r, u.valToPos(i, "x", true) + (n - (names[i].length - 1) / 2) * 15 * r));
      });
      ctx.restore();
    };

    // paintSpread draws the box of a point, its whiskers and its median, and tells where it ends.
    const paintSpread = (u, ctx, r, p, i, middle, half) => {
      const at = (v) => u.valToPos(state.logY ? Math.max(v, u.scales.y.min) : v, "y", true);
      const s = p.spread, [a, from, to, b] = [at(s.p5), at(s.p25), Math.max(at(s.p75), at(s.p25) + r), at(s.p95)], k = 4 * r;
      ctx.globalAlpha = 1;
      ctx.strokeStyle = colour(i);
      ctx.lineWidth = 1.5 * r;
      stroke(ctx, a, middle, from, middle);
      stroke(ctx, to, middle, b, middle);
      stroke(ctx, a, middle - k, a, middle + k);
      stroke(ctx, b, middle - k, b, middle + k);
      ctx.globalAlpha = 0.5;
      ctx.fillRect(from, middle - half, to - from, 2 * half);
      ctx.globalAlpha = 1;
      if (ours(p.label) || ours(p.of)) { ctx.strokeStyle = css("--text"); ctx.lineWidth = 2 * r; }
      ctx.strokeRect(from, middle - half, to - from, 2 * half);
      ctx.strokeStyle = css("--text");
      ctx.lineWidth = 3 * r;
      stroke(ctx, at(p.y), middle - half, at(p.y), middle + half);
      return Math.max(to, b);
    };

    const paintBars = (u, shown, labels, unit, thick) => {
      hits = [];
      clipped(u, (ctx, r) => shown.forEach(({ list, i }, n) => {
        for (const p of list) {
          const middle = u.valToPos(labels.indexOf(p.label), "x", true) + (n - (shown.length - 1) / 2) * thick * r;
          const from = u.valToPos(Math.max(u.scales.y.min, state.logY ? u.scales.y.min : 0), "y", true), half = (thick / 2 - 1.5) * r;
          ctx.textBaseline = "middle";
          ctx.font = font(12 * r);
          if (p.y === null) {
            ctx.fillStyle = css("--soft");
            ctx.fillText(fit(`no figure: ${p.why}`, u.bbox.width - 12 * r, ctx.font), from + 6 * r, middle);
            hits.push({ i, p, x: 20, y: (middle - u.bbox.top) / r, wide: true });
            continue;
          }
          const to = u.valToPos(p.y, "y", true);
          ctx.fillStyle = colour(i);
          ctx.globalAlpha = p.invalid ? 0.35 : 0.85;
          let end = to;
          if (p.spread) end = paintSpread(u, ctx, r, p, i, middle, half);
          else if (state.logY) { // there is no zero that a bar could begin at: its length would mean nothing
            ctx.strokeStyle = css("--line");
            ctx.lineWidth = r;
            stroke(ctx, u.bbox.left, middle, u.bbox.left + u.bbox.width, middle);
            end += 5.5 * r;
          } else ctx.fillRect(from, middle - half, to - from, 2 * half);
          ctx.globalAlpha = 1;
          const own = ours(p.label) || ours(p.of);
          if (own && !state.logY && !p.spread) {
            ctx.strokeStyle = css("--text");
            ctx.lineWidth = 2 * r;
            ctx.strokeRect(from, middle - half, to - from, 2 * half);
          }
          ctx.strokeStyle = css("--text");
          ctx.lineWidth = 1.3 * r;
          if (p.low != null && p.high != null) {
            const low = u.valToPos(state.logY ? Math.max(p.low, u.scales.y.min) : p.low, "y", true), high = u.valToPos(p.high, "y", true), k = 4 * r;
            stroke(ctx, low, middle, high, middle);
            stroke(ctx, low, middle - k, low, middle + k);
            stroke(ctx, high, middle - k, high, middle + k);
            end = Math.max(end, high);
          }
          if (state.rounds) {
            const far = outside(p.rounds || []);
            ctx.fillStyle = css("--text");
            ctx.globalAlpha = 0.55;
            (p.rounds || []).forEach((v, k) => { if (!state.logY || v > 0) { const x = u.valToPos(v, "y", true); end = Math.max(end, x); dot(ctx, x, middle + ((k % 3) - 1) * 3 * r, 2 * r, far(v)); } });
            ctx.globalAlpha = 1;
          }
          if (state.logY && !p.spread) {
            ctx.fillStyle = colour(i);
            ctx.globalAlpha = p.invalid ? 0.35 : 1;
            if (own) ctx.fillRect(to - 6 * r, middle - 6 * r, 12 * r, 12 * r); else dot(ctx, to, middle, 5.5 * r, false);
            ctx.globalAlpha = 1;
          }
          ctx.fillStyle = css("--text");
          if (p.at_least) { arrow(ctx, end + 4 * r, middle, r, 1); end += 11 * r; }
          const sign = p.at_least && p.at_most ? "~ " : p.at_least ? "≥ " : p.at_most ? "≤ " : "";
          ctx.font = font(12 * r, "600");
          // Beside the bar where there is room, else inside the chart on a ground of its own.
          const value = sign + print(p.y, unit, 3, true), size = ctx.measureText(value).width, right = u.bbox.left + u.bbox.width;
          const low = Math.min(to, p.low != null ? u.valToPos(p.low, "y", true) : to);
          let place = end + 7 * r;
          if (place + size > right) {
            place = Math.max(u.bbox.left + 4 * r, Math.min(right, low - 8 * r) - size);
            ctx.fillStyle = css("--back");
            ctx.globalAlpha = 0.88;
            ctx.fillRect(place - 3 * r, middle - 7.5 * r, size + 6 * r, 15 * r);
            ctx.globalAlpha = 1;
            ctx.fillStyle = css("--text");
          }
          ctx.fillText(value, place, middle);
          hits.push({ i, p, x: u.valToPos(p.y, "y"), y: (middle - u.bbox.top) / r, wide: true });
        }
      }));
      sortHits((a, b) => a.y - b.y);
    };

    // ---- reading values ----

    const sortHits = (order) => { hits.sort(order); at = -1; };
    const hover = (x, y, target) => {
      if (target !== plot.over) return;
      let best = -1, least = Infinity;
      hits.forEach((h, k) => {
        const d = h.wide ? Math.abs(h.y - y) : columns(chart) ? Math.abs(h.x - x) : Math.hypot(h.x - x, h.y - y);
        if (d < least) { least = d; best = k; }
      });
      if (best < 0 || least > (bars(chart) ? 24 : 48)) { hideTip(); return; }
      show(best);
    };
    const hideTip = () => { tip.hidden = true; at = -1; };

    const lines = (p) => {
      const unit = unitOf(chart, state), out = [];
      const where = bars(chart) ? p.label : `${chart.x.label || "x"} ${print(p.x, chart.x.unit || "", 6)}${p.x_to != null ? ` to ${print(p.x_to, chart.x.unit || "", 6)}` : ""}`;
      out.push(["soft", where + (!bars(chart) && p.label ? `, ${p.label}` : "")]);
      if (p.y === null) {
        out.push(["value", "no figure"], ["soft", p.why || "not measured"]);
        return out;
      }
      const sign = p.at_least && p.at_most ? "about " : p.at_least ? "at least " : p.at_most ? "at most " : "";
      out.push(["value", sign + print(p.y, unit, 4)]);
      if (p.spread) out.push(["soft", `half from ${print(p.spread.p25, unit, 4)} to ${print(p.spread.p75, unit, 4)}`], ["soft", `nine of ten from ${print(p.spread.p5, unit, 4)} to ${print(p.spread.p95, unit, 4)}`]);
      else out.push(["soft", p.low != null && p.high != null ? `${state.base === null ? "95 % interval" : "interval"} ${print(p.low, unit, 4)} to ${print(p.high, unit, 4)}` : "no interval"]);
      const far = outside(p.rounds || []);
      const n = (p.rounds || []).length, odd = (p.rounds || []).filter(far).length;
      if (n > 1) out.push(["soft", `${n} rounds${odd ? `, ${odd} of them ${odd === 1 ? "an outlier" : "outliers"}, kept` : ""}`]);
      if (p.outlier) out.push(["soft", "an outlier, kept"]);
      if (p.invalid || p.why) out.push(["soft", p.why || "breaks a rule of the measurement"]);
      return out;
    };

    const show = (k) => {
      at = k;
      const h = hits[k], swatch = element("span", { class: "swatch" });
      swatch.style.background = colour(h.i);
      const text = lines(h.p);
      tip.replaceChildren(element("strong", {}, swatch, signed(h.p.of)), ...text.map(([c, t]) => element("div", { class: c }, t)));
      tip.hidden = false;
      const w = plot.over.clientWidth, left = h.x + 14 + tip.offsetWidth > w ? h.x - 14 - tip.offsetWidth : h.x + 14;
      tip.style.left = `${Math.max(0, Math.min(left, w - tip.offsetWidth))}px`;
      tip.style.top = `${Math.max(-8, h.y - tip.offsetHeight - 10)}px`;
    };

    const read = () => {
      const h = hits[at];
      reader.textContent = [h.p.of, ...lines(h.p).map(([, t]) => t)].join(", ");
    };
    holder.addEventListener("keydown", (e) => {
      if (!hits.length) return;
      let next = at;
      switch (e.key) {
        case "ArrowRight": case "ArrowDown": next = Math.min(hits.length - 1, at + 1); break;
        case "ArrowLeft": case "ArrowUp": next = Math.max(0, at - 1); break;
        case "Home": next = 0; break;
        case "End": next = hits.length - 1; break;
        case "Escape": hideTip(); return;
        default: return;
      }
      e.preventDefault();
      show(next);
      read();
    });
    holder.addEventListener("blur", hideTip);

    controlsOnce();
    draw();
    views.set(chart.id, { state, initial, chart, apply: () => { appliers.forEach((put) => put()); draw(); } });
    section.addEventListener("fullscreenchange", draw);
    night.addEventListener("change", draw);
    new ResizeObserver(() => { if (Math.abs(Math.max(260, Math.floor(holder.clientWidth)) - width) > 1) draw(); }).observe(holder);
  };

  // ---- tables and the command ----

  document.querySelectorAll("table.sortable").forEach((table) => {
    const body = table.tBodies[0];
    table.querySelectorAll("thead th").forEach((head, column) => {
      const button = element("button", { type: "button" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        table.querySelectorAll("thead th").forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => { const c = row.cells[column]; return c.dataset.value !== undefined ? Number(c.dataset.value) : null; };
        const rows = [...body.rows].sort((a, b) => {
          const x = key(a), y = key(b);
          if (x === null && y === null) return a.cells[column].textContent.localeCompare(b.cells[column].textContent) * (down ? -1 : 1);
          if (x === null || y === null) return x === null ? 1 : -1; // words, and what is missing, come last
          return (x - y) * (down ? -1 : 1);
        });
        body.append(...rows);
      });
    });
  });

  const copy = document.getElementById("copy");
  if (copy && navigator.clipboard) {
    copy.hidden = false;
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(doc.command);
        copy.textContent = "Copied";
      } catch {
        copy.textContent = "Select it to copy";
      }
    });
  }

  doc.charts.forEach((chart) => {
    const section = [...document.querySelectorAll("section.chart")].find((s) => s.dataset.chart === chart.id);
    if (section && chart.series.length) build(chart, section);
  });
  restore();
  window.addEventListener("hashchange", restore);
  document.documentElement.dataset.ready = "true";
})();
