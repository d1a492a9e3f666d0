# Tables in Markdown from the reports of `levee bench rules` and `levee bench sets`, one report after the other:
#   jq -nr -f scripts/scale-tables.jq rules.json sets-*.json

def digits: if . >= 100 then round else (. * 10 | round) / 10 end | tostring;
def nanos:
  if . == null then "-"
  elif . < 1e3 then "\(digits) ns"
  elif . < 1e6 then "\(. / 1e3 | digits) us"
  elif . < 1e9 then "\(. / 1e6 | digits) ms"
  else "\(. / 1e9 | digits) s" end;
def mpps: . / 1e6 | if . < 0.1 then (. * 10000 | round) / 10000 else (. * 100 | round) / 100 end | tostring;
def ns: if . == null then "-" else "\(.median | digits) (\(.interval[0] | digits)-\(.interval[1] | digits))" end;
def reason: .missing // (.why // [] | first) // "not measured";
def bytes: if . < 102400 then "<100 KB" elif . < 1048576 then "\(. / 1024 | round) KB" else "\(. / 1048576 | digits) MB" end;

def tools:
  "| tool | Mpps (95 % interval) | ns a packet | load | loads | one change | adds/s | memory |",
  "|---|---|---|---|---|---|---|---|",
  (.lab[] | if .median_pps == null then "| \(.name) | no figure: \(reason) | | \(.load_ns.median? | nanos) | \(.loads) | \(.update_ns.median? | nanos) | | |"
    else "| \(.name) | \(if .at_least then "at least " else "" end)\(.median_pps | mpps) (\(.interval | map(mpps) | join("-"))) | \(.ns_per_packet | digits) | \(.load_ns.median? | nanos) | \(.loads) | \(.update_ns.median? | nanos) | \(.adds_per_second.median? // "-" | if type == "number" then round else . end) | \(.bytes | bytes) |" end),
  "";

def structures:
  "| structure | hit | miss | mix | mix, Zipf | bytes an entry | build | load | one change |",
  "|---|---|---|---|---|---|---|---|---|",
  (.structures[] | . as $s | if .missing then "| \(.name) | no figure: \(.missing) | | | | | | | |" else
    "| \(.name) | \([["hit", "uniform"], ["miss", "uniform"], ["mix", "uniform"], ["mix", "zipf"]]
      | map(. as [$k, $z] | [$s.lookups[] | select(.kind == $k and .skew == $z)] | first | if . == null then "-" else "\(.stream_ns | ns) / \(.chain_ns.median | digits)" end)
      | join(" | ")) | \(.bytes_per_entry | digits) | \(.build_ns | nanos) | \(.load_ns | nanos) | \(.update_ns | nanos) |" end),
  "";

def rules:
  "| rules | ns a packet | frequent rules (Zipf) | resolve and compile | load | memory |",
  "|---|---|---|---|---|---|",
  (.cases[] | if .levee == null then empty elif .levee.missing then "| \(.size) \(.shape) | no figure: \(.levee.missing) | | | | |"
    else "| \(.size) \(.shape) | \(.levee.uniform_ns | ns) | \(.levee.zipf_ns | ns) | \(.levee.resolve_ns + .levee.compile_ns | nanos) | \(.levee.load_ns | nanos) | \(.levee.bytes | bytes) |" end),
  "",
  (.cases[] | select(.lab != []) | "\(.size) \(.shape) rules:\n", tools);

def sets: .cases[] | "\(.size) \(.family) \(.entries):\n", (if .structures != [] then structures else empty end), (if .lab != [] then tools else empty end);

inputs |
  "`\(.command)`, \(.started[:10]), Linux \(.machine.kernel | split(" ")[0]), \(.machine.cpu), \(.machine.cores) cores; \(.rounds) rounds.\(if .incomplete then " **Incomplete: \(.incomplete).**" else "" end)\n",
  (if .cases[0] | has("shape") then rules else sets end)
