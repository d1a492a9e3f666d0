package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"levee/internal/agent"
	"levee/internal/agent/ledger"
	"levee/internal/await"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

var (
	massLeases    = flag.Int("mass-leases", 20_000, "how many leases outlive a kill")
	massDecisions = flag.Int("mass-decisions", 5_000, "how many decisions a local API makes")
)

// masses is an agent of its own in a namespace of its own, with its interface lv0.
type masses struct {
	*testing.T
	ns, dir string
	run     *exec.Cmd
	out     strings.Builder
}

func newMasses(t *testing.T, policy string) *masses {
	if os.Getuid() != 0 || kernel.Privileged() != nil {
		t.Skip("needs root: it makes network namespaces and attaches programs")
	}
	dir := t.TempDir()
	m := &masses{T: t, dir: dir, ns: fmt.Sprintf("levee-m%d-%d", os.Getpid(), netnsCount.Add(1))}
	t.Setenv(store.RunEnv, filepath.Join(dir, "run"))
	t.Setenv(sets.LibEnv, filepath.Join(dir, "lib"))
	m.do("ip", "netns", "add", m.ns)
	t.Cleanup(func() {
		m.kill()
		m.levee("down", "--dev", "lv0")
		m.do("ip", "netns", "del", m.ns)
	})
	m.do("ip", "-n", m.ns, "link", "set", "lo", "up")
	m.do("ip", "-n", m.ns, "link", "add", "lv0", "type", "veth", "peer", "name", "lv1")
	m.do("ip", "-n", m.ns, "link", "set", "lv0", "up")
	if err := os.WriteFile(filepath.Join(dir, "p.levee"), []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	m.up()
	return m
}

func (m *masses) do(name string, args ...string) string {
	m.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		m.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func (m *masses) levee(args ...string) string {
	m.Helper()
	return m.do("ip", append([]string{"netns", "exec", m.ns, "levee"}, args...)...)
}

func (m *masses) up() { m.levee("up", filepath.Join(m.dir, "p.levee"), "--dev", "lv0") }

// start runs the agent.
func (m *masses) start() {
	m.Helper()
	m.run = exec.Command("ip", "netns", "exec", m.ns, "levee", "agent", "run", "--interval", "1s")
	m.run.Stderr = &m.out
	if err := m.run.Start(); err != nil {
		m.Fatal(err)
	}
}

// kill ends it at once.
func (m *masses) kill() {
	if m.run != nil {
		m.run.Process.Kill()
		m.run.Wait() // says that it was killed
		m.run = nil
	}
}

// await asks the agent for its status until it is as wanted, and says how long that took.
func (m *masses) await(what string, wanted func(*agent.Status) bool) time.Duration {
	m.Helper()
	socket := filepath.Join(m.dir, "run-agent", "agent.sock")
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _,
		_ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	begun := time.Now()
	if !await.Until(func() bool {
		r, err := client.Get("http://agent/api/v1/status")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		var s agent.Status
		return json.NewDecoder(r.Body).Decode(&s) == nil && wanted(&s)
	}) {
		m.Fatalf("waited in vain: %s\n%s", what, m.out.String())
	}
	return time.Since(begun)
}

// TestLeasesOfFiveOriginsOutliveAKill kills an agent, empties its sets in the kernel, and starts
// another one, which has to put all back, each entry for as long as its longest lease.
// -mass-leases 1000000 is what it is built for, and takes at most 3 s.
func TestLeasesOfFiveOriginsOutliveAKill(t *testing.T) {
	n := *massLeases
	m := newMasses(t, fmt.Sprintf("set s = dynamic(max %d)\ndrop from s\ndefault pass\n", n+n/8))
	l, err := ledger.Open(filepath.Join(m.dir, "lib", "agent.db"), 0)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	ends := make(map[netip.Prefix]time.Time, n)
	for done := 0; done < n; {
		var some []ledger.Lease
		for ; done < n && len(some) < 100_000; done++ {
			// each entry is of one origin, and each tenth of another one too
			a := netip.AddrFrom4([4]byte{100 + byte(done>>16), 1, byte(done >> 8), byte(done)})
			p := netip.PrefixFrom(a, 32)
			ends[p] = begun.Add(time.Hour + time.Duration(done)*time.Millisecond)
			some = append(some, ledger.Lease{Set: "s", Entry: ledger.Of(p), Since: begun,
				Until: ends[p], Origin: fmt.Sprint("origin", done%5)})
			if done%10 == 0 {
				some = append(some, ledger.Lease{Set: "s", Entry: ledger.Of(p), Since: begun,
					Until: begun.Add(30 * time.Minute), Origin: fmt.Sprint("origin", (done+1)%5)})
			}
		}
		if err := l.Record(some, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	held := func(s *agent.Status) bool {
		return s.Compare.Entries == n && s.Compare.Held == n
	}
	m.start()
	m.await("the first start", held)
	m.kill()
	m.levee("down", "--dev", "lv0")
	m.up()
	m.start()
	t.Logf("%d leases of %d entries of five origins: all enforced %v after the start", n+n/10, n,
		m.await("the second start", held).Round(time.Millisecond))
	var list struct {
		Sets []struct {
			Entries []struct {
				Prefix netip.Prefix `json:"prefix"`
				Lease  float64      `json:"lease_seconds"`
			} `json:"entries"`
		} `json:"sets"`
	}
	asked := time.Now()
	if err := json.Unmarshal([]byte(m.levee("set", "list", "s", "--json")), &list); err != nil {
		t.Fatal(err)
	}
	answered := time.Now()
	if len(list.Sets) != 1 || len(list.Sets[0].Entries) != n {
		t.Fatalf("%d sets", len(list.Sets))
	}
	worst := time.Duration(0)
	for _, e := range list.Sets[0].Entries {
		left := time.Duration(e.Lease * float64(time.Second))
		early, late := ends[e.Prefix].Sub(answered), ends[e.Prefix].Sub(asked)
		worst = max(worst, early-left, left-late)
	}
	t.Logf("the ends of leases differ by at most %v", worst.Round(time.Millisecond))
	if worst > time.Second {
		t.Errorf("a lease ends %v off", worst)
	}
}

// localAPI imitates CrowdSec's: what it sends was recorded from version 1.4.6.
type localAPI struct {
	n       int
	deleted atomic.Bool
	told    atomic.Bool // the deletion was sent
	sent    atomic.Int64
}

func (a *localAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() { a.sent.Store(time.Now().UnixNano()) }()
	switch {
	case r.URL.Path != "/v1/decisions/stream" || r.Header.Get("X-Api-Key") != "abc":
		http.Error(w, `{"message":"access forbidden"}`, http.StatusForbidden)
	case r.URL.Query().Get("startup") == "true" && !a.deleted.Load():
		fmt.Fprintf(w, `{"deleted":null,"new":[`)
		a.write(w, "3h59m58.868023133s")
		fmt.Fprint(w, "]}")
	case a.deleted.Load() && !a.told.Swap(true):
		fmt.Fprint(w, `{"deleted":[`)
		a.write(w, "-160.099613ms")
		fmt.Fprint(w, `],"new":null}`)
	default:
		fmt.Fprint(w, `{"deleted":null,"new":null}`)
	}
}

func (a *localAPI) write(w io.Writer, left string) {
	for i := range a.n {
		if i > 0 {
			io.WriteString(w, ",")
		}
		fmt.Fprintf(w, `{"duration":%q,"id":%d,"origin":"cscli-import","scenario":"import",`+
			`"scope":"Ip","type":"ban","value":"%d.2.%d.%d"}`, left, i+1, 100+i>>16, i>>8&255,
			i&255)
	}
}

const decisionsPolicy = `set abusers = dynamic(max %d)
drop from abusers
default pass
source "cs" crowdsec url "http://127.0.0.1:8080" key "%s" every 1s add to abusers
`

// TestDecisionsAreAppliedAndWithdrawn is a bouncer beside a local API.
// -mass-decisions 100000 is what it is built for; both take at most 2 s.
func TestDecisionsAreAppliedAndWithdrawn(t *testing.T) {
	n := *massDecisions
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := newMasses(t, fmt.Sprintf(decisionsPolicy, n+n/8, key))
	local := &localAPI{n: n}
	s := &http.Server{Handler: local}
	go s.Serve(m.listen("127.0.0.1:8080")) // ends with Close
	defer s.Close()
	m.start()
	m.decisions(n, "applied", &local.sent)
	local.deleted.Store(true)
	m.decisions(0, "withdrawn", &local.sent)
}

// decisions waits until so many are in force, and tells how long that took since the API began to
// send them.
func (m *masses) decisions(n int, what string, sent *atomic.Int64) {
	m.Helper()
	var read time.Time
	m.await(what, func(s *agent.Status) bool {
		if len(s.Lists) != 1 || s.Lists[0].Read.IsZero() || s.Lists[0].Entries != n {
			return false
		}
		read = s.Lists[0].Read
		return true
	})
	now := time.Now()
	begun := read
	if sent != nil {
		begun = time.Unix(0, sent.Load())
	}
	m.Logf("%d decisions: %s %v after the API had sent them", *massDecisions, what,
		now.Sub(begun).Round(time.Millisecond))
	if got := strings.Count(m.levee("set", "list", "abusers", "--export"), "\n"); got < n ||
		n == 0 && got > 1 {
		m.Errorf("%s: the kernel holds %d", what, got)
	}
}

// listen listens in the namespace.
func (m *masses) listen(address string) net.Listener {
	m.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := netns.Get()
	if err != nil {
		m.Fatal(err)
	}
	defer own.Close()
	defer func() {
		if err := netns.Set(own); err != nil {
			m.Fatal(err)
		}
	}()
	there, err := netns.GetFromName(m.ns)
	if err != nil {
		m.Fatal(err)
	}
	defer there.Close()
	if err := netns.Set(there); err != nil {
		m.Fatal(err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		m.Fatal(err)
	}
	return l
}

// crowdSecConfig runs a local API alone, with all that it keeps in one directory.
const crowdSecConfig = `common: {daemonize: false, log_media: stdout, log_dir: DIR}
config_paths: {config_dir: DIR, data_dir: DIR, hub_dir: DIR, index_path: DIR/.index.json,
  simulation_path: DIR/simulation.yaml, notification_dir: DIR/empty, plugin_dir: DIR/empty}
db_config: {type: sqlite, db_path: DIR/cs.db, flush: {max_items: 1000000, max_age: 7d}}
api:
  client: {credentials_path: DIR/client.yaml}
  server: {listen_uri: 127.0.0.1:8080, profiles_path: DIR/profiles.yaml}
prometheus: {enabled: false}
`

// TestARealLocalAPI is the same with CrowdSec itself, where it is installed.
func TestARealLocalAPI(t *testing.T) {
	for _, program := range []string{"crowdsec", "cscli"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s (Debian's package crowdsec) is not at hand: the imitation is tested",
				program)
		}
	}
	n := *massDecisions
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	csv := "duration,scope,value\n4h,ip,100.0.0.1\n"
	for i := range n - 1 {
		csv += "4h,ip," + fmt.Sprintf("%d.2.%d.%d\n", 100+i>>16, i>>8&255, i&255)
	}
	for name, text := range map[string]string{"config.yaml": strings.ReplaceAll(crowdSecConfig,
		"DIR", dir), "simulation.yaml": "simulation: off\n", "profiles.yaml": "name: x\n" +
		"filters: [\"false\"]\ndecisions: []\non_success: break\n", "client.yaml": "",
		"d.csv": csv} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, "key")
	m := newMasses(t, fmt.Sprintf(decisionsPolicy, n+n/8, key))
	cscli := func(args ...string) string {
		args = append([]string{"netns", "exec", m.ns, "cscli", "-c", config}, args...)
		return m.do("ip", args...)
	}
	cscli("machines", "add", "-a", "-f", filepath.Join(dir, "client.yaml"))
	raw := strings.Fields(cscli("bouncers", "add", "levee", "-o", "raw"))
	if err := os.WriteFile(key, []byte(raw[len(raw)-1]), 0o600); err != nil {
		t.Fatal(err)
	}
	lapi := exec.Command("ip", "netns", "exec", m.ns, "crowdsec", "-c", config, "-no-cs")
	if err := lapi.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { lapi.Process.Kill(); lapi.Wait() }()
	await.OK(t, func() error {
		args := []string{"netns", "exec", m.ns, "cscli", "-c", config, "decisions", "list"}
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("the local API does not answer: %s", out)
		}
		return nil
	})
	cscli("decisions", "import", "-i", filepath.Join(dir, "d.csv"), "-R", "import")
	cscli("decisions", "add", "--ip", "100.0.0.1", "--duration", "8h", "--reason", "another")
	m.start()
	m.decisions(n, "applied", nil)
	id := longestDecision(t, cscli("decisions", "list", "--ip", "100.0.0.1", "-o", "json"))
	cscli("decisions", "delete", "--id", strconv.Itoa(id))
	m.await("the longer of two bans is deleted", func(*agent.Status) bool {
		list := m.levee("agent", "list", "100.0.0.1")
		return strings.Contains(list, "3h") && !strings.Contains(list, "7h")
	})
	cscli("decisions", "delete", "--all")
	m.decisions(0, "withdrawn", nil)
}

// longestDecision is the id of the decision with the longest duration in what cscli lists.
func longestDecision(t *testing.T, text string) int {
	t.Helper()
	var alerts []struct {
		Decisions []struct {
			ID       int    `json:"id"`
			Duration string `json:"duration"`
		} `json:"decisions"`
	}
	if err := json.Unmarshal([]byte(text[max(0, strings.Index(text, "[")):]), &alerts); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	id, most := 0, time.Duration(0)
	for _, a := range alerts {
		for _, d := range a.Decisions {
			if left, err := time.ParseDuration(d.Duration); err == nil && left > most {
				id, most = d.ID, left
			}
		}
	}
	return id
}
