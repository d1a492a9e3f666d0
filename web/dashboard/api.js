// What the page asks the agent. Shapes of answers are known here and nowhere else.

export class Problem extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

const call = async (method, path, { query = {}, body, signal } = {}) => {
  const url = new URL(`api/v1/${path}`, document.baseURI);
  for (const [k, v] of Object.entries(query)) if (v !== "" && v !== null && v !== undefined) url.searchParams.set(k, v);
  let res;
  try {
    res = await fetch(url, {
      method, signal, cache: "no-store", credentials: "same-origin",
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new Problem(0, "The agent does not answer.");
  }
  if (!res.ok) {
    let why = "";
    try { const p = await res.json(); why = [p.detail || p.title || "", ...(p.errors || []).map((e) => e.message)].filter(Boolean).join("; "); } catch { /* no JSON */ }
    throw new Problem(res.status, why || `The agent answered with status ${res.status}.`);
  }
  return res;
};
const json = async (...args) => {
  const res = await call(...args);
  return res.status === 204 ? null : res.json();
};

export const me = () => json("GET", "me");
export const login = (token) => json("POST", "login", { body: { token } });
export const renew = () => json("POST", "renew");
export const logout = () => json("POST", "logout");
export const status = () => json("GET", "status");
export const parts = () => json("GET", "parts");

// series: one of levee's packed answers. A header as JSON, its length before it, and values behind it: for each series
// a 32-bit float for each point, NaN where nobody looked (internal/agent/dashboard/series.go).
export const series = async (query, signal) => {
  const buffer = await (await call("GET", "series/packed", { query, signal })).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  let at = 4 + length;
  for (const s of head.series) {
    s.values = new Float32Array(buffer, at, head.points);
    at += 4 * head.points;
  }
  return head;
};
export const policies = () => json("GET", "interfaces");
export const policy = (dev) => json("GET", `interfaces/${encodeURIComponent(dev)}/policy`);
export const incidents = () => json("GET", "incidents");
export const fingerprint = (id) => json("GET", `incidents/${encodeURIComponent(id)}/fingerprint`, { query: { show_target: "true" } });
export const countries = (id) => json("GET", `incidents/${encodeURIComponent(id)}/countries`);
export const rules = () => json("GET", "rules");
export const heldList = (source) => json("GET", "lists/held", { query: { source } });
export const acceptList = (source) => json("POST", "lists/accept", { body: { source } });
export const undoRule = (id) => json("POST", `rules/${encodeURIComponent(id)}/undo`);
export const act = (id, what) => json("POST", `incidents/${encodeURIComponent(id)}/${what}`);
export const sets = () => json("GET", "sets");
export const entries = (set, query) => json("GET", `sets/${encodeURIComponent(set)}/entries`, { query });
export const addEntry = (set, entry, lease) => json("POST", `sets/${encodeURIComponent(set)}/entries`, { body: lease ? { entries: [entry], lease } : { entries: [entry] } });
export const removeEntry = (set, entry) => json("DELETE", `sets/${encodeURIComponent(set)}/entries`, { query: { entry } });
// events calls back for each event, and with whether the agent refuses to send any. After a refusal the browser does not ask again.
export const askAgain = 10; // seconds
export const events = (told, refused) => {
  let source, timer;
  const open = () => {
    source = new EventSource(new URL("api/v1/events", document.baseURI));
    source.onopen = () => refused(false);
    source.onerror = () => {
      if (source.readyState !== EventSource.CLOSED) return;
      refused(true);
      timer = setTimeout(open, askAgain * 1000);
    };
    source.onmessage = (m) => { try { told(JSON.parse(m.data)); } catch { /* no event of ours */ } };
  };
  open();
  return () => { clearTimeout(timer); source.close(); };
};
