// The parts of the agent: which work, since when, what they saw last; why others do not, and what to do.
import * as api from "./api.js";
import { $, el, empty, replace, said } from "./dom.js";
import { duration, moment, plain, unix } from "./format.js";

let list = [];
export const failing = () => list.filter((p) => p.state === "fails");
export const all = () => list;
// title names a part in a sentence.
export const title = (p) => [p.kind, p.name, p.dev ? `on ${p.dev}` : ""].filter(Boolean).join(" ");
const names = { works: "works", waits: "waits", fails: "fails" };

// watching says where somebody looks for floods, of the parts that an answer about incidents names.
export const watching = (watched) => {
  const looks = (watched || []).filter((p) => p.kind === "detector" && p.state === "works");
  return { looks, not: (watched || []).filter((p) => p.state !== "works"), any: (watched || []).length > 0 };
};

const row = (p) => {
  const about = [];
  if (p.state === "works") about.push(p.last ? [said(p.saw), el("span", { class: "quiet" }, `${p.saw ? ", " : ""}${duration(Date.now() / 1000 - unix(p.last))} ago`)] : el("span", { class: "quiet" }, "nothing yet"));
  else about.push(el("p", {}, said(p.error)));
  if (p.do) about.push(el("p", {}, el("strong", {}, "To do "), said(p.do)));
  if (p.state === "works" && p.last_error) about.push(el("p", { class: "quiet" }, `Failed last at ${moment(unix(p.last_failed))}: `, said(p.last_error)));
  return el("tr", { "data-state": p.state }, el("td", {}, el("span", { class: "badge" }, names[p.state] || plain(p.state))), el("th", { scope: "row" }, said(title(p))), el("td", { class: "num" }, moment(unix(p.since))), el("td", { class: "grow" }, about.flat()));
};

const rank = { fails: 0, waits: 1, works: 2 };
export const load = async () => {
  list = ((await api.parts()).parts || []).slice().sort((a, b) => (rank[a.state] ?? 0) - (rank[b.state] ?? 0));
  const bad = failing().length;
  $("health-count").textContent = !list.length ? "" : bad ? `${bad} of ${list.length} ${bad === 1 ? "does" : "do"} not work` : `all ${list.length} work or wait`;
  if (!list.length) { replace($("health").querySelector(".body"), empty("The agent names no part")); return; }
  replace($("health").querySelector(".body"), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Parts and their states" },
    el("table", {}, el("thead", {}, el("tr", {}, ["", "Part", "Since", "Last"].map((h) => el("th", { scope: "col" }, h || el("span", { class: "hidden" }, "State"))))), el("tbody", {}, list.map(row)))));
};
