// Dynamic sets: how full they are, what they hold, what is put in and taken out.
import * as api from "./api.js";
import { $, ask, el, empty, meter, replace, said } from "./dom.js";
import { duration, plain, whole } from "./format.js";

let may = false, list = [], chosen = null, search = "", refused = "", built = null, page = null, typing;
export const allow = (yes) => { may = yes; built = null; };
export const count = () => list.reduce((a, s) => a + s.entries, 0);
export const all = () => list;

const frame = () => {
  const pick = el("select", { id: "set" }), find = el("input", { type: "search", id: "set-find", maxlength: "64", autocomplete: "off", spellcheck: "false", placeholder: "address or prefix", size: "16" });
  const add = el("input", { id: "set-add", maxlength: "64", autocomplete: "off", spellcheck: "false", required: true, placeholder: "192.0.2.1 or 2001:db8::/32", size: "20" });
  const lease = el("input", { id: "set-lease", maxlength: "16", autocomplete: "off", placeholder: "as the set", size: "8" });
  pick.addEventListener("change", () => { chosen = pick.value; search = find.value = refused = ""; entries(); });
  find.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => { search = find.value.trim(); entries(); }, 200); });
  const form = el("form", { class: "controls" }, el("label", { class: "field" }, el("span", { class: "quiet" }, "Add"), add), el("label", { class: "field" }, el("span", { class: "quiet" }, "for"), lease), el("button", { type: "submit", class: "main" }, "Add"));
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    const word = add.value;
    await change(() => api.addEntry(chosen, word.trim(), lease.value.trim()));
    if (!refused && add.value === word) add.value = ""; // and not what was typed since
  });
  if (!may) for (const c of form.querySelectorAll("input,button")) c.disabled = true;
  built = { pick, about: el("div"), rows: el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Entries of the set" }), error: el("p", { class: "error", role: "alert" }) };
  $("sets").querySelector(".body").replaceChildren(
    el("div", { class: "controls" }, el("label", { class: "field" }, el("span", { class: "quiet" }, "Set"), pick), el("label", { class: "field" }, el("span", { class: "quiet" }, "Search"), find)),
    built.about, form, may ? "" : el("p", { class: "note" }, "Changing entries needs a token of the role operator."), built.error, built.rows);
};
const change = async (what) => {
  refused = "";
  try { await what(); } catch (err) { refused = err.message; }
  await load();
};

export const load = async () => {
  list = (await api.sets()).sets || [];
  if (!list.length) {
    built = null;
    replace($("sets").querySelector(".body"), empty("No dynamic set", "The policies in force have none. ", el("code", {}, "set abusers = dynamic(max 100000, lease 1h)"), " in a policy makes one."));
    return;
  }
  if (!built) frame();
  if (!list.some((s) => s.name === chosen)) chosen = list[0].name;
  replace(built.pick, list.map((s) => el("option", { value: s.name }, plain(s.name))));
  built.pick.value = chosen;
  await entries();
};
const entries = async () => {
  const mine = chosen, of = list.find((s) => s.name === chosen);
  if (!of || !built) return;
  let got, failed = "";
  // whole addresses and prefixes are looked up; of other words those are shown that have them, as far as they are here
  const exact = /^[0-9a-f.:]+(\/\d+)?$/i.test(search) && (/^\d+(\.\d+){3}/.test(search) || /:.*(:|\/)/.test(search));
  try { got = await api.entries(chosen, { dev: of.dev, within: exact ? search : "", limit: search && !exact ? 2000 : 200 }); } catch (err) { if (err.status === 401) throw err; failed = err.message; got = { entries: [] }; }
  if (mine !== chosen || !built) return;
  page = got;
  built.error.textContent = plain(refused || failed); // what was refused stays until the next change
  replace(built.about, el("p", { class: "quiet" }, `${whole(of.entries)} of ${whole(of.max)} entries${of.lease_seconds ? `, each for ${duration(of.lease_seconds)} unless said otherwise` : ""}${of.refused ? `; ${whole(of.refused)} refused, as it was full` : ""}`), meter(of.entries / of.max));
  const rows = (got.entries || []).filter((e) => !search || exact || `${e.entry} ${(e.origins || []).join(" ")}`.includes(search)).slice(0, 200);
  if (!rows.length) { replace(built.rows, el("p", { class: "empty" }, search ? "No entry is found." : "The set is empty.")); return; }
  replace(built.rows, el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Entry"), el("th", { scope: "col", class: "num" }, "Left"), el("th", { scope: "col" }, el("span", { class: "hidden" }, "Remove")))),
    el("tbody", {}, rows.map((e) => el("tr", {}, el("th", { scope: "row", class: "grow" }, said(e.entry), (e.origins || []).length ? el("span", { class: "quiet" }, " ", said(e.origins.join(", "))) : null), el("td", { class: "num" }, e.lease_seconds ? duration(e.lease_seconds) : "stays"),
      el("td", { class: "num" }, el("button", { type: "button", "data-key": `remove ${e.entry}`, disabled: !may, "aria-label": `Remove ${plain(e.entry)}`, on: { click: () => ask("Remove the entry?", `${plain(e.entry)} leaves the set ${plain(chosen)}. An origin that still leases it puts it back.`, "Remove", "", async () => { await api.removeEntry(chosen, e.entry); await load(); }) } }, "Remove")))))),
    got.next ? el("p", { class: "note" }, "There are more: search for the one you look for.") : null);
};
