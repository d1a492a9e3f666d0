// Incidents as stories: what was before, what was seen, what was done, what it cost the good traffic, what became of it.
import * as api from "./api.js";
import { $, ask, el, empty, replace, said } from "./dom.js";
import { duration, moment, number, percent, plain, unix, whole } from "./format.js";
import { title, watching } from "./health.js";

const states = { open: "going on", ended: "over", undone: "undone", proposed: "proposed", observed: "observed" };
let may = false, list = [], watched = [], after = () => {};
export const allow = (yes) => { may = yes; };
export const onAct = (f) => { after = f; };
export const open = () => list.filter((i) => i.state === "open").length;
const proposed = () => list.filter((i) => i.state === "proposed").length;
// unwatched tells whether a flood could be there that nobody would see.
export const unwatched = () => { const w = watching(watched); return !w.looks.length || w.not.some((p) => p.kind === "detector" || p.kind === "policy"); };
const none = () => { const w = watching(watched); return !w.looks.length ? "nobody looks" : unwatched() ? "not looked for everywhere" : "none going on"; };
export const summary = () => [open() ? `${open()} going on` : none(), proposed() ? `${proposed()} proposed` : ""].filter(Boolean).join(", ");

const step = (title, when, ...what) => el("li", {}, el("span", { class: "step" }, title), when ? el("time", { datetime: when }, moment(unix(when), 1)) : null, " ", ...what);
const rates = (o) => `${number(o.packets_per_second, "packets/s")}, ${number(o.bits_per_second, "bit/s")}`;

const story = (i) => {
  const out = [], s = i.seen || {}, c = i.collateral;
  if (i.before) out.push(step("Before", null, rates(i.before)));
  out.push(step("Seen", i.detected || i.began, `${rates(s)} of ${plain(s.words || s.kind || "")}`, s.destination ? [" to ", said(s.destination)] : null,
    s.threshold ? `, where ${number(s.threshold, "/s")} is ${s.learned ? "the most that is usual" : "the threshold"}` : "",
    s.sources ? `; ${whole(s.sources)} sources${s.forged_sources ? ", which are forged" : ""}` : "",
    s.peak_packets_per_second ? `; at most ${number(s.peak_packets_per_second, "packets/s")}` : "", "."));
  const rules = (i.rules || []).map((r) => el("li", {}, el("pre", { tabindex: "0" }, said(r.rule)),
    el("span", { class: "quiet" }, `${plain(r.state)}${r.why ? `: ${plain(r.why)}` : ""}; dropped ${number(r.packets || 0, "packets")}, ${number((r.bytes || 0), "B")}; covers ${percent(r.coverage)} of the flood`)));
  if (rules.length) out.push(step(i.acted ? "Done" : i.state === "proposed" ? "Proposed" : "Found", i.acted, i.acted && i.detected ? `${duration(unix(i.acted) - unix(i.detected))} after it was seen` : "", el("ul", {}, rules)));
  else out.push(step("Done", null, "nothing"));
  if (c) out.push(step("Collateral", null, `predicted ${percent(c.predicted)}${c.at_most !== undefined ? `, at most ${percent(c.at_most)}` : ""} of the good packets${c.good_packets ? ` (of ${whole(c.good_packets)} seen)` : ""}; measured ${c.measured === undefined || c.measured === null ? "not yet" : percent(c.measured)}.`));
  if (i.state === "undone") out.push(step("Undone", i.closed, "by an operator; its pattern stays out for an hour."));
  else if (i.closed) out.push(step("Undone", i.closed, `the rules are gone${i.ended ? `, ${duration(unix(i.closed) - unix(i.ended))} after the flood` : ""}.`));
  else if (i.ended) out.push(step("Over", i.ended, "the traffic is as before; the rules go soon."));
  for (const n of i.notes || []) out.push(step("Note", null, said(n)));
  return out;
};

// shares are values with the part of the packets that has them, the largest first; a word alone says that they are too many.
const shares = (v, most = 5) => {
  if (v === null || v === undefined) return "–";
  if (typeof v !== "object") return plain(v);
  const all = Object.entries(v).sort((a, b) => b[1] - a[1]), text = all.slice(0, most).map(([k, n]) => `${plain(k)} ${percent(n)}`).join(", ");
  return all.length > most ? `${text}, ${all.length - most} more` : text || "–";
};
// where says which countries the sources are in. Nothing is said where the agent was given no file.
const named = new Intl.DisplayNames(["en"], { type: "region", fallback: "code" });
const country = (code) => { try { return named.of(code); } catch { return code; } };
const where = (c) => {
  if (!c.file) return c.why && !/--countries/.test(c.why) ? el("p", { class: "quiet" }, "Countries: ", said(c.why)) : null;
  const names = Object.fromEntries(Object.entries(c.shares || {}).map(([code, share]) => [country(code), share]));
  return el("p", {}, `${c.forged ? "The sources are forged; whom they name is in" : "From"} `, said(shares(names, 8)), c.unknown ? `; unknown ${percent(c.unknown)}` : "",
    el("span", { class: "quiet" }, ` (${plain(c.file)}${c.built ? ` of ${plain(c.built.slice(0, 10))}` : ""})`));
};
// made says what an incident is made of, from its fingerprint.
const made = async (i, holder) => {
  try {
    const [f, c] = await Promise.all([api.fingerprint(i.id), api.countries(i.id)]), heads = ["Packets", "Share", "To port", "From port", "Bytes", "TTL", "Sources"];
    const rows = (f.attack_vectors || []).map((v) => el("tr", {}, el("th", { scope: "row" }, said([v.service, v.protocol].filter(Boolean).join(", "))), el("td", { class: "num" }, percent(v.fraction_of_attack)),
      el("td", {}, shares(v.destination_ports)), el("td", {}, shares(v.source_port)), el("td", {}, shares(v.frame_len, 3)), el("td", {}, shares(v.ttl, 3)), el("td", {}, said((v.source_ips || []).slice(0, 5).join(", ")), (v.source_ips || []).length > 5 ? `, ${whole(v.source_ips.length - 5)} more` : "")));
    if (!rows.length) { replace(holder, el("p", { class: "quiet" }, "No packet of it was kept.")); return; }
    replace(holder, el("p", {}, "To ", said(f.target || "–"), "; shares are of the packets that were kept."), where(c), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `What incident ${plain(i.id)} is made of` },
      el("table", {}, el("thead", {}, el("tr", {}, heads.map((h) => el("th", { scope: "col" }, h)))), el("tbody", {}, rows))));
  } catch (err) { replace(holder, el("p", { class: "error" }, plain(err.message))); }
};

