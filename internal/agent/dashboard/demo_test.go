package dashboard

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"levee/internal/agent"
	"levee/internal/agent/api"
	"levee/internal/agent/history"
	"levee/internal/agent/part"
	"levee/web"
)

// demo is an agent that only seems to run: the routes of the real one, with what a server of a
// small company could have counted in a year.
type demo struct {
	store    *history.Store
	mu       sync.Mutex
	sets     map[string][]demoEntry
	states   map[string]string // of incidents
	hostile  bool
	blind    bool // its detector fails
	accepted bool // the change of its list
	now      time.Time
	stop     func()
	url      string
	token    string
	rules    []history.Series
}

const demoPolicy = `# edge.levee: web, DNS and SSH of the edge
interface eth0

set admins  = { 198.51.100.0/24, 2001:db8:7::/48 }
set bogons  = file("bogons.txt")
set abusers = dynamic(max 100000, lease 1h)

protect from admins tcp port 22                        as "admins"

drop   from bogons                                     as "bogon"
drop   from abusers                                    as "abuser"
drop   udp from port { 53, 123, 389, 1900 } len > 468  as "reflection"
limit  icmp rate 100/s                                 as "icmp"
cookie tcp port { 80, 443 } above 5000/s               as "syn"
pass   tcp port { 80, 443 }                            as "web"
pass   udp port 53                                     as "dns"
pass   established                                     as "replies"
detect "floods" enforce
default drop
`

var demoRules = []struct {
	label, verdict string
	mean, size     float64 // packets/s, bytes
}{
	{"admins", "pass", 4, 120}, {"bogon", "drop", 3, 64}, {"abuser", "drop", 90, 70},
	{"reflection", "drop", 8, 1200}, {"icmp", "drop", 2, 84}, {"syn", "answer", 5, 60},
	{"web", "pass", 5200, 640}, {"dns", "pass", 1400, 90}, {"replies", "pass", 2600, 820},
}

func (d *demo) rule(label, verdict string) history.Series {
	s := history.Series{Key: history.Key{Dev: "eth0", Kind: history.Rule, ID: "label:" + label},
		Label: label, Verdict: verdict, Text: label}
	for i, line := range strings.Split(demoPolicy, "\n") {
		if strings.HasSuffix(line, `as "`+label+`"`) {
			s.Line, s.Text = i+1, strings.Join(strings.Fields(line), " ")
		}
	}
	return s
}

// second returns the machine's counts in the second that begins at a moment.
func (d *demo) second(at time.Time, rng *rand.Rand) history.Second {
	out := history.Second{Unix: at.Unix()}
	hour := float64(at.Hour()) + float64(at.Minute())/60
	swing := 0.55 + 0.45*math.Sin((hour-9)/24*2*math.Pi)
	if w := at.Weekday(); w == time.Saturday || w == time.Sunday {
		swing *= 0.6
	}
	age := d.now.Sub(at).Hours() / 24
	growth := 1 - 0.35*age/365
	flood := d.flood(at)
	verdicts := map[string]*history.Amount{}
	add := func(s history.Series, packets, bytes float64) {
		n := uint64(max(0, packets*(1+0.07*rng.NormFloat64())) + rng.Float64())
		b := uint64(float64(n) * bytes)
		out.Amounts = append(out.Amounts, history.Amount{Series: s, Packets: n, Bytes: b})
		v := verdicts[s.Verdict]
		if v == nil {
			v = &history.Amount{Series: history.Series{Key: history.Key{Dev: "eth0",
				Kind: history.Verdict, ID: s.Verdict}, Verdict: s.Verdict}}
			verdicts[s.Verdict] = v
		}
		v.Packets += n
		v.Bytes += b
	}
	for i, r := range demoRules {
		mean := r.mean
		if r.verdict == "pass" {
			mean *= swing * growth
		}
		if r.label == "reflection" {
			mean += flood
		}
		add(d.rules[i], mean, r.size)
	}
	if flood > 0 {
		add(d.rule("flood-12-1", "drop"), flood*4, 60)
	}
	for _, v := range []string{"pass", "answer", "drop"} {
		out.Amounts = append(out.Amounts, *verdicts[v])
	}
	all := float64(verdicts["pass"].Packets)
	guess := func(kind history.Kind, id string, packets, size float64) {
		n := max(0, packets*(1+0.05*rng.NormFloat64()))
		out.Amounts = append(out.Amounts, history.Amount{Series: history.Series{Key: history.Key{
			Dev: "eth0", Kind: kind, ID: id}}, Packets: uint64(n), Bytes: uint64(n * size)})
	}
	guess(history.Protocol, "tcp", all*0.82+90, 640)
	guess(history.Protocol, "udp", all*0.16+flood*5, 120)
	guess(history.Protocol, "icmp", 3, 84)
	guess(history.Protocol, "icmpv6", 2, 90)
	if d.now.Sub(at) > 25*time.Hour {
		return out
	}
	guess(history.Source, "203.0.113.7", 60+flood/2, 500)
	for i := range 9 {
		guess(history.Source, fmt.Sprintf("198.51.100.%d", 20+i*7), all/float64(30+20*i), 500)
	}
	guess(history.Source, "2001:db8:42::/64", all/55, 500)
	guess(history.Source, history.Others, all/2+flood*4, 400)
	return out
}

