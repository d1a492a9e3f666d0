package agent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"levee/internal/agent/inforce"
	"levee/internal/agent/ledger"
	"levee/internal/await"
	"levee/internal/dataplane/sets"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

var leases = flag.Int("leases", 20_000, "how many leases the test of a restart has")

// fake is a kernel with sets of any size, but for the names that it lacks.
type fake struct {
	mu   sync.Mutex
	sets map[string]map[netip.Prefix]time.Duration
	max  int
	deaf error // of Lower

	raises int // calls
}

func (k *fake) Raise(_ context.Context, set string, entries []sets.Entry, _ time.Time) (
	raised, left int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.raises++
	if strings.HasPrefix(set, "no") {
		return 0, 0, sets.ErrNoSet
	}
	if k.sets[set] == nil {
		k.sets[set] = map[netip.Prefix]time.Duration{}
	}
	for _, e := range entries {
		had, ok := k.sets[set][e.Prefix]
		switch {
		case ok && (had == sets.Forever || e.Lease != sets.Forever && had >= e.Lease):
		case !ok && k.max > 0 && len(k.sets[set]) >= k.max:
			left++
		default:
			k.sets[set][e.Prefix] = e.Lease
			raised++
		}
	}
	return raised, left, nil
}

func (k *fake) Lower(_ context.Context, set string, entries []sets.Lowered,
	_ time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.deaf != nil {
		return k.deaf
	}
	for _, e := range entries {
		if e.Lease == 0 {
			delete(k.sets[set], e.Prefix)
		} else {
			k.sets[set][e.Prefix] = e.Lease
		}
	}
	return nil
}

func (k *fake) Leases(_ context.Context, set string, entries []sets.Entry) (
	out []sets.Entry, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range entries {
		if lease, ok := k.sets[set][e.Prefix]; ok {
			e.Lease = lease
			out = append(out, e)
		}
	}
	return out, nil
}

func (k *fake) Close() {}

// slow is a kernel that lets whoever asks for leases wait.
type slow struct {
	*fake
	answered time.Time
}

func (k *slow) Leases(ctx context.Context, set string, entries []sets.Entry) (
	out []sets.Entry, err error) {
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
	k.answered = time.Now()
	return k.fake.Leases(ctx, set, entries)
}

// A lease of a command ends no sooner in the ledger than in the kernel, which would take it for
// somebody else's and not let it go, however long it has let the agent wait.
func TestALeaseOfACommandEndsNoSoonerInTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := netip.MustParsePrefix("198.51.100.9/32")
		k := &slow{fake: &fake{sets: map[string]map[netip.Prefix]time.Duration{
			"s": {p: time.Hour}}}}
		a := start(t, t.TempDir(), k, "")
		found := a.found(t.Context(), map[string][]sets.Entry{"s": {{Prefix: p}}},
			time.Now())
		if len(found) != 1 {
			t.Fatalf("found %v", found)
		}
		if ends := k.answered.Add(time.Hour); found[0].Until.Before(ends) {
			t.Errorf("the lease ends %v before the kernel's", ends.Sub(found[0].Until))
		}
	})
}

// TestADoorThatAKnockOpenedStoodOpen: an entry of half a minute was leased, and the machine began
// anew with a clock that was ten minutes behind. The kernel was given ten minutes and a half.
func TestADoorThatAKnockOpenedStoodOpen(t *testing.T) {
	dir := t.TempDir()
	const lasts, behind = 30 * time.Second, 10 * time.Minute
	p := netip.MustParsePrefix("198.51.100.9/32")
	l, err := ledger.Open(filepath.Join(dir, "agent.db"), 0)
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now().Add(behind)
	if err := errors.Join(l.Record([]ledger.Lease{{Set: "s", Entry: ledger.Of(p), Origin: "ops",
		Since: before, Until: before.Add(lasts)}}, nil), l.Close()); err != nil {
		t.Fatal(err)
	}
	k := &fake{sets: map[string]map[netip.Prefix]time.Duration{}}
	a := start(t, dir, k, "")
	a.compare(t.Context())
	if has := k.sets["s"][p]; has <= 0 || has > lasts+time.Second {
		t.Errorf("the kernel has it for %v, of %v", has, lasts)
	}
	if n := len(a.status.Alarms); n != 1 ||
		!strings.Contains(a.status.Alarms[0].Text, "the clock has jumped back by 10m") {
		t.Errorf("%d alarms: %v", n, a.status.Alarms)
	}
}

