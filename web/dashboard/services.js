// Services that have a policy of their own (levee wrap): whether it is in force, and what its rules count.
import { $, el, replace, said, verdict } from "./dom.js";
import { duration, number, plain, unix } from "./format.js";

const most = 50, mostRules = 200;
let before = { at: 0, counts: new Map() };

const table = (s, rate) => {
  const rules = s.rules.filter((r) => r.packets > 0 || r.line > 0).slice(0, mostRules);
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `The policy of ${plain(s.service)}` }, el("table", {},
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Rule"), el("th", { scope: "col" }, "Verdict"), el("th", { scope: "col", class: "num" }, "packets"), el("th", { scope: "col", class: "num" }, "now"))),
    el("tbody", {}, rules.map((r) => el("tr", {}, el("th", { scope: "row", class: "grow" }, said(r.text || r.label || r.rule)), el("td", {}, verdict(r.verdict)), el("td", { class: "num" }, number(r.packets)), el("td", { class: "num" }, rate(s, r)))))));
};

// show takes what GET /api/v1/interfaces says of services.
export const show = (services) => {
  const box = $("services"), at = Date.now() / 1000, list = services.slice(0, most), counts = new Map();
  box.hidden = !services.length;
  box.querySelector("summary").textContent = `Services with a policy of their own (${services.length})`;
  const rate = (s, r) => {
    const key = `${s.service} ${r.verdict} ${r.rule} ${r.label}`, was = before.counts.get(key);
    counts.set(key, r.packets);
    return was !== undefined && r.packets >= was && at > before.at ? number((r.packets - was) / (at - before.at), "/s") : "";
  };
  replace(box.querySelector(".body"), list.flatMap((s) => [el("h3", {}, said(s.service)),
    el("p", { class: "quiet" }, `${plain(s.policy)}, at its ${s.hook === "socket" ? "sockets" : "cgroup"}, for ${duration(at - unix(s.since))}${s.in_force ? "" : `; not in force: ${plain(s.why)}`}`),
    table(s, rate)]), services.length > most ? [el("p", { class: "note" }, `${services.length - most} more: levee status lists all.`)] : []);
  before = { at, counts };
};
