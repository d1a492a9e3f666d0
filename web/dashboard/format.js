// Numbers, times and text as the page shows them.

const digits = (v, n, keep = false) => {
  if (v === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(v))), text = v.toFixed(Math.min(12, Math.max(0, n - 1 - size)));
  return keep ? text : String(Number(text));
};
const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

// parts is a value with three digits, and its unit, which a prefix stands before; keep leaves zeros at the end.
export const parts = (v, unit = "", keep = false) => {
  if (v === null || v === undefined || Number.isNaN(v)) return ["–", unit];
  const word = /^(packets|entries|leased|\/)/.test(unit); // takes no prefix of its own: 2 k packets
  for (const [size, prefix] of steps) if (Math.abs(v) >= size * 0.9995) return [digits(v / size, 3, keep), word ? `${prefix} ${unit}`.replace(" /", "/") : prefix + unit];
  return [digits(v, Math.abs(v) < 1 ? 2 : 3), unit];
};
export const number = (v, unit = "") => { const [n, u] = parts(v, unit); return u.startsWith("/") || !u ? n + u : `${n} ${u}`; };
// count is a sum of packets, which are whole, also where it is of means of which a part is in the range; or of bits.
export const count = (v, unit = "") => {
  const n = v > 0 ? Math.max(1, Math.round(v)) : v;
  return number(n, n === 1 && unit === "packets" ? "packet" : unit);
};
export const whole = (v) => Number(v).toLocaleString("en-GB").replaceAll(",", "\u202f");
export const percent = (share) => {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  const p = share * 100;
  if (p > 0 && p < 0.01) return "< 0.01 %";
  if (p > 99.99 && p < 100) return "> 99.99 %";
  return `${digits(p, p >= 99 ? 4 : p >= 10 ? 3 : 2)} %`;
};

// duration is a time in its two largest units.
export const duration = (seconds) => {
  const s = Math.max(0, seconds);
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${digits(s, 2)} s`;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (Math.round(s / 60) % 60 === 0 && s < 48 * 3600) return `${Math.round(s / 3600)} h`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
  if (s < 60 * 86400) return `${Math.round(s / 86400)} days`;
  return `${Math.round(s / 86400 / 30.44)} months`;
};

const two = (n) => String(n).padStart(2, "0");
const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
export const clock = (t, seconds = true) => {
  const d = new Date(t * 1000);
  return `${two(d.getHours())}:${two(d.getMinutes())}${seconds ? `:${two(d.getSeconds())}` : ""}`;
};
export const day = (t) => { const d = new Date(t * 1000); return `${d.getDate()} ${months[d.getMonth()]}`; };
export const year = (t) => new Date(t * 1000).getFullYear();
export const month = (t) => months[new Date(t * 1000).getMonth()];
// moment is a time as a person says it: without the day if that is today.
export const moment = (t, step = 1) => {
  const today = new Date().toDateString() === new Date(t * 1000).toDateString();
  const date = `${day(t)}${year(t) === new Date().getFullYear() ? "" : ` ${year(t)}`}`;
  if (step >= 86400) return date;
  return today ? clock(t, step < 60) : `${date} ${clock(t, step < 60)}`;
};
export const unix = (text) => Date.parse(text) / 1000;
export const zone = () => {
  const off = -new Date().getTimezoneOffset();
  return off === 0 ? "UTC" : `UTC${off < 0 ? "−" : "+"}${Math.floor(Math.abs(off) / 60)}${off % 60 ? `:${two(Math.abs(off) % 60)}` : ""}`;
};

// plain shows characters that would hide, end or turn round a text as what they are.
const odd = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
export const plain = (s) => String(s ?? "").replace(odd, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