// swatch shows the kind of a flood in the colour of its row in the agent's table; one of a later version has none.
const swatch = (i) => el("span", { class: "swatch", "aria-hidden": "true", title: plain((i.seen || {}).words || ""), colour: `var(--kind-${plain((i.seen || {}).kind || "").replace(/[^a-z]/g, "")}, var(--soft))` });
const card = (i) => {
  const buttons = [], rules = (i.rules || []).filter((r) => r.state !== "gone" && r.state !== "refused").map((r) => r.rule).join("\n");
  const act = (what, title, text, yes) => {
    const b = el("button", { type: "button", "data-key": `${what} ${i.id}`, class: what === "apply" ? "main" : null, disabled: !may, title: may ? null : "needs a token of the role operator" }, yes);
    b.addEventListener("click", () => ask(title, text, yes, rules, async () => { await api.act(i.id, what); await load(); after(); }));
    buttons.push(b);
  };
  if (i.state === "open" && (i.rules || []).some((r) => r.state === "live" || r.state === "loosened")) act("undo", `Undo incident ${plain(i.id)}?`, "Its rules leave the kernel at once, and the pattern stays out for an hour. The flood, if it goes on, reaches the services again.", "Undo");
  if (i.state === "proposed") act("apply", `Apply what incident ${plain(i.id)} proposes?`, "These rules come into force at once, and leave by themselves when the flood is over.", "Apply");
  const file = (what, name, text) => el("a", { class: "file", href: `api/v1/incidents/${encodeURIComponent(i.id)}/${what}`, download: name }, text);
  if (may) buttons.push(file("packets", `incident-${i.id.replace(/\W/g, "")}.pcapng`, "Packets"));
  buttons.push(file("fingerprint", `incident-${i.id.replace(/\W/g, "")}.json`, "Fingerprint"));
  const long = i.state !== "open" && i.state !== "proposed";
  const head = [swatch(i), el("h3", {}, `${plain(i.detector)} ${plain(i.id)}`), el("span", { class: "badge" }, states[i.state] || plain(i.state)), el("span", { class: "quiet" }, `${moment(unix(i.began), 60)}, ${plain(i.dev)}, ${i.ended ? duration(unix(i.ended) - unix(i.began)) : "until now"}`)];
  const body = el("ol", { class: "story" }, story(i)), parts = el("div");
  const of = el("details", { "data-key": `made ${i.id}` }, el("summary", {}, "What it is made of"), parts);
  of.addEventListener("toggle", () => { if (of.open) made(i, parts); });
  return el("article", { class: "incident", "data-state": i.state, "data-id": i.id }, el("div", { class: "top" }, head), el("p", { class: "sentence" }, said(i.sentence)),
    long ? el("details", { "data-key": `story ${i.id}` }, el("summary", {}, "The story"), body) : body, of, buttons.length ? el("p", { class: "actions" }, buttons) : null);
};

// notices say where nobody looks.
const notices = () => watching(watched).not.map((p) => el("p", { class: "unwatched" }, el("strong", {}, said(title(p)), p.state === "waits" ? " waits" : " does not work"), ` since ${moment(unix(p.since))}: `, said(p.error), p.do ? [el("br"), "To do: ", said(p.do)] : null));
const nothing = () => {
  const w = watching(watched), story = "When a detector of the policy sees a flood, its story stands here: what was before, what was seen and done, what it cost the good traffic, and how it ended.";
  if (!w.any) return empty("Nobody looks for floods", "No policy in force says detect. ", story);
  if (!w.looks.length) return empty("Nobody looks for floods at this moment", story);
  return empty("No flood was seen", ...w.looks.map((p) => el("span", {}, said(title(p)), ` has looked since ${moment(unix(p.since))}. `)), story);
};

let shown = "";
export const load = async () => {
  const got = await api.incidents();
  watched = got.watched || [];
  list = (got.incidents || []).slice().sort((a, b) => unix(b.began) - unix(a.began)).slice(0, 100);
  const rank = (i) => (i.state === "open" ? 0 : i.state === "proposed" ? 1 : 2);
  list.sort((a, b) => rank(a) - rank(b));
  const text = JSON.stringify([list, may, watched.map((p) => [p.kind, p.name, p.dev, p.state, p.since, p.error, p.do])]);
  if (text === shown) return;
  shown = text;
  const holder = $("incidents").querySelector(".list"), opened = new Set([...holder.querySelectorAll("details[open]")].map((d) => d.dataset.key)), top = holder.scrollTop;
  $("incidents-count").textContent = list.length ? `${summary()}, ${list.length} in all` : summary();
  replace(holder, notices(), list.length ? list.map(card) : nothing());
  for (const d of holder.querySelectorAll("details")) d.open = opened.has(d.dataset.key);
  holder.scrollTop = top;
};
