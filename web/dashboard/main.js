// The page as a whole: log in, load, keep up, lose the agent and find it again, keys.
import * as api from "./api.js";
import * as compare from "./compare.js";
import { $, el, replace, said } from "./dom.js";
import * as events from "./events.js";
import { duration, number, plain, unix } from "./format.js";
import * as health from "./health.js";
import * as held from "./held.js";
import * as incidents from "./incidents.js";
import * as policy from "./policy.js";
import * as rules from "./rules.js";
import * as services from "./services.js";
import * as sets from "./sets.js";
import * as traffic from "./traffic.js";

// ---- the connection ----

let lostAt = null, retry = 1;
const link = (state, text) => {
  const l = $("link");
  if (l.dataset.state === state && l.lastElementChild.textContent === text) return;
  l.dataset.state = state;
  l.lastElementChild.textContent = text;
};
const fail = (err) => {
  if (!err) {
    lostAt = null;
    retry = 1;
    link("live", "Connected");
    return;
  }
  if (err.status === 401) { login(); return; }
  lostAt ??= Date.now();
  link("lost", err.status ? `Trouble: ${plain(err.message)}` : `No answer for ${duration((Date.now() - lostAt) / 1000)}`);
};

// ---- what is asked again and again; each task waits for its answer, and longer while there is none ----

const tasks = [];
let running = false;
const every = (seconds, what) => tasks.push({ seconds, what, timer: 0, busy: false });
const run = async (t) => {
  clearTimeout(t.timer);
  if (!running || t.busy) return;
  t.busy = true;
  let wait = t.seconds;
  try {
    if (!document.hidden) { await t.what(); if (lostAt !== null) fail(null); }
  } catch (err) {
    if (err.status === 404) t.gone = true; // this agent has no such thing
    else { fail(err); retry = Math.min(30, retry * 1.4); wait = Math.max(wait, retry); }
  } finally { t.busy = false; }
  if (running) t.timer = setTimeout(() => run(t), (t.gone ? 60 : wait) * 1000);
};
const runAll = () => tasks.forEach(run);
document.addEventListener("visibilitychange", () => { if (!document.hidden && running) runAll(); });

let devs = null;
const interfaces = async () => {
  const all = await api.policies();
  devs = all.interfaces.map((i) => i.dev);
  services.show(all.services || []);
  const select = $("dev"), want = traffic.state.dev;
  const options = [el("option", { value: "" }, devs.length === 1 ? plain(devs[0]) : "all"), ...(devs.length > 1 ? devs : []).map((d) => el("option", { value: d }, plain(d)))];
  if (want && devs.length > 0 && !(devs.length > 1 && devs.includes(want))) options.push(el("option", { value: want }, plain(want)));
  replace(select, options);
  select.value = want;
  select.disabled = devs.length < 2;
};
const policyNow = async () => {
  if (!devs) await interfaces();
  await policy.load(traffic.state.dev || devs[0] || "");
};
let agent = null;
const status = async () => {
  agent = await api.status();
  held.told(agent.lists);
  // What does not work comes first, and stays until it does.
  const all = (agent.alarms || []).slice().sort((a, b) => (b.part ? 1 : 0) - (a.part ? 1 : 0)), most = 4;
  const alarms = all.slice(0, most).map((a) => el("p", {}, el("strong", {}, "Alarm "), said(a.text)));
  if (all.length > most) alarms.push(el("p", {}, el("a", { href: "#health" }, `${all.length - most} more`)));
  replace($("alarms"), alarms);
  $("alarms").hidden = !alarms.length;
};
const tiles = () => traffic.tiles((tile) => {
  const open = incidents.open(), out = [tile("Incidents", String(open), incidents.summary().replace(/^\d+ /, ""), open || incidents.unwatched() ? "drop" : "")];
  out.push(tile("In sets", number(sets.count()), sets.all().length === 1 ? "entries in 1 set" : `entries in ${sets.all().length} sets`));
  const bad = health.failing().length;
  if (health.all().length) out.push(tile("Parts", bad ? String(bad) : "all", bad ? `of ${health.all().length} do not work` : "of the agent work", bad ? "drop" : ""));
  if (agent && !agent.compare?.at) out.push(tile("Enforced", "?", "not known: not compared yet", "drop"));
  else if (agent) out.push(tile("Enforced", [String(Math.floor(agent.enforced_percent * 10) / 10), el("small", {}, " %")], `of ${number(agent.compare?.entries ?? 0, "leased entries")}`));
  return out;
});
every(1, tiles);
every(5, interfaces);
every(3, () => incidents.load());
every(5, () => rules.load());
every(5, () => sets.load());
every(5, policyNow);
every(5, status);
every(5, health.load);
every(5, traffic.talkers);

