// The policy in force, line by line, with what each counted and costs; and what a shadow would do otherwise.
import * as api from "./api.js";
import { $, el, empty, meter, replace, said, verdict } from "./dom.js";
import { duration, number, percent, plain, unix, whole } from "./format.js";

let before = null;
const rate = (slot, at) => {
  const b = before?.slots.get(slot.id);
  return b && at > before.at && slot.packets >= b ? (slot.packets - b) / (at - before.at) : null;
};

export const load = async (dev) => {
  const body = $("policy").querySelector(".body");
  if (!dev) {
    $("policy-what").textContent = "";
    replace(body, empty("No policy is in force", "Put one in force with ", el("code", {}, "levee up edge.levee --dev eth0"), "; ", el("code", {}, "levee init"), " drafts one that keeps what this machine uses."));
    return;
  }
  const p = await api.policy(dev), at = Date.now() / 1000;
  if (before && before.dev !== dev) before = null;
  const most = Math.max(1, ...p.slots.map((s) => s.packets)), sum = p.slots.filter((s) => s.verdict).reduce((a, s) => a + s.packets, 0);
  const byLine = new Map();
  for (const s of p.slots) if (s.line > 0) byLine.set(s.line, [...(byLine.get(s.line) || []), s]);
  $("policy-what").textContent = `${plain(p.policy)} on ${plain(p.dev)}, ${plain(p.hook)}, for ${duration(at - unix(p.since))}${p.trial_seconds ? `; on trial, ${duration(p.trial_seconds)} left to confirm` : ""}`;
  const figures = (s) => [
    el("td", { class: "num" }, s ? number(s.packets) : ""), el("td", { class: "num" }, s && rate(s, at) !== null ? number(rate(s, at), "/s") : ""),
    el("td", { class: "bars optional" }, s ? meter(s.packets / most, { class: `meter v-${s.verdict || "none"}` }) : ""), el("td", { class: "num optional" }, s && s.ns ? `${Math.round(s.ns)} ns` : "")];
  const lines = p.lines.map((text, i) => {
    const slots = byLine.get(i + 1) || [];
    const s = slots.length ? slots.reduce((a, b) => ({ ...a, packets: a.packets + b.packets, ns: Math.max(a.ns || 0, b.ns || 0) })) : null;
    return el("tr", { class: s ? "counted" : null }, el("td", { class: "ln" }, String(i + 1)), el("td", { class: `text${/^\s*#/.test(text) ? " comment" : ""}` }, said(text)), figures(s));
  });
  const head = el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "num" }, el("span", { class: "hidden" }, "Line")), el("th", { scope: "col" }, "Rule"), el("th", { scope: "col", class: "num" }, "packets"), el("th", { scope: "col", class: "num" }, "now"), el("th", { scope: "col", class: "optional" }, el("span", { class: "hidden" }, "Compared")), el("th", { scope: "col", class: "num optional" }, "cost")));
  const more = p.slots.filter((s) => !s.line && s.packets > 0);
  const built = more.length ? [el("h3", {}, "Besides the lines"), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Built-in and live rules" }, el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Rule"), el("th", { scope: "col" }, "Verdict"), el("th", { scope: "col", class: "num" }, "packets"), el("th", { scope: "col", class: "num" }, "now"))),
    el("tbody", {}, more.map((s) => el("tr", {}, el("th", { scope: "row", class: "grow" }, said(s.text || s.label || s.rule)), el("td", {}, verdict(s.verdict)), el("td", { class: "num" }, number(s.packets)), el("td", { class: "num" }, rate(s, at) !== null ? number(rate(s, at), "/s") : ""))))))] : [];
  replace(body, shadow(p, sum), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The policy, line by line" }, el("table", { class: "source" }, head, el("tbody", {}, lines))), ...built,
    el("p", { class: "note" }, "Costs are the planner's estimate for a packet that the rule decides; levee cost measures them."));
  if (!before || at - before.at > 4) before = { dev, at, slots: new Map(p.slots.map((s) => [s.id, s.packets])) };
};

const shadow = (p) => {
  const s = p.shadow;
  if (!s) return null;
  const pairs = s.pairs.filter((x) => x.differs);
  const decision = (d) => [verdict(d.verdict), " ", said(d.text || d.label || d.rule)];
  return el("div", {}, el("h3", {}, "What the shadow ", said(s.policy), " would change"),
    el("p", { class: "quiet" }, `${whole(s.differ)} of ${whole(s.packets)} packets (${percent(s.packets ? s.differ / s.packets : NaN)}) would have had another verdict, since ${duration(Date.now() / 1000 - unix(s.since))} ago.`),
    pairs.length ? el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Decisions that differ" }, el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "In force"), el("th", { scope: "col" }, "Shadow"), el("th", { scope: "col", class: "num" }, "packets"))),
      el("tbody", {}, pairs.slice(0, 50).map((x) => el("tr", {}, el("td", {}, decision(x.in_force)), el("td", {}, decision(x.shadow)), el("td", { class: "num" }, number(x.packets))))))) : el("p", { class: "note" }, "No verdict differs so far."));
};
