// Colours of series: those of verdicts; for rules, shades of what they do: cool where packets pass, warm where they are
// dropped; a list for all else. Most are Okabe and Ito's, "Color Universal Design"; neighbours differ in lightness. On
// dark ground the same hues, lighter.
import { css } from "./dom.js";

const lists = {
  light: {
    pass: ["#0072b2", "#009e73", "#79b9e6", "#00456e", "#7f8fd6", "#8fc9a8"],
    drop: ["#d55e00", "#b8528d", "#f0a35e", "#8c2d04", "#e08fbc", "#6b1d46"],
    answer: ["#e0b000", "#9a7b00", "#f3d98a"],
    redirect: ["#7a4fb0", "#4b2a7d", "#b79be0"],
    other: ["#0072b2", "#e0b000", "#009e73", "#b8528d", "#79b9e6", "#7d7d1c", "#882255", "#444a52", "#d55e00", "#8fc9a8"],
  },
  dark: {
    pass: ["#3d9fe0", "#22c497", "#a9d8fa", "#2266a8", "#98a8f2", "#b5e6c9"],
    drop: ["#f07f35", "#e092c4", "#ffc48a", "#b8501c", "#f7bfdf", "#a8467c"],
    answer: ["#f2d15b", "#b39a2e", "#faeab0"],
    redirect: ["#b894f0", "#8a63c9", "#dcc9fa"],
    other: ["#3d9fe0", "#f2d15b", "#22c497", "#e092c4", "#a9d8fa", "#cfcf5b", "#b8507f", "#c3cad3", "#f07f35", "#b5e6c9"],
  },
};
export const night = () => document.documentElement.dataset.theme
  ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

const places = new Map(); // a series keeps its colour while the page is open
export const colour = (kind, s) => {
  if (kind === "verdict" && ["pass", "drop", "answer", "redirect", "lost"].includes(s.id)) return css(`--${s.id}`);
  if (s.id === "") return night() ? "#59636f" : "#a9b1bb";
  const family = kind === "rule" && lists.light[s.verdict] ? s.verdict : "other";
  const key = `${kind} ${family} ${s.dev} ${s.id}`, all = lists[night() ? "dark" : "light"][family];
  if (!places.has(key)) {
    const used = [...places].filter(([k]) => k.startsWith(`${kind} ${family} `)).map(([, v]) => v);
    const counts = all.map((_, i) => used.filter((u) => u === i).length);
    places.set(key, counts.indexOf(Math.min(...counts)));
  }
  return all[places.get(key)];
};