// TestALeaseWithoutAnAgentTellsOfTheClock: a command that leases where no agent runs, on a machine
// with an older time, fell over the events that it has not.
func TestALeaseWithoutAnAgentTellsOfTheClock(t *testing.T) {
	k := &fake{sets: map[string]map[netip.Prefix]time.Duration{}}
	a := start(t, t.TempDir(), k, "")
	later := time.Now().Add(time.Hour)
	if err := a.ledger.Record([]ledger.Lease{{Set: "s", Origin: "ops", Since: later,
		Entry: ledger.Of(netip.MustParsePrefix("198.51.100.9/32"))}}, nil); err != nil {
		t.Fatal(err)
	}
	said := ""
	a.opts.Log = func(f string, args ...any) { said += fmt.Sprintf(f, args...) }
	in := &AddInput{}
	in.Body.Set, in.Body.Lease, in.Body.Entries = "s", "10m", []string{"198.51.100.1"}
	n, err := LeaseOnce(t.Context(), a.ledger, a.opts, in)
	if err != nil || n != 1 || !strings.Contains(said, "the clock has jumped back by 1h") {
		t.Errorf("%d, %v, %q", n, err, said)
	}
}

// jumping is a kernel at whose first call the clock has jumped back.
type jumping struct {
	*fake
	jump func()
}

func (k *jumping) Raise(ctx context.Context, set string, of []sets.Entry, at time.Time) (int, int,
	error) {
	if k.jump != nil {
		k.jump()
		k.jump = nil
	}
	return k.fake.Raise(ctx, set, of, at)
}

