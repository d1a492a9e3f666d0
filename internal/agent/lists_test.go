package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/crowdsec"
	"levee/internal/agent/feed"
	"levee/internal/agent/ledger"
	"levee/internal/agent/part"
	"levee/internal/dataplane/sets"
)

func newFake() *fake { return &fake{sets: map[string]map[netip.Prefix]time.Duration{}} }

const oneFeed = `source "drop" feed file "DIR/list" every 10s add to s lease 1h` + "\n"

// block are n addresses, from the i-th on.
func block(i, n int) []netip.Prefix {
	var out []netip.Prefix
	for ; n > 0; i, n = i+1, n-1 {
		a := netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)})
		out = append(out, netip.PrefixFrom(a, 32))
	}
	return out
}

func result(etag string, all ...[]netip.Prefix) *feed.Result {
	l := &feed.List{Prefixes: slices.Concat(all...)}
	slices.SortFunc(l.Prefixes, netip.Prefix.Compare)
	return &feed.Result{List: l, State: feed.State{ETag: etag}}
}

// held says whether a change waits, and how large it is.
func (l *lister) waits() string {
	if l.held == nil {
		return "no"
	}
	return fmt.Sprintf("+%d -%d", len(l.held.added), len(l.held.removed))
}

func TestWhichChangesOfAFeedWait(t *testing.T) {
	for _, test := range []struct {
		name string
		old  []netip.Prefix
		next []netip.Prefix
		want string
		has  int
	}{
		{"the first", nil, block(0, 100), "no", 100},
		{"none", block(0, 100), block(0, 100), "no", 100},
		{"a quarter", block(0, 100), block(25, 100), "no", 100},
		{"a third more", block(0, 100), block(0, 134), "+34 -0", 100},
		{"a third less", block(0, 100), block(0, 66), "+0 -34", 100},
		{"other ones", block(0, 100), block(200, 100), "+100 -100", 100},
		{"an empty list", block(0, 100), nil, "+0 -100", 100},
		{"few of few", block(0, 6), block(4, 6), "no", 6},
		{"an empty list of few", block(0, 6), nil, "+0 -6", 6},
		{"all of few", block(0, 6), block(10, 6), "no", 6},
		{"every /8", block(0, 1000), append(block(0, 1000), wide(11, 100)...), "+89 -0", 1000},
		{"one /8", block(0, 1000), append(block(0, 1000), wide(11, 12)...), "+1 -0", 1000},
		{"one /8 less", append(block(0, 1000), wide(11, 12)...), block(0, 1000), "+0 -1", 1001},
		{"a /8 within", wide(11, 12), append(wide(11, 12), netip.MustParsePrefix("11.9.0.0/16")),
			"no", 2},
		{"a /24", block(0, 10), append(block(0, 10), netip.MustParsePrefix("11.0.0.0/24")),
			"no", 11},
		{"IPv6 of a provider", block(0, 100), append(block(0, 100),
			netip.MustParsePrefix("2001:db8::/32")), "+1 -0", 100},
		{"too much at first", nil, wide(11, 60), "+49 -0", 0},
		{"a /8 at first", nil, append(block(0, 100), wide(8, 9)...), "+101 -0", 0},
		{"a /11 at first", nil, []netip.Prefix{netip.MustParsePrefix("8.0.0.0/11")}, "+1 -0", 0},
		{"a /12 at first", nil, []netip.Prefix{netip.MustParsePrefix("8.0.0.0/12")}, "no", 1},
		{"a /8 among many", twelves(4), append(twelves(4), wide(8, 9)...), "+1 -0", 64},
		{"another /8", wide(11, 16), append(wide(11, 16), wide(20, 21)...), "no", 6},
		{"IPv6 of a region at first", nil, []netip.Prefix{netip.MustParsePrefix("2600::/12")},
			"+1 -0", 0},
		{"what is not public", nil, wide(224, 255), "no", 15},
	} {
		k := newFake()
		a := start(t, t.TempDir(), k, oneFeed)
		loop(t, a)
		l := a.lists[0]
		if len(test.old) > 0 {
			a.fed(t.Context(), l, result("1", test.old), nil)
			if l.held != nil {
				a.accept(t, "drop")
			}
		}
		a.fed(t.Context(), l, result("2", test.next), nil)
		if got := l.waits(); got != test.want || len(k.sets["s"]) != test.has {
			t.Errorf("%s: waits %s, wanted %s; %d entries, wanted %d", test.name, got, test.want,
				len(k.sets["s"]), test.has)
		}
	}
}

