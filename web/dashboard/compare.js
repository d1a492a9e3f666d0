// Any two series over each other, a point for each time in the range of the chart.
import { Scatter } from "./chart.js";
import { $, css, el } from "./dom.js";
import { duration, plain } from "./format.js";
import * as traffic from "./traffic.js";

let scatter, chosen = [null, null], known = "";
export const draw = () => {
  const answer = traffic.current();
  if (!answer) return;
  scatter ??= new Scatter($("scatter"));
  const all = answer.series, key = JSON.stringify(all.map((s) => [s.key, traffic.nameOf(s)]));
  const selects = [$("compare-x"), $("compare-y")];
  if (key !== known) {
    known = key;
    selects.forEach((select, i) => {
      select.replaceChildren(...all.map((s) => el("option", { value: s.key }, plain(traffic.nameOf(s)))));
      if (!all.some((s) => s.key === chosen[i])) chosen[i] = all[Math.min(i, all.length - 1)]?.key ?? null;
      if (chosen[i] !== null) select.value = chosen[i];
      select.onchange = () => { chosen[i] = select.value; draw(); };
    });
  }
  const [x, y] = chosen.map((k) => all.find((s) => s.key === k));
  const [from, to] = traffic.view(), points = [];
  if (x && y) {
    for (let i = 0; i < answer.points; i++) {
      const t = answer.from + i * answer.step;
      if (t + answer.step > from && t < to && x.values[i] === x.values[i] && y.values[i] === y.values[i]) points.push([x.values[i], y.values[i]]);
    }
  }
  const n = points.length, r = correlation(points), unit = traffic.unit();
  scatter.show(points, { x: x ? `${plain(traffic.nameOf(x))}, ${unit}` : "", y: y ? `${plain(traffic.nameOf(y))}, ${unit}` : "", colour: `color-mix(in srgb, ${css("--accent")} 55%, transparent)`, edge: css("--accent") });
  const what = `${n} points of ${duration(answer.step)}`;
  $("compare-note").textContent = n < 3 ? "" : r === null ? `${what}; one of the two never changes.` : `${what}. Correlation ${r.toFixed(2)}${Math.abs(r) < 0.3 ? ": they have little to do with each other" : r > 0.7 ? ": they rise together" : r < -0.7 ? ": one rises as the other falls" : ""}.`;
  $("scatter").setAttribute("aria-label", `Scatter of two series. ${$("compare-note").textContent}`);
};
const correlation = (p) => {
  const n = p.length, mean = (i) => p.reduce((a, q) => a + q[i], 0) / n, mx = mean(0), my = mean(1);
  let xy = 0, xx = 0, yy = 0;
  for (const [x, y] of p) { xy += (x - mx) * (y - my); xx += (x - mx) ** 2; yy += (y - my) ** 2; }
  return xx > 0 && yy > 0 ? xy / Math.sqrt(xx * yy) : null;
};