// TestAClockThatJumpsAmidAComparison: leases are moved with it, and the time of the comparison was
// that of before: entries of other pages got what was left and the jump, years at a boot in 1970.
func TestAClockThatJumpsAmidAComparison(t *testing.T) {
	k := &jumping{fake: &fake{sets: map[string]map[netip.Prefix]time.Duration{}}}
	a := start(t, t.TempDir(), k, "")
	const by, lasts = 10 * time.Hour, time.Hour
	now := time.Now()
	var all []ledger.Lease
	for i := range 2 * atOnce {
		addr := netip.AddrFrom4([4]byte{11, 0, byte(i >> 8), byte(i)})
		all = append(all, ledger.Lease{Set: "s", Origin: "ops", Since: now,
			Until: now.Add(by + lasts), Entry: ledger.Of(netip.PrefixFrom(addr, 32))})
	}
	if err := a.ledger.Record(all, nil); err != nil {
		t.Fatal(err)
	}
	a.now()
	k.jump = func() { // another has the ledger for ten hours, and the clock goes back by them
		path := a.opts.Ledger
		if err := a.ledger.Close(); err != nil {
			t.Fatal(err)
		}
		l, err := ledger.Open(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		a.ledger = l
		t.Cleanup(func() { l.Close() })
		if err := l.Record([]ledger.Lease{{Set: "no-such", Origin: "ops", Since: now.Add(by),
			Entry: ledger.Of(netip.MustParsePrefix("198.51.100.9/32"))}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	a.compare(t.Context())
	if n := len(k.sets["s"]); n != len(all) {
		t.Errorf("the kernel has %d of %d", n, len(all))
	}
	last := all[len(all)-1].Entry.Prefix
	if has := k.sets["s"][last]; has > lasts+time.Second {
		t.Errorf("the kernel has the last one for %v, of %v", has, lasts)
	}
	if n := a.ledger.Leases(); n != len(all)+1 {
		t.Errorf("the ledger has %d of %d leases", n, len(all)+1)
	}
}

// start makes an agent that reads a file from its beginning, with what Run does before its loop.
func start(t testing.TB, dir string, k Kernel, more string) *Agent {
	t.Helper()
	text := "set s = dynamic(max 10000000)\nset no-such = dynamic(max 10)\n" +
		"protect from { 192.0.2.0/24, 3fff::7 }\ndrop from s\ndrop from no-such\n" +
		"default pass\n" + more
	p, ds := resolve.Parse("e.levee", []byte(strings.ReplaceAll(text, "DIR", dir)), nil)
	if p == nil {
		t.Fatal(ds)
	}
	l, err := ledger.Open(filepath.Join(dir, "agent.db"), 0)
	if err != nil {
		t.Fatal(err)
	}
	a := newAgent(Options{Kernel: k, Ledger: filepath.Join(dir, "agent.db"), FromStart: true,
		Interval: time.Second,
		Policies: func(context.Context) ([]*policy.Policy, error) {
			return []*policy.Policy{p}, nil
		},
		InForce: func(context.Context) (string, error) { return "", nil },
		Counted: new(inforce.Watcher).Counted,
		Others: func(context.Context) (map[netip.Prefix]string, error) {
			return nil, nil
		},
		Notify: func(string) error { return nil }, Log: t.Logf})
	a.ledger = l
	if err := a.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.closeSources(); l.Close() })
	return a
}

const one = `source "ids" eve file "DIR/eve.json" add src_ip to s lease 1h` + "\n"

func write(t *testing.T, file string, addrs ...string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, a := range addrs {
		fmt.Fprintf(f, "{\"src_ip\":%q}\n", a)
	}
}

func TestWhatTheKernelLacksIsPutBack(t *testing.T) {
	dir := t.TempDir()
	k := &fake{sets: map[string]map[netip.Prefix]time.Duration{}}
	a := start(t, dir, k, one+`source "x" eve file "DIR/eve.json" add src_ip to no-such`+"\n")
	write(t, dir+"/eve.json", "198.51.100.1", "192.0.2.1", "127.0.0.1", "2001:db8::1")
	for a.poll(t.Context()) {
	}
	a.compare(t.Context())
	s := a.current()
	if s.Compare.Entries != 4 || s.Compare.Held != 2 || s.Enforced != 50 || s.Refused != 4 ||
		len(s.Refusals) != 4 || s.Refusals[0].Why == "" {
		t.Errorf("%+v", s)
	}
	other := netip.MustParsePrefix("203.0.113.0/24")
	k.sets["s"] = map[netip.Prefix]time.Duration{other: time.Hour}
	a.compare(t.Context())
	if s := a.current(); s.Compare.Repaired != 2 || len(k.sets["s"]) != 3 {
		t.Errorf("%+v, in the kernel %v", s.Compare, k.sets)
	}
	ids := func(l ledger.Lease) bool { return l.Origin == "ids" }
	if n, err := a.withdraw(t.Context(), ids); n != 2 || err != nil {
		t.Errorf("%d withdrawn, %v", n, err)
	}
	if _, there := k.sets["s"][other]; !there || len(k.sets["s"]) != 1 {
		t.Errorf("in the kernel %v", k.sets)
	}
}

// TestANetworkOfOnesOwnIsNotLeasedForANeighbour: of IPv6 a /64 is leased, unless it holds whom no
// entry may hold; then it is the address alone. Whoever withdraws an address is told of the
// network.
func TestANetworkOfOnesOwnIsNotLeasedForANeighbour(t *testing.T) {
	dir := t.TempDir()
	k := &fake{sets: map[string]map[netip.Prefix]time.Duration{}}
	a := start(t, dir, k, one)
	own := netip.MustParsePrefix("2001:db8:1::1/128")
	a.opts.Others = func(context.Context) (map[netip.Prefix]string, error) {
		return map[netip.Prefix]string{own: "an address of this machine"}, nil
	}
	a.protects = nil
	write(t, dir+"/eve.json", "2001:db8::1", "2001:db8::2", "2001:db8:1::2", "2001:db8:1::1",
		"3fff::9") // start protects 3fff::7
	for a.poll(t.Context()) {
	}
	for _, p := range []string{"2001:db8::/64", "2001:db8:1::2/128", "3fff::9/128"} {
		if _, there := k.sets["s"][netip.MustParsePrefix(p)]; !there {
			t.Errorf("%s is not in the kernel: %v", p, k.sets["s"])
		}
	}
	if len(k.sets["s"]) != 3 || a.current().Refused != 1 {
		t.Errorf("in the kernel %v, %+v", k.sets["s"], a.current().Refusals)
	}
	f, err := newFilter("", "", []string{"2001:db8::2"})
	if err != nil {
		t.Fatal(err)
	}
	var done Withdrawn
	n, err := a.withdraw(t.Context(), f.Noting(&done))
	if n != 0 || err != nil || !slices.Equal(done.Wider, []string{"2001:db8::/64"}) {
		t.Errorf("%d withdrawn, %+v, %v", n, done, err)
	}
}

// TestAWithdrawalThatTheKernelDidNotTakeIsTriedAgain: who asks once, as fail2ban does, had its
// entry stay in force. What was leased again since then stays.
func TestAWithdrawalThatTheKernelDidNotTakeIsTriedAgain(t *testing.T) {
	k := &fake{sets: map[string]map[netip.Prefix]time.Duration{}}
	a := start(t, t.TempDir(), k, "")
	one, two := netip.MustParsePrefix("198.51.100.1/32"), netip.MustParsePrefix("198.51.100.2/32")
	ctx := t.Context()
	lease := func(lasts time.Duration, some ...netip.Prefix) {
		t.Helper()
		var entries []ledger.Entry
		for _, p := range some {
			entries = append(entries, ledger.Of(p))
		}
		if err := a.lease(ctx, "s", entries, "fail2ban.sshd", lasts); err != nil {
			t.Fatal(err)
		}
	}
	lease(time.Hour, one, two)
	k.deaf = errors.New("no memory")
	of := func(l ledger.Lease) bool { return l.Origin == "fail2ban.sshd" }
	if n, err := a.withdrawOrOwe(ctx, of); n != 0 || !errors.Is(err, k.deaf) {
		t.Fatalf("%d withdrawn: %v", n, err)
	}
	a.compare(ctx)
	if len(k.sets["s"]) != 2 || len(a.owed) != 2 {
		t.Fatalf("%v, %d owed", k.sets, len(a.owed))
	}
	lease(2*time.Hour, two)
	k.deaf = nil
	a.compare(ctx)
	if _, there := k.sets["s"][two]; !there || len(k.sets["s"]) != 1 || len(a.owed) != 0 {
		t.Errorf("%v, %d owed", k.sets, len(a.owed))
	}
}

// TestOthersGoBetweenThePagesOfALongWork: a comparison of a million entries held the loop for a
// second, and their withdrawal for six. What goes between finds whole entries.
func TestOthersGoBetweenThePagesOfALongWork(t *testing.T) {
	k := &fake{sets: map[string]map[netip.Prefix]time.Duration{}}
	a := start(t, t.TempDir(), k, "")
	ctx, until := t.Context(), time.Now().Add(time.Hour)
	var many []ledger.Lease
	for i := range 3 * atOnce { // pages end in the middle of entries
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)}), 32)
		for n, origin := range []string{"a", "b", "c"} {
			many = append(many, ledger.Lease{Set: "s", Entry: ledger.Of(p), Origin: origin,
				Since: time.Now(), Until: until.Add(time.Duration(n) * time.Minute)})
		}
	}
	if err := a.ledger.Record(many, nil); err != nil {
		t.Fatal(err)
	}
	a.ops = make(chan func(), 1)
	of := func(origins string) func(ledger.Lease) bool {
		return func(l ledger.Lease) bool { return strings.Contains(origins, l.Origin) }
	}
	at := 0
	a.ops <- func() {
		at = k.raises
		if n, err := a.withdraw(ctx, of("c")); n != 3*atOnce || err != nil {
			t.Errorf("%d withdrawn between: %v", n, err)
		}
	}
	a.compare(ctx)
	if c := a.current().Compare; at != 1 || k.raises < 5 || c.Entries != 3*atOnce ||
		c.Held != c.Entries || len(k.sets["s"]) != 3*atOnce {
		t.Errorf("after %d of %d parts; %+v, %d in the kernel", at, k.raises, c, len(k.sets["s"]))
	}
	a.compare(ctx)
	for p, lease := range k.sets["s"] {
		if lease > time.Hour+time.Minute {
			t.Fatalf("%v lasts for %v: the lease of c was withdrawn", p, lease)
		}
	}
	left := 0
	a.ops <- func() { left = a.ledger.Leases() }
	if n, err := a.withdraw(ctx, of("ab")); n != 6*atOnce || err != nil {
		t.Errorf("%d withdrawn: %v", n, err)
	}
	if left == 0 || left == 6*atOnce || len(k.sets["s"]) != 0 || a.ledger.Leases() != 0 {
		t.Errorf("%d leases between, %d entries and %d leases behind", left, len(k.sets["s"]),
			a.ledger.Leases())
	}
}