// twelves are the /12 of so many /8 from 11.0.0.0 on.
func twelves(n int) (out []netip.Prefix) {
	for i := range 16 * n {
		out = append(out, netip.PrefixFrom(netip.AddrFrom4([4]byte{11 + byte(i>>4), byte(i << 4)}),
			12))
	}
	return out
}

// accept has a change that waits taken.
func (a *Agent) accept(t *testing.T, source string) {
	t.Helper()
	var in AcceptInput
	in.Body.Source = source
	if _, err := a.acceptQuery(t.Context(), &in); err != nil {
		t.Fatal(err)
	}
}

// wide are the /8 from one to below another.
func wide(from, to byte) (out []netip.Prefix) {
	for i := from; i < to; i++ {
		out = append(out, netip.PrefixFrom(netip.AddrFrom4([4]byte{i}), 8))
	}
	return out
}

// TestAShareOfTheInternetIsAcceptedOnce: who has accepted a list of many countries is not asked
// again as long as it does not grow.
func TestAShareOfTheInternetIsAcceptedOnce(t *testing.T) {
	k := newFake()
	a := start(t, t.TempDir(), k, oneFeed)
	l := a.lists[0]
	loop(t, a)
	a.fed(t.Context(), l, result("1", wide(11, 60)), nil)
	if s := l.status.Held; s == nil ||
		s.Why != "the list would hold 22 % of all public IPv4 addresses" {
		t.Fatalf("%+v", s)
	}
	a.accept(t, "drop")
	if all := a.current().Alarms; len(all) != 0 {
		t.Errorf("still an alarm: %v", all)
	}
	a.fed(t.Context(), l, result("2", wide(11, 59)), nil)
	if l.waits() != "no" || len(k.sets["s"]) != 48 {
		t.Errorf("waits %s, %d entries", l.waits(), len(k.sets["s"]))
	}
}

