// What happens, as it happens: the newest first, at most 300.
import * as api from "./api.js";
import { $, el, said } from "./dom.js";
import { clock, plain, unix } from "./format.js";

const most = 300, all = [];
let paused = false, waits = false, refused = false, close = null;

const summary = (e) => {
  if (e.text) return e.text;
  const { id, at, time, kind, type, ...rest } = e;
  return Object.entries(rest).filter(([, v]) => v !== "" && v !== null && typeof v !== "object").map(([k, v]) => `${k} ${v}`).join(", ");
};
const draw = () => {
  waits = false;
  const want = $("events-filter").value.trim().toLowerCase();
  const list = $("events").querySelector("ol");
  const rows = all.filter((e) => !want || e.words.includes(want)).map((e) => e.row);
  const empty = (text) => el("li", { class: "empty" }, text);
  if (refused) rows.unshift(empty(`No event comes: the agent, or a proxy in front of it, refuses to send any, as to the ninth page of a token. It is asked again every ${api.askAgain} seconds.`));
  list.replaceChildren(...(rows.length ? rows : [empty(all.length ? "No event has these words." : "No event yet: changes of sets, leases, rules and incidents stand here as they come.")]));
};
const soon = () => { if (!waits && !paused) { waits = true; requestAnimationFrame(draw); } };
const add = (e) => {
  const at = e.at || e.time, kind = plain(e.kind || e.type || "event"), text = summary(e);
  const row = el("li", {}, el("time", { datetime: plain(at) }, at ? clock(unix(at)) : ""), el("span", {}, el("span", { class: "kind" }, kind), said(text)));
  all.unshift({ row, words: `${kind} ${text}`.toLowerCase() });
  all.length = Math.min(all.length, most);
  soon();
};
export const start = () => {
  close?.();
  close = api.events(add, (now) => { if (now !== refused) { refused = now; draw(); } });
  draw();
};
export const stop = () => { close?.(); close = null; };
$("events-filter").addEventListener("input", draw);
$("events-pause").addEventListener("click", () => {
  paused = !paused;
  $("events-pause").setAttribute("aria-pressed", String(paused));
  $("events-pause").textContent = paused ? "Go on" : "Pause";
  if (!paused) draw();
});