func TestManyLeasesThatEndTogetherAlarm(t *testing.T) {
	k := &fake{sets: map[string]map[netip.Prefix]time.Duration{}}
	a := start(t, t.TempDir(), k, "")
	var many []ledger.Lease
	past := time.Now().Add(-time.Second)
	for i := range massLeases + 10 {
		many = append(many, ledger.Lease{Set: "s", Origin: "ids", Since: past, Until: past,
			Entry: ledger.Of(netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8),
				byte(i)}), 32))})
	}
	many[0].Until = time.Now().Add(time.Hour)
	if err := a.ledger.Record(many, nil); err != nil {
		t.Fatal(err)
	}
	a.compare(t.Context())
	if s := a.current(); len(s.Alarms) != 1 || s.Compare.Entries != 1 || a.ledger.Leases() != 1 {
		t.Errorf("%+v", s)
	}
}

// childEnv is the directory of the agent that TestKilledAtAnyMoment kills.
const childEnv = "LEVEE_TEST_AGENT_DIR"

// TestChild is that agent, and nothing elsewhere. It prints the leases that it has acknowledged.
func TestChild(t *testing.T) {
	dir := os.Getenv(childEnv)
	if dir == "" {
		return
	}
	a := start(t, dir, &fake{sets: map[string]map[netip.Prefix]time.Duration{}}, one)
	n := 0
	await.Until(func() bool { // until it is killed
		a.poll(t.Context())
		if a.ledger.Leases() != n {
			n = a.ledger.Leases()
			fmt.Fprintln(os.Stderr, "leases", n)
		}
		return false
	})
}