// TestAListThatTimesOutSaidNothingToDo: nor did one whose server answers something else.
func TestAListThatTimesOutSaidNothingToDo(t *testing.T) {
	late := &url.Error{Op: "Get", URL: "https://l.example/", Err: context.DeadlineExceeded}
	t.Setenv("INVOCATION_ID", "") // no service
	for _, c := range []struct {
		err  error
		want string
	}{
		{late, "curl -v 'https://l.example/'"},
		{&net.DNSError{Err: "no such host", Name: "l.example"}, "getent ahosts l.example"},
		{&feed.Refused{Status: "404 Not Found"}, "curl -I 'https://l.example/'"},
		{&feed.Refused{Status: "429 Too Many Requests"}, "wait: it is asked again"},
		{&feed.Refused{Status: "503 Service Unavailable"}, "wait: it is asked again"},
		{&feed.Refused{Status: "403 Forbidden", Key: "/k"}, "a key that it takes into /k"},
		{&fs.PathError{Op: "open", Path: "/k", Err: fs.ErrNotExist},
			"whether /k is the right path"},
		{errors.New("too many entries: raise its max"), ""},
	} {
		l := &lister{err: c.err, status: ListStatus{Place: "https://l.example/"}}
		if got := l.advise(); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

func TestAChangeThatWaitsIsShownAndAccepted(t *testing.T) {
	k := newFake()
	a := start(t, t.TempDir(), k, oneFeed)
	l := a.lists[0]
	loop(t, a)
	a.fed(t.Context(), l, result("1", block(0, 20)), nil)
	a.fed(t.Context(), l, result("2", block(0, 2), block(50, 30)), nil)
	if all := a.current().Alarms; len(all) != 1 || !strings.Contains(all[0].Text,
		"30 entries more, 18 fewer; to do: levee agent diff drop; then levee agent accept drop") {
		t.Errorf("%v", all)
	}
	if s := a.current().Lists[0]; s.Held == nil || s.Held.Added != 30 || s.Entries != 20 {
		t.Errorf("%+v", s)
	}
	r, err := a.heldQuery(t.Context(), &HeldQuery{Source: "drop"})
	if err != nil || len(r.Held) != 1 || len(r.Held[0].Added) != 30 ||
		len(r.Held[0].Removed) != 18 || r.Held[0].Added[0] != "100.64.0.50" {
		t.Fatal(r, err)
	}
	accept := func(name string) (*Accepted, error) {
		var in AcceptInput
		in.Body.Source = name
		return a.acceptQuery(t.Context(), &in)
	}
	if _, err := accept("none"); err == nil {
		t.Error("a source that there is not was accepted")
	}
	if done, err := accept("drop"); err != nil || done.Added != 30 || done.Removed != 18 {
		t.Error(done, err)
	}
	if _, err := accept("drop"); err == nil {
		t.Error("accepted twice")
	}
	if want := slices.Concat(block(0, 2), block(50, 30)); len(k.sets["s"]) != len(want) {
		t.Errorf("%d entries", len(k.sets["s"]))
	}
	if s := a.feedState(t.Context(), l); s.ETag != "2" {
		t.Errorf("the next reading asks with %+v", s)
	}
	// one that goes back to what there was waits no more
	a.fed(t.Context(), l, result("3"), nil)
	if l.waits() != "+0 -32" {
		t.Errorf("waits %s", l.waits())
	}
	a.fed(t.Context(), l, &feed.Result{Unchanged: true}, nil)
	if l.waits() != "no" || l.status.Held != nil {
		t.Errorf("waits %s", l.waits())
	}
}

// loop does what comes to the loop of an agent that does not run. Lists are read by the test alone.
func loop(t *testing.T, a *Agent) {
	quiet(t, a)
	a.gone = make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case op := <-a.ops:
				op()
			case <-a.gone:
				return
			}
		}
	}()
	t.Cleanup(func() { close(a.gone); <-done })
}

// quiet ends the reading of lists.
func quiet(t *testing.T, a *Agent) {
	for _, l := range a.lists {
		l.cancel()
	}
	a.reading.Wait()
	for _, l := range a.lists {
		l.ctx, l.cancel = context.WithCancel(t.Context())
		l.part = a.parts.Begin(part.List, l.Name, "")
	}
}

func TestWhatLeavesAFeedIsWithdrawnForItAlone(t *testing.T) {
	k := newFake()
	dir := t.TempDir()
	a := start(t, dir, k, one+oneFeed)
	loop(t, a)
	l := a.lists[0]
	write(t, dir+"/eve.json", "100.64.0.3")
	for a.poll(t.Context()) {
	}
	foreign := block(4, 1)[0] // a command has put it there
	k.sets["s"][foreign] = 30 * time.Minute
	a.fed(t.Context(), l, result("1", block(0, 8)), nil)
	if n := len(k.sets["s"]); n != 8 || k.sets["s"][foreign] < 59*time.Minute {
		t.Errorf("%d entries, %v", n, k.sets["s"])
	}
	a.fed(t.Context(), l, result("2", block(0, 2)), nil)
	left := slices.SortedFunc(maps.Keys(k.sets["s"]), netip.Prefix.Compare)
	if want := slices.Concat(block(0, 2), block(3, 2)); !slices.Equal(left, want) {
		t.Errorf("%v are left, wanted %v", left, want)
	}
	if d := k.sets["s"][foreign]; d > 31*time.Minute {
		t.Errorf("the command's entry has a lease of %v", d)
	}
	drop := func(l ledger.Lease) bool { return l.Origin == "drop" }
	if n, err := a.withdraw(t.Context(), drop); n != 2 || err != nil {
		t.Error(n, err)
	}
	if len(k.sets["s"]) != 2 {
		t.Errorf("%v", k.sets["s"])
	}
}

