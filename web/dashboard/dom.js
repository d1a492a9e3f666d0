// Elements. Text becomes text nodes; nothing here, or elsewhere on the page, makes markup of a string.
import { plain } from "./format.js";

export const $ = (id) => document.getElementById(id);
export const el = (tag, attributes = {}, ...children) => {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes)) {
    if (v === null || v === undefined || v === false) continue;
    if (k === "on") for (const [event, f] of Object.entries(v)) e.addEventListener(event, f);
    else if (k === "colour") e.style.setProperty("--c", v);
    else e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return e;
};
// said is text that somebody else chose: a label, a rule, an address.
export const said = (text, attributes = {}) => el("bdi", attributes, plain(text));
export const verdict = (v) => el("span", { class: `verdict v-${["pass", "drop", "answer", "redirect"].includes(v) ? v : "none"}` }, plain(v || "counts"));
export const meter = (share, attributes = {}) => {
  const i = el("i");
  i.style.width = `${Math.max(0, Math.min(1, share || 0)) * 100}%`;
  return el("span", { class: "meter", "aria-hidden": "true", ...attributes }, i);
};
export const empty = (title, ...rest) => el("p", { class: "empty" }, el("strong", {}, title), ...rest);

// replace changes the children of an element, unless they are what they were: the focus, what is marked and what a
// reader reads stay then.
export const replace = (parent, ...children) => {
  const next = document.createElement("div");
  next.append(...children.flat().filter(Boolean));
  if (next.childNodes.length === parent.childNodes.length && [...next.childNodes].every((n, i) => n.isEqualNode(parent.childNodes[i]) && !listens(n))) return;
  const held = document.activeElement, key = held && parent.contains(held) ? held.dataset.key : null;
  parent.replaceChildren(...next.childNodes);
  if (key) [...parent.querySelectorAll("[data-key]")].find((e) => e.dataset.key === key)?.focus();
};
// What has buttons may have other listeners although it looks the same.
const listens = (n) => n.nodeType === 1 && (n.matches("button,input,select") || n.querySelector("button,input,select"));

// choice makes buttons of which one is pressed.
export const choice = (holder, options, chosen, pick) => {
  if (!holder.children.length) {
    for (const [value, text, title] of options) {
      holder.append(el("button", { type: "button", "data-value": value, title: title || null, on: { click: () => pick(value) } }, text));
    }
  }
  for (const b of holder.children) b.setAttribute("aria-pressed", String(b.dataset.value === String(chosen)));
};

// ask asks whether something is to be done, and does it: do may fail, which is shown.
export const ask = (title, text, yes, rule, act) => {
  const box = $("ask");
  $("ask-title").textContent = title;
  $("ask-text").textContent = text;
  $("ask-rule").hidden = !rule;
  $("ask-rule").textContent = rule ? plain(rule) : "";
  $("ask-error").textContent = "";
  $("ask-yes").textContent = yes;
  $("ask-yes").disabled = false;
  $("ask-no").onclick = () => box.close();
  box.querySelector("form").onsubmit = async (e) => {
    e.preventDefault();
    $("ask-yes").disabled = true;
    try {
      await act();
      box.close();
    } catch (err) {
      $("ask-error").textContent = plain(err.message);
      $("ask-yes").disabled = false;
    }
  };
  box.showModal();
};

export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