// TestKilledAtAnyMoment kills an agent again and again while events come. What it has acknowledged
// is never lost, and in the end each event has been leased, and none was read twice.
func TestKilledAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	written := 0
	for range 12 {
		child := exec.Command(os.Args[0], "-test.run", "^TestChild$")
		child.Env = append(os.Environ(), childEnv+"="+dir)
		out, err := child.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		acknowledged, until := 0, 1+rng.IntN(5)
		for seen := 0; seen < until; {
			var addrs []string
			for range 50 {
				addrs = append(addrs, netip.AddrFrom4([4]byte{198, byte(written >> 16),
					byte(written >> 8), byte(written)}).String())
				written++
			}
			write(t, dir+"/eve.json", addrs...)
			if _, err := fmt.Fscanf(out, "leases %d\n", &acknowledged); err != nil {
				t.Fatal(err)
			}
			seen++
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		child.Wait() // says that it was killed
		l, err := ledger.Open(filepath.Join(dir, "agent.db"), 0)
		if err != nil || l.Damaged != "" {
			t.Fatal(err, l.Reason)
		}
		if n := l.Leases(); n < acknowledged || n > written {
			t.Errorf("%d leases, acknowledged %d, written %d", n, acknowledged, written)
		}
		l.Close()
	}
	a := start(t, dir, &fake{sets: map[string]map[netip.Prefix]time.Duration{}}, one)
	for a.poll(t.Context()) {
	}
	if a.ledger.Leases() != written || a.sources[0].status.Events > uint64(written) {
		t.Errorf("%d leases of %d events", a.ledger.Leases(), written)
	}
	if _, err := ledger.Open(filepath.Join(dir, "agent.db"), 0); !errors.Is(err, ledger.ErrBusy) {
		t.Error(err)
	}
}

// TestARestartEnforcesAllAgain opens a ledger of five origins and puts all of it into a kernel that
// holds nothing, each lease to its end. -leases 1000000 is what the agent is built for.
func TestARestartEnforcesAllAgain(t *testing.T) {
	dir := t.TempDir()
	l, err := ledger.Open(filepath.Join(dir, "agent.db"), 0)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(time.Hour)
	for done := 0; done < *leases; {
		var some []ledger.Lease
		for ; done < *leases && len(some) < 100_000; done++ {
			a := netip.AddrFrom4([4]byte{10, byte(done >> 16), byte(done >> 8), byte(done)})
			some = append(some, ledger.Lease{Set: "s", Entry: ledger.Of(netip.PrefixFrom(a, 32)),
				Origin: fmt.Sprint("origin", done%5), Since: time.Now(),
				Until: end.Add(time.Duration(done) * time.Millisecond)})
		}
		if err := l.Record(some, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	k := &ends{at: map[netip.Prefix]time.Time{}}
	begun := time.Now()
	a := start(t, dir, k, "")
	a.compare(t.Context())
	t.Logf("%d leases after %v, ledger of %d bytes", *leases, time.Since(begun), a.ledger.Bytes())
	if s := a.current(); s.Enforced != 100 || s.Compare.Entries != *leases {
		t.Errorf("%+v", s.Compare)
	}
	if len(k.at) != *leases {
		t.Errorf("%d entries are in the kernel, want %d", len(k.at), *leases)
	}
	for p, ends := range k.at {
		b := p.Addr().As4()
		want := end.Add(time.Duration(int(b[1])<<16|int(b[2])<<8|int(b[3])) * time.Millisecond)
		if off := ends.Sub(want).Abs(); off > time.Second {
			t.Fatalf("%s ends %v off", p, off)
		}
	}
}
