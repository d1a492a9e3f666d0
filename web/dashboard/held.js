// Changes of lists that wait until somebody accepts them: how much would change, why it waits, and which entries.
import * as api from "./api.js";
import { $, ask, el, replace, said } from "./dom.js";
import { moment, plain, unix, whole } from "./format.js";

let may = false, after = () => {}, shown = "", open = "", entries = null;
export const allow = (yes) => { may = yes; };
export const onAct = (f) => { after = f; };
const most = 100; // entries that are shown of each kind

const some = (sign, all) => [...all.slice(0, most).map((e) => el("li", {}, `${sign} `, said(e))), all.length > most ? el("li", { class: "quiet" }, `and ${whole(all.length - most)} more`) : null];
const row = (l) => {
  const size = `${whole(l.held.added)} more, ${whole(l.held.removed)} fewer`, text = `The set ${plain(l.set)} gets what the list says now: ${size}.`;
  const accept = el("button", { type: "button", "data-key": `accept ${l.name}`, disabled: !may, title: may ? null : "needs a token of the role operator",
    on: { click: () => ask(`Accept the change of ${plain(l.name)}?`, text, "Accept", "", async () => { await api.acceptList(l.name); after(); }) } }, "Accept");
  const which = el("button", { type: "button", "data-key": `entries ${l.name}`, "aria-expanded": String(open === l.name), on: { click: () => show(l.name) } }, "Entries");
  return el("li", { "data-source": l.name }, el("p", {}, el("strong", {}, said(l.name)), ` would change ${plain(l.set)}: ${size}. It waits since ${moment(unix(l.held.since))}: `, said(l.held.why), ". ", which, " ", accept),
    open === l.name && entries ? el("ul", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Entries of ${plain(l.name)}` }, some("+", entries.added), some("−", entries.removed)) : null);
};
let lists = [];
const draw = () => {
  const box = $("held");
  box.hidden = !lists.length;
  replace(box.querySelector("ul"), lists.map(row));
};
const show = async (name) => {
  open = open === name ? "" : name;
  entries = null;
  if (open) entries = ((await api.heldList(name)).held || [])[0] || null;
  draw();
};

// told hears which lists there are.
export const told = (all) => {
  lists = (all || []).filter((l) => l.held);
  const text = JSON.stringify([lists, may]);
  if (text === shown) return;
  shown = text;
  if (!lists.some((l) => l.name === open)) { open = ""; entries = null; }
  draw();
};