func TestAFeedIsRenewedWhileItIsReadAndKeptWhileItCannotBe(t *testing.T) {
	k := newFake()
	a := start(t, t.TempDir(), k, oneFeed)
	loop(t, a)
	l := a.lists[0]
	a.fed(t.Context(), l, result("1", block(0, 20)), nil)
	age := func() {
		for p := range k.sets["s"] {
			k.sets["s"][p] = time.Minute
		}
		soon := map[ledger.Entry]time.Time{}
		for _, p := range block(0, 20) {
			soon[ledger.Of(p)] = time.Now().Add(time.Minute)
		}
		c := &claim{set: "s", origin: "drop", until: endings(soon)}
		if _, err := a.give(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name string
		read *feed.Result
		err  error
		want time.Duration
	}{
		{"unchanged", &feed.Result{Unchanged: true, State: feed.State{ETag: "1"}}, nil, time.Hour},
		{"the same", result("1", block(0, 20)), nil, time.Hour},
		{"empty, and waits", result("2"), nil, time.Hour},
		{"an error", nil, errors.New("no route to host"), time.Minute},
	} {
		age()
		a.fed(t.Context(), l, test.read, test.err)
		for p, d := range k.sets["s"] {
			if (d - test.want).Abs() > 10*time.Second {
				t.Errorf("%s: the lease of %v is %v", test.name, p, d)
				break
			}
		}
		if len(k.sets["s"]) != 20 || (test.err != nil) != (l.status.Error != "") {
			t.Errorf("%s: %d entries, %+v", test.name, len(k.sets["s"]), l.status)
		}
	}
}

func TestAFeedGoesOnAfterARestart(t *testing.T) {
	k := newFake()
	dir := t.TempDir()
	a := start(t, dir, k, oneFeed)
	loop(t, a)
	if got, err := a.fed(t.Context(), a.lists[0], result("1", block(0, 20)), nil); err != nil ||
		got.ETag != "1" {
		t.Errorf("%+v, %v", got, err)
	}
	a.ledger.Close()
	a = start(t, dir, k, oneFeed)
	loop(t, a)
	l := a.lists[0]
	if got := a.feedState(t.Context(), l); got.ETag != "1" {
		t.Errorf("after a restart: %+v", got)
	}
	a.fed(t.Context(), l, result("2"), nil)
	if l.waits() != "+0 -20" {
		t.Errorf("an empty list waits %s", l.waits())
	}
	if _, err := a.withdraw(t.Context(), func(l ledger.Lease) bool {
		return l.Entry.Prefix == block(3, 1)[0]
	}); err != nil {
		t.Fatal(err)
	}
	if got := a.feedState(t.Context(), l); got != (feed.State{}) {
		t.Errorf("after a withdrawal: %+v", got)
	}
	a.ledger.Close()
	a = start(t, dir, k, strings.Replace(oneFeed, "lease 1h", "lease 2h", 1))
	loop(t, a)
	if got := a.feedState(t.Context(), a.lists[0]); got != (feed.State{}) {
		t.Errorf("after a change of the source: %+v", got)
	}
}

func TestWhomNobodyMayHoldNoFeedHolds(t *testing.T) {
	k := newFake()
	a := start(t, t.TempDir(), k, oneFeed)
	loop(t, a)
	l := a.lists[0]
	kept := netip.MustParsePrefix("192.0.0.0/16") // protected: 192.0.2.0/24
	got, _ := a.fed(t.Context(), l, result("1", block(0, 20), []netip.Prefix{kept,
		netip.MustParsePrefix("127.0.0.0/8")}), nil)
	if len(k.sets["s"]) != 20 || l.status.Refused != 2 || a.status.Refused != 2 ||
		l.waits() != "no" {
		t.Errorf("%d entries, %+v", len(k.sets["s"]), l.status)
	}
	if got != (feed.State{}) {
		t.Errorf("the next reading would not bring what was refused: %+v", got)
	}
}

func decision(id int64, addr, left string) crowdsec.Decision {
	return crowdsec.Decision{ID: id, Type: "ban", Scope: "Ip", Value: addr, Duration: left}
}

func TestDecisionsBecomeLeases(t *testing.T) {
	k := newFake()
	a := start(t, t.TempDir(), k,
		`source "cs" crowdsec url "http://127.0.0.1:1" key "/none" add to s`+"\n")
	loop(t, a)
	l := a.lists[0]
	bans := crowdsec.NewBans(l.CrowdSec)
	told := func(all bool, s crowdsec.Stream) {
		t.Helper()
		if all {
			bans = crowdsec.NewBans(l.CrowdSec)
		}
		if !a.decided(t.Context(), l, bans, bans.Apply(&s, time.Now()), all, nil) {
			t.Error(l.status.Error)
		}
	}
	check := func(when string, want map[string]time.Duration) {
		t.Helper()
		got := map[string]time.Duration{}
		for p, d := range k.sets["s"] {
			got[ledger.Of(p).String()] = d.Round(time.Minute)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, wanted %v", when, got, want)
		}
	}
	told(true, crowdsec.Stream{New: []crowdsec.Decision{decision(1, "100.64.0.1", "1h"),
		decision(2, "100.64.0.1", "4h"), decision(3, "100.64.0.2", "1h"),
		decision(4, "192.0.2.9", "1h")}})
	check("at first", map[string]time.Duration{"100.64.0.1": 4 * time.Hour,
		"100.64.0.2": time.Hour})
	told(false, crowdsec.Stream{Deleted: []crowdsec.Decision{decision(2, "100.64.0.1", "-1s"),
		decision(3, "100.64.0.2", "-1s")}})
	check("the longer one is deleted", map[string]time.Duration{"100.64.0.1": time.Hour})
	told(false, crowdsec.Stream{New: []crowdsec.Decision{decision(5, "100.64.0.1", "2h")}})
	check("another one", map[string]time.Duration{"100.64.0.1": 2 * time.Hour})
	told(false, crowdsec.Stream{Deleted: []crowdsec.Decision{decision(5, "100.64.0.1", "-1s")}})
	told(false, crowdsec.Stream{})
	check("the first goes on", map[string]time.Duration{"100.64.0.1": time.Hour})
	told(true, crowdsec.Stream{New: []crowdsec.Decision{decision(9, "100.64.0.7", "1h")}})
	check("all anew", map[string]time.Duration{"100.64.0.7": time.Hour})
	a.decided(t.Context(), l, bans, nil, false, errors.New("connection refused"))
	check("the API is away", map[string]time.Duration{"100.64.0.7": time.Hour})
	told(true, crowdsec.Stream{})
	check("no decisions", map[string]time.Duration{})
	if n := a.ledger.Leases(); n != 0 {
		t.Errorf("%d leases", n)
	}
}

// TestAnEntryThatSomebodyLeasesLongerStays: a claim that ends sooner shortens its own lease alone.
func TestAnEntryThatSomebodyLeasesLongerStays(t *testing.T) {
	k := newFake()
	a := start(t, t.TempDir(), k, "")
	loop(t, a)
	p := block(0, 1)[0]
	give := func(origin string, d time.Duration) {
		t.Helper()
		c := claim{set: "s", origin: origin, complete: true}
		if d == sets.Forever {
			c.until = []ending{{entry: ledger.Of(p)}}
		} else if d > 0 {
			c.until = []ending{{ledger.Of(p), time.Now().Add(d)}}
		}
		if _, err := a.give(t.Context(), &c); err != nil {
			t.Fatal(err)
		}
	}
	for i, step := range []struct {
		origin string
		lease  time.Duration
		want   time.Duration
	}{
		{"a", 2 * time.Hour, 2 * time.Hour},
		{"b", time.Hour, 2 * time.Hour},
		{"a", time.Minute, time.Hour},
		{"c", sets.Forever, sets.Forever},
		{"b", 0, sets.Forever},
		{"c", 3 * time.Hour, 3 * time.Hour},
		{"c", 0, time.Minute},
		{"a", 0, 0},
	} {
		give(step.origin, step.lease)
		got := k.sets["s"][p]
		if step.want == sets.Forever && got != step.want ||
			step.want != sets.Forever && (got-step.want).Abs() > 10*time.Second {
			t.Errorf("step %d: %v, wanted %v", i, got, step.want)
		}
	}
}

// TestWhileALargeListIsTakenOthersHaveTheirTurn: the loop did nothing else until the last of its
// entries was on the disk and in the kernel. It takes one piece in a turn.
func TestWhileALargeListIsTakenOthersHaveTheirTurn(t *testing.T) {
	k := newFake()
	a := start(t, t.TempDir(), k, oneFeed)
	quiet(t, a)
	l := a.lists[0]
	turns := func(r *feed.Result) (leases []int, state feed.State) {
		done := make(chan struct{})
		go func() { defer close(done); state, _ = a.fed(t.Context(), l, r, nil) }()
		for {
			select {
			case op := <-a.ops:
				op()
				leases = append(leases, a.ledger.Leases())
				if n := len(k.sets["s"]); n != a.ledger.Leases() {
					t.Fatalf("%d leases, %d entries in the kernel", a.ledger.Leases(), n)
				}
			case <-done:
				return leases, state
			}
		}
	}
	n := 3*atOnce + 5
	for _, step := range []struct {
		name  string
		list  *feed.Result
		want  int
		least int // leases that there may be meanwhile
	}{
		{"the first list", result("1", block(0, n)), n, 0},
		{"a fifth moves", result("2", block(n/5, n)), n, n - n/5},
		{"unchanged", &feed.Result{Unchanged: true}, n, n},
	} {
		before := a.ledger.Leases()
		seen, state := turns(step.list)
		for _, now := range seen {
			if d := now - before; d > atOnce || -d > atOnce || now < step.least {
				t.Errorf("%s: from %d leases to %d in a turn", step.name, before, now)
			}
			before = now
		}
		if before != step.want || state.ETag == "" {
			t.Errorf("%s: %d leases, wanted %d; the next reading asks with %+v", step.name,
				before, step.want, state)
		}
	}
}

// TestAListThatIsTakenInPartIsReadWhole: an agent that was killed between two pieces has no note of
// what was taken, also where the count of leases is that of before.
func TestAListThatIsTakenInPartIsReadWhole(t *testing.T) {
	dir := t.TempDir()
	a := start(t, dir, newFake(), oneFeed)
	loop(t, a)
	a.fed(t.Context(), a.lists[0], result("1", block(0, 2*atOnce)), nil)
	a.ledger.Close()
	a = start(t, dir, newFake(), oneFeed)
	quiet(t, a)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l := a.lists[0]
		list := result("2", block(2*atOnce, 2*atOnce)).List
		if _, _, err := a.take(ctx, l, list, feed.State{ETag: "2"}); err == nil {
			t.Error("it was taken whole")
		}
	}()
	for a.ledger.Leases() == 2*atOnce { // until the first piece
		(<-a.ops)()
	}
	cancel()
	<-done
	a.ledger.Close()
	a = start(t, dir, newFake(), oneFeed)
	loop(t, a)
	if got := a.ledger.Position(listPosition(a.lists[0].List)); len(got) > 0 {
		t.Errorf("the ledger notes %s", got)
	}
	if got := a.feedState(t.Context(), a.lists[0]); got != (feed.State{}) {
		t.Errorf("the next reading asks with %+v", got)
	}
}