// ---- log in ----

const start = async () => {
  let me;
  try {
    me = await api.me();
    if (me.role === "anybody") { login(); return; }
  } catch (err) {
    if (err.status === 401) { login(); return; }
    fail(err);
    setTimeout(start, 1000 * (retry = Math.min(30, retry * 1.4)));
    return;
  }
  $("login").close();
  $("main").hidden = false;
  const may = me.role === "operator" || me.role === "admin";
  incidents.allow(may);
  rules.allow(may);
  held.allow(may);
  sets.allow(may);
  $("who").hidden = me.from === "unix";
  $("who").firstElementChild.textContent = `${plain(me.name)}, ${plain(me.role)}`;
  ending(me);
  running = true;
  traffic.controls();
  const drawn = traffic.start(fail);
  await Promise.all([drawn, ...tasks.map((t) => { t.busy = false; t.gone = false; return run(t); })]);
  run(tasks[0]);
  events.start();
  document.documentElement.dataset.ready = "true";
  performance.mark("levee-ready");
};
// A session lasts a week from when the page was open last. Two weeks before its token ends, the page says so.
const days = 86400;
const ending = (me) => {
  const left = me.expires ? unix(me.expires) - Date.now() / 1000 : Infinity;
  $("token-ends").hidden = left > 14 * days;
  if (left <= 14 * days) $("token-ends").textContent = `The token of this page ends in ${duration(left)}. To go on: levee agent token renew ${plain(me.name)}`;
};
setInterval(async () => {
  if (!running || $("who").hidden) return;
  try { ending(await api.renew()); } catch { /* what else the page asks for says it */ }
}, 6 * 3600e3);
const login = () => {
  running = false;
  traffic.stop();
  events.stop();
  for (const t of tasks) clearTimeout(t.timer);
  link("wait", "Log in");
  if (!$("login").open) { $("login").showModal(); document.documentElement.dataset.ready = "login"; }
};
$("login").addEventListener("cancel", (e) => e.preventDefault());
$("login").querySelector("form").addEventListener("submit", async (e) => {
  e.preventDefault();
  $("login-error").textContent = "";
  try {
    await api.login($("token").value.trim());
    $("token").value = "";
    await start();
  } catch (err) { $("login-error").textContent = plain(err.message); $("token").focus(); }
});
$("logout").addEventListener("click", async () => { try { await api.logout(); } finally { location.reload(); } });

// ---- colours, keys ----

const themes = { auto: ["Auto", "Colours: auto, as the system"], light: ["Light", "Colours: light"], dark: ["Dark", "Colours: dark"] };
const theme = (next) => {
  const root = document.documentElement, chosen = next || root.dataset.theme || "auto";
  if (chosen === "auto") delete root.dataset.theme; else root.dataset.theme = chosen;
  try { localStorage.setItem("levee-theme", chosen); } catch { /* it holds for this page */ }
  $("theme").textContent = themes[chosen][0];
  $("theme").setAttribute("aria-label", themes[chosen][1]);
  traffic.draw();
};
const turn = () => theme({ auto: "light", light: "dark", dark: "auto" }[document.documentElement.dataset.theme || "auto"]);
$("theme").addEventListener("click", turn);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme());
$("keys").addEventListener("click", () => $("help").showModal());

const go = (id) => { const e = $(id); e.scrollIntoView(); (id === "traffic" ? $("plot") : e).focus({ preventScroll: true }); };
const keys = {
  t: () => go("traffic"), i: () => go("incidents"), s: () => go("sets"), p: () => go("policy"), e: () => go("events"), a: () => go("health"),
  "[": traffic.actions.back, "]": traffic.actions.forth, "+": traffic.actions.closer, "=": traffic.actions.closer, "-": traffic.actions.wider, "−": traffic.actions.wider,
  l: traffic.actions.live, d: turn, "?": () => $("help").showModal(),
  "/": () => { $("set-find")?.scrollIntoView({ block: "center" }); $("set-find")?.focus(); },
};
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.altKey || e.metaKey || e.target.closest("input,select,textarea,dialog") || !running) return;
  const key = e.key.length === 1 ? e.key.toLowerCase() : e.key;
  if (/^[1-9]$/.test(key)) traffic.actions.range(Number(key) - 1);
  else if (keys[key]) keys[key]();
  else return;
  e.preventDefault();
});
$("dev").addEventListener("change", () => { traffic.setDev($("dev").value); runAll(); });
traffic.onData(compare.draw);
incidents.onAct(runAll);
rules.onAct(runAll);
held.onAct(runAll);
traffic.restore();
theme();
start();