// flood returns the rate of the flood besides, in packets a second.
func (d *demo) flood(at time.Time) float64 {
	ago := d.now.Sub(at)
	if ago > 9*time.Minute && ago < 9*time.Minute+50*time.Second {
		return 9000
	}
	for _, days := range []float64{0.9, 11.3, 47, 121.2, 122, 260.7, 301} {
		if off := ago.Hours()/24 - days; off > 0 && off < 0.02 {
			return 16_000
		}
	}
	return 0
}

// away tells whether the agent did not run.
func (d *demo) away(at time.Time) bool {
	ago := d.now.Sub(at)
	days := ago.Hours() / 24
	return days > 200 && days < 206 || ago > 33*time.Minute && ago < 36*time.Minute
}

// newDemo keeps a year: a second of each ten minutes, then more of them, then all.
func newDemo(t *testing.T, hostile bool) *demo {
	t.Helper()
	if _, err := os.Stat("/dev/shm"); err == nil { // a year is synced often
		t.Setenv("TMPDIR", "/dev/shm")
	}
	store, err := history.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Truncate(time.Second)
	d := &demo{store: store, now: now, hostile: hostile, sets: map[string][]demoEntry{},
		states: map[string]string{"12": "open", "11": "proposed", "10": "ended", "9": "undone"}}
	for _, r := range demoRules {
		s := d.rule(r.label, r.verdict)
		if hostile && r.label == "web" {
			s.Label = hostileText
		}
		d.rules = append(d.rules, s)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for at := now.Add(-365 * 24 * time.Hour); at.Before(time.Now()); {
		if !d.away(at) {
			if err := store.Add(d.second(at, rng)); err != nil {
				t.Fatal(err)
			}
		}
		switch ago := now.Sub(at); {
		case ago > 25*time.Hour:
			at = at.Add(10 * time.Minute)
		case ago > 2*time.Hour:
			at = at.Add(10 * time.Second)
		default:
			at = at.Add(time.Second)
		}
	}
	for i := range 40 {
		d.sets["abusers"] = append(d.sets["abusers"], demoEntry{
			Entry: fmt.Sprintf("203.0.113.%d", i*5+3), LeaseSeconds: float64(60 + i*83),
			Origins: []string{[]string{"ids", "command", "trap"}[i%3]}})
	}
	d.serve(t)
	return d
}

// hostileText is a label that would be markup, ends a line and turns text round.
const hostileText = `</td><img src=x onerror=alert(1)><script>alert(2)</script>` + "\u202e\n" +
	`"'&lt;` + "${alert(3)}"

type demoEntry struct {
	Entry        string   `json:"entry"`
	LeaseSeconds float64  `json:"lease_seconds"`
	Origins      []string `json:"origins"`
}

type demoSet struct {
	Name         string  `json:"name"`
	Dev          string  `json:"dev"`
	Entries      int     `json:"entries"`
	Max          int     `json:"max"`
	LeaseSeconds float64 `json:"lease_seconds"`
	Refused      int     `json:"refused"`
}

type demoEvent struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`
	Text string    `json:"text"`
}

// serve answers at a port of loopback, with the frame of the real API.
func (d *demo) serve(t testing.TB) {
	t.Helper()
	tokens := api.OpenTokens(filepath.Join(t.TempDir(), "tokens.json"))
	var err error
	if d.token, err = tokens.Add("wall", api.Operator, 0); err != nil {
		t.Fatal(err)
	}
	routes := slices.Concat(Routes(func() (*history.Store, error) { return d.store, nil },
		d.policy), d.routes())
	s, err := api.New(api.Options{Routes: routes, Tokens: tokens, Version: "demo", Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	l, err := api.Listen("127.0.0.1:0", "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	d.url = "http://" + l.Addr().String() + "/"
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(ctx, l) }()
	done := make(chan struct{})
	go func() { // time goes on
		defer close(done)
		rng := rand.New(rand.NewPCG(3, 4))
		for ctx.Err() == nil {
			_ = d.store.Add(d.second(time.Now(), rng)) // the page would show it
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	var once sync.Once
	d.stop = func() { once.Do(func() { cancel(); <-done; <-served; d.store.Close() }) }
	t.Cleanup(d.stop)
}

func (d *demo) policy(_ context.Context, dev string) (*Policy, error) {
	if dev != "eth0" {
		return nil, api.Refuse(http.StatusNotFound, "there is no policy on %q", dev)
	}
	p := &Policy{Dev: dev, Policy: "edge.levee", Hook: "xdp-native",
		Since: d.now.Add(-11 * 24 * time.Hour), Lines: strings.Split(demoPolicy, "\n")}
	seconds := time.Since(p.Since).Seconds()
	for i, r := range demoRules {
		s := d.rules[i]
		p.Slots = append(p.Slots, Slot{ID: s.ID, Line: s.Line, Label: s.Label, Text: s.Text,
			Reason: "rule", Rule: fmt.Sprintf("edge.levee:%d", s.Line), Verdict: r.verdict,
			Packets: uint64(r.mean * seconds), Bytes: uint64(r.mean * seconds * r.size),
			Ns: 14 + float64(i)*3.1})
	}
	p.Slots = append(p.Slots, Slot{ID: "essential:arp", Text: "arp", Reason: "essential",
		Rule: "essential:arp", Verdict: "pass", Packets: uint64(2 * seconds)},
		Slot{ID: "flood-12-1", Label: "flood-12-1", Reason: "rule", Verdict: "drop",
			Text: `drop udp from port 53 len 1180-1480 as "flood-12-1"`, Packets: 1_814_002})
	decide := func(v, text string) Decision { return Decision{Verdict: v, Text: text} }
	p.Shadow = &Shadow{Policy: "edge-next.levee", Since: d.now.Add(-26 * time.Hour),
		Packets: 812_000_000, Differ: 412_331, Pairs: []Pair{
			{true, 401_220, decide("pass", `pass udp port 53 as "dns"`),
				decide("drop", "drop udp port 53 not to resolvers")},
			{true, 11_111, decide("drop", "default drop"),
				decide("pass", "pass tcp port 8443")}}}
	if d.hostile {
		p.Lines[13] = "# " + hostileText
	}
	return p, nil
}

type demoList[T any] struct {
	Interfaces []T `json:"interfaces,omitempty"`
	Sets       []T `json:"sets,omitempty"`
	Incidents  []T `json:"incidents,omitempty"`
	Entries    []T `json:"entries,omitempty"`
}

// services are those that have a policy of their own: one that runs, and one that does not.
func (d *demo) services() []any {
	service := func(name string, runs bool) any {
		rule := func(line int, text, verdict string, packets int) any {
			return map[string]any{"line": line, "text": text, "verdict": verdict, "label": "",
				"rule": fmt.Sprint("web.levee:", line), "packets": packets}
		}
		text := "out drop tcp port 25"
		if d.hostile {
			text = hostileText
		}
		why := ""
		if !runs {
			why = "the container has ended"
		}
		return map[string]any{"service": name, "in_force": runs, "why": why,
			"policy": "/etc/levee/web.levee", "hook": "cgroup",
			"since": d.now.Add(-time.Hour), "rules": []any{
				rule(1, "pass tcp port { 80, 443 }", "pass", 12_400), rule(2, text, "drop", 7),
				rule(0, "", "pass", 0)}}
	}
	return []any{service("nginx.service", true), service("container:web", false)}
}

type none struct{}

func (d *demo) routes() []api.Route {
	get := func(path string, do func() any) api.Route {
		return api.Get(path, api.Viewer, "Demo.", func(context.Context, *none) (*any, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			out := do()
			return &out, nil
		})
	}
	type byID struct {
		ID string `path:"id"`
	}
	act := func(what, state string) api.Route {
		return api.Post("/api/v1/incidents/{id}/"+what, api.Operator, "Demo.",
			func(_ context.Context, in *byID) (*demoList[string], error) {
				d.mu.Lock()
				defer d.mu.Unlock()
				if d.states[in.ID] == "" {
					return nil, api.Refuse(http.StatusNotFound, "there is no incident %q", in.ID)
				}
				d.states[in.ID] = state
				return &demoList[string]{}, nil
			})
	}
	return append(append(d.changeRoutes(), d.heldRoutes()...),
		get("/api/v1/interfaces", func() any {
			return map[string]any{"interfaces": []any{map[string]any{"dev": "eth0"}},
				"services": d.services()}
		}),
		get("/api/v1/status", func() any {
			return map[string]any{"enforced_percent": 100.0, "alarms": d.alarms(),
				"lists":   d.lists(),
				"compare": map[string]any{"at": time.Now(), "entries": len(d.sets["abusers"])}}
		}),
		get("/api/v1/parts", func() any { return map[string]any{"parts": d.parts()} }),
		get("/api/v1/sets", func() any {
			return demoList[demoSet]{Sets: []demoSet{{Name: "abusers", Dev: "eth0",
				Entries: len(d.sets["abusers"]), Max: 100_000, LeaseSeconds: 3600}}}
		}),
		get("/api/v1/incidents", func() any {
			return map[string]any{"incidents": d.incidents(), "watched": d.parts()[:2]}
		}),
		get("/api/v1/rules", func() any {
			return map[string]any{"rules": d.liveRules()}
		}),
		api.Get("/api/v1/incidents/{id}/fingerprint", api.Viewer, "Demo.", fingerprint),
		api.Get("/api/v1/incidents/{id}/countries", api.Viewer, "Demo.", countries),
		act("undo", "undone"), act("apply", "open"),
		d.entriesRoute(), api.Stream("/api/v1/events", api.Viewer, "Demo.", d.events))
}

// fingerprint says of an incident which packets it has.
func fingerprint(_ context.Context, _ *struct {
	ID         string `path:"id"`
	ShowTarget bool   `query:"show_target"`
}) (*map[string]any, error) {
	return &map[string]any{"target": "192.0.2.10", "attack_vectors": []any{map[string]any{
		"service": "DNS", "protocol": "UDP", "fraction_of_attack": 0.97,
		"destination_ports": "random", "source_port": 53,
		"frame_len":  map[string]float64{"1200": 0.41, "1460": 0.3, "1180": 0.2, "1300": 0.06},
		"ttl":        map[string]float64{"54": 0.31, "118": 0.2},
		"source_ips": []string{"198.51.100.7", "198.51.100.9", "203.0.113.4"},
	}}}, nil
}

// countries says of an incident which countries its sources are in.
func countries(_ context.Context, _ *struct {
	ID string `path:"id"`
}) (*map[string]any, error) {
	return &map[string]any{"packets": 1000, "shares": map[string]float64{"DE": 0.41, "BR": 0.3,
		"ZZ": 0.01}, "unknown": 0.28, "forged": false, "file": "GeoLite2-Country",
		"built": "2026-11-02T00:00:00Z"}, nil
}

// parts are those of an agent. The first detector fails where the demo is blind.
func (d *demo) parts() []part.Status {
	since := d.now.Add(-26 * time.Hour)
	works := func(kind part.Kind, name, dev, saw string) part.Status {
		return part.Status{Kind: kind, Name: name, Dev: dev, State: part.Works, Since: since,
			Last: time.Now().Add(-time.Second), Saw: saw}
	}
	all := []part.Status{works(part.Detector, "floods", "eth0", "9120 packets/s"),
		works(part.LiveRules, "", "eth0", "1 in force"),
		works(part.Source, "ids", "", "2310 events"), works(part.List, "drop", "", "1012 entries"),
		works(part.Notification, "ops", "", "a message about incident"),
		works(part.File, "/var/lib/levee/agent.db", "", "")}
	if d.blind {
		all[0].State, all[0].Error = part.Fails, "can't create perf event: operation not permitted"
		all[0].Do = "allow it"
	}
	if d.hostile {
		all[2].State, all[2].Error = part.Fails, hostileText
	}
	return all
}

func (d *demo) alarms() []map[string]any {
	out := []map[string]any{}
	for _, p := range part.Failing(d.parts()) {
		out = append(out, map[string]any{"at": p.Since, "text": p.Sentence(), "part": p.Title()})
	}
	return out
}

func (d *demo) entriesRoute() api.Route {
	type query struct {
		Set    string `path:"set"`
		Dev    string `query:"dev"`
		Within string `query:"within"`
		Limit  int    `query:"limit" default:"100"`
	}
	return api.Get("/api/v1/sets/{set}/entries", api.Viewer, "Demo.",
		func(_ context.Context, q *query) (*demoList[demoEntry], error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			out := &demoList[demoEntry]{}
			for _, e := range d.sets[q.Set] {
				if strings.Contains(e.Entry, q.Within) && len(out.Entries) < q.Limit {
					out.Entries = append(out.Entries, e)
				}
			}
			return out, nil
		})
}

type demoAdd struct {
	Set  string `path:"set"`
	Body struct {
		Entries []string `json:"entries"`
		Lease   string   `json:"lease,omitempty"`
	}
}

type demoRemove struct {
	Set   string   `path:"set"`
	Entry []string `query:"entry,explode"`
}

// lists are those of the agent: a change of one waits until it is accepted. mu is held.
func (d *demo) lists() []agent.ListStatus {
	l := agent.ListStatus{Name: "blocklist", Kind: "feed", Set: "abusers", Entries: 1000}
	if !d.accepted {
		l.Held = &agent.HeldSize{Since: time.Now().Add(-time.Hour), Added: 223, Removed: 2,
			Why: "it would change 31 % of the addresses"}
	}
	return []agent.ListStatus{l}
}

func (d *demo) heldRoutes() []api.Route {
	return []api.Route{
		api.Get("/api/v1/lists/held", api.Viewer, "Demo.",
			func(_ context.Context, _ *agent.HeldQuery) (*agent.HeldReport, error) {
				h := agent.Held{Source: "blocklist", Set: "abusers",
					Removed: []string{"192.0.2.1", "192.0.2.2"}}
				for i := range 223 {
					h.Added = append(h.Added, fmt.Sprintf("%d.0.0.0/8", i))
				}
				return &agent.HeldReport{Held: []agent.Held{h}}, nil
			}),
		api.Post("/api/v1/lists/accept", api.Operator, "Demo.",
			func(_ context.Context, in *agent.AcceptInput) (*agent.Accepted, error) {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.accepted = true
				return &agent.Accepted{Source: in.Body.Source, Added: 223, Removed: 2}, nil
			}),
	}
}

func (d *demo) changeRoutes() []api.Route {
	do := func(set string, entries []string, add bool) (*demoList[string], error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, e := range entries {
			if net.ParseIP(e) == nil && !strings.Contains(e, "/") {
				return nil, api.Refuse(http.StatusUnprocessableEntity,
					"%q is no address or prefix", e)
			}
			d.sets[set] = slices.DeleteFunc(d.sets[set], func(o demoEntry) bool {
				return o.Entry == e
			})
			if add {
				d.sets[set] = append([]demoEntry{{e, 3600, []string{"command"}}}, d.sets[set]...)
			}
		}
		return &demoList[string]{}, nil
	}
	return []api.Route{
		api.Post("/api/v1/sets/{set}/entries", api.Operator, "Demo.",
			func(_ context.Context, in *demoAdd) (*demoList[string], error) {
				return do(in.Set, in.Body.Entries, true)
			}),
		api.Delete("/api/v1/sets/{set}/entries", api.Operator, "Demo.",
			func(_ context.Context, in *demoRemove) (*demoList[string], error) {
				return do(in.Set, in.Entry, false)
			}),
	}
}

var _ fs.FS = web.Dashboard()
