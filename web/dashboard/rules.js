// Live rules: what is in force besides the rules of the policies, whose each is, and a way to take it back.
import * as api from "./api.js";
import { $, ask, el, replace, said } from "./dom.js";
import { moment, number, plain, unix } from "./format.js";

let may = false, after = () => {}, shown = "";
export const allow = (yes) => { may = yes; };
export const onAct = (f) => { after = f; };

const row = (r) => {
  const b = el("button", { type: "button", "data-key": `undo ${r.id}`, disabled: !may, title: may ? null : "needs a token of the role operator" }, "Undo");
  const text = r.incident ? `It leaves the kernel at once, with all rules of incident ${plain(r.incident)}.` : `It leaves the kernel at once. ${plain(r.origin)} may add it again.`;
  b.addEventListener("click", () => ask(`Undo ${plain(r.id)}?`, text, "Undo", r.rule, async () => { await api.undoRule(r.id); await load(); after(); }));
  return el("tr", { "data-id": r.id }, el("th", { scope: "row" }, el("code", {}, said(r.rule))), el("td", {}, said(r.origin)), el("td", {}, said(r.dev)),
    el("td", { class: "num" }, number(r.packets || 0, "")), el("td", {}, r.until ? moment(unix(r.until)) : "–"), el("td", {}, b));
};

export const load = async () => {
  const list = ((await api.rules()).rules || []).slice(0, 200), text = JSON.stringify([list, may]);
  if (text === shown) return;
  shown = text;
  const box = $("rules");
  box.hidden = !list.length;
  box.querySelector("summary").textContent = `Live rules (${list.length})`;
  replace(box.querySelector("tbody"), list.map(row));
};
