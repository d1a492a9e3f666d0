package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"levee/internal/await"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
)

// deaf has lv0 receive packets, from when the function that it returns is called, that its driver
// does not ask a native program for, as drivers do that take one and forget it. Time passes as it
// is asked for. veth itself is not so: what is received is made up.
func deaf(t *testing.T) (begin func()) {
	t.Helper()
	var passed, came atomic.Int64
	was, read, from := inspect.Monotonic, inspect.ReadReceived, inspect.Monotonic()
	t.Cleanup(func() { inspect.Monotonic, inspect.ReadReceived = was, read })
	inspect.Monotonic = func() time.Duration {
		return from + time.Duration(passed.Add(1))*400*time.Millisecond
	}
	inspect.ReadReceived = func(l netlink.Link) uint64 {
		n := came.Load()
		if x := l.Attrs().Xdp; n > 0 && x != nil && x.Attached {
			n = came.Add(1)
		}
		return read(l) + uint64(n)
	}
	return func() { came.Store(1) }
}

// `up` believed a driver that took the program: "costs least", and nothing was judged.
func TestUpTakesTheNextHookWhereNoPacketIsJudged(t *testing.T) {
	newTestNet(t)
	tc := must2(attach.TCIngress())
	deaf(t)()
	for _, confirm := range []time.Duration{0, time.Minute} {
		r, err := Up(t.Context(), UpOptions{Dev: "lv0", PolicyPath: "/etc/edge.levee",
			Confirm: confirm},
			compileHand(named("edge.levee", "odd")))
		if err != nil {
			t.Fatal(err)
		}
		const want = "packets come past the policy: driver veth does not ask its program at " +
			"xdp-native " +
			"for them; 3 came, and none was judged; using "
		if r.Mode != tc || !strings.Contains(r.Reason, want+string(tc)) {
			t.Errorf("at %s: %s", r.Mode, r.Reason)
		}
		if a := status(t); a.Mode != tc || a.Judging.State != inspect.NotYet ||
			(a.Trial > 0) != (confirm > 0) {
			t.Errorf("%+v, %+v", a, a.Judging)
		}
		if _, err := Down(t.Context(), "lv0"); err != nil {
			t.Fatal(err)
		}
		runDirIsGone(t)
	}
	before := kernelObjects(t)
	_, err := Up(t.Context(), UpOptions{Dev: "lv0", Mode: store.XDPNative,
		PolicyPath: "/etc/edge.levee"},
		compileHand(named("edge.levee", "odd")))
	if err == nil || !strings.Contains(err.Error(), "cannot attach to lv0: packets come past") {
		t.Errorf("native XDP asked for: %v", err)
	}
	if err := nothingAdded(t, before); err != nil {
		t.Error(err)
	}
	runDirIsGone(t)
}

// What is judged is told, and that nothing was yet: nobody waits where nothing is to be expected.
func TestUpSaysWhetherPacketsWereSeen(t *testing.T) {
	n := newTestNet(t)
	// One that waits takes as long each time; one that does not may, on a busy machine.
	await.True(t, "up does not wait for a packet", func() bool {
		_, _ = Down(t.Context(), "lv0") // what is replaced is not waited for either
		began := time.Now()
		r := bring(t, "lv0", store.Auto, named("edge.levee", "odd"))
		if r.Judging.State != inspect.NotYet {
			t.Fatalf("%+v", r.Judging)
		}
		return time.Since(began) < inspect.FirstWait
	})
	if a := status(t); a.Judging.State != inspect.NotYet || a.Judging.Failed() || a.Judging.Doubt {
		t.Errorf("%+v", a.Judging)
	}
	n.send(t, 5, 1)
	wantPackets(t, "odd", 5)
	if a := status(t); a.Judging.State != inspect.Seen || a.Judging.Doubt {
		t.Errorf("%+v", a.Judging)
	}
	if r := bring(t, "lv0", store.Auto, named("edge.levee",
		"odd")); r.Judging.State != inspect.Seen {
		t.Errorf("a replace at the same hook has not been seen: %+v", r.Judging)
	}
	// A neighbour is asked, and answers.
	ip(t, "addr add 10.77.0.1/24 dev lv0")
	n.inPeer(t, func() { ip(t, "addr add 10.77.0.2/24 dev lv1") })
	lv1 := ""
	n.inPeer(t, func() { lv1 = must2(netlink.LinkByName("lv1")).Attrs().HardwareAddr.String() })
	ip(t, "neigh add 10.77.0.2 lladdr "+lv1+" dev lv0 nud stale")
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	if r := bring(t, "lv0", store.Auto, named("edge.levee",
		"odd")); r.Judging.State != inspect.Seen {
		t.Errorf("a neighbour is there: %+v", r.Judging)
	}
}

// `status`, `doctor` and `--keep` noticed nothing where a driver asks its program no more.
func TestAPolicyThatIsJudgedByNobodyIsToldAndMovedOn(t *testing.T) {
	n := newTestNet(t)
	tc := must2(attach.TCIngress())
	const text = "set abusers = dynamic(max 100)\ndrop from abusers as \"abuser\"\n" +
		"pass udp port 9009 as \"odd\"\ndefault pass\n"
	if err := bringPolicyAt(t, "lv0", store.Auto, text, 0); err != nil {
		t.Fatal(err)
	}
	n.send(t, 7, 1)
	await.OK(t, func() error { return counted(t, "default", 7) })
	if _, err := sets.Add(t.Context(), "lv0", "abusers", entriesOf("192.0.2.1/32")); err != nil {
		t.Fatal(err)
	}
	begin := deaf(t)
	var w inspect.Watcher
	defer w.Close()
	look := func() inspect.Judged {
		t.Helper()
		all, err := w.Look(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		return all[0]
	}
	if j := look(); j.Failed() {
		t.Fatalf("%+v", j)
	}
	begin()
	for range 10 {
		_ = look()
		_ = status(t)
	}
	j, a := look(), status(t)
	if j.State != inspect.Still || a.Judging.State != inspect.Still || a.Judging.Why() == "" {
		t.Fatalf("the watcher says %+v, status %+v", j, a.Judging)
	}
	if _, err := MoveOn(t.Context(), "lv0", j.Next()); err != nil {
		t.Fatal(err)
	}
	moved := status(t)
	if moved.Mode != tc || !strings.Contains(moved.Reason, j.Why()) || moved.Judging.Failed() {
		t.Errorf("at %s: %s; %+v", moved.Mode, moved.Reason, moved.Judging)
	}
	if got := entries(&moved, "abusers"); packets(&moved, "default") != 7 ||
		!strings.HasPrefix(got, "1 entries") {
		t.Errorf("%d packets, %s", packets(&moved, "default"), got)
	}
	n.send(t, 3, 1)
	await.OK(t, func() error { return counted(t, "default", 10) })
	if _, err := MoveOn(t.Context(), "lv0", "again"); !errors.Is(err, errNoHook) {
		t.Errorf("from tc: %v", err)
	}
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	runDirIsGone(t)
}

// What left counted as judged: where a driver asks its program for no packet, one ARP request of
// the machine's own was enough to call the policy seen.
func TestWhatLeavesWasTakenForPacketsThatAreJudged(t *testing.T) {
	n := newTestNet(t)
	const text = "pass udp port 9009 as \"odd\"\nout count udp as \"gone\"\nout default pass\n" +
		"default pass\n"
	if err := bringPolicyAt(t, "lv0", store.Auto, text, 0); err != nil {
		t.Fatal(err)
	}
	n.send(t, 7, 1)
	await.OK(t, func() error { return counted(t, "default", 7) })
	var w inspect.Watcher
	defer w.Close()
	look := func() inspect.Judged {
		t.Helper()
		all, err := w.Look(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		return all[0]
	}
	_ = look()
	deaf(t)()
	ip(t, "addr add 10.77.0.1/24 dev lv0")
	ip(t, "neigh add 10.77.0.2 lladdr 02:00:00:00:00:02 dev lv0")
	to := must2(net.Dial("udp", "10.77.0.2:9"))
	defer to.Close()
	for range 10 {
		if _, err := to.Write([]byte("leaves")); err != nil {
			t.Fatal(err)
		}
		_ = look()
		_ = status(t)
	}
	a := status(t)
	if packets(&a, "out default") == 0 {
		t.Fatalf("nothing has left: %+v", a.Counters)
	}
	if j := look(); j.State != inspect.Still || a.Judging.State != inspect.Still {
		t.Errorf("the watcher says %+v, status %+v", j, a.Judging)
	}
}

// A packet that a rule counts was judged there and once more where it is decided, so that a profile
// in service told half of what the program takes for it.
func TestWhatIsCountedWasTakenForJudgedTwice(t *testing.T) {
	n := newTestNet(t)
	const text = "count udp as \"seen\"\nlog udp as \"told\"\npass udp\ndefault pass\n"
	if err := bringPolicyAt(t, "lv0", store.Auto, text, 0); err != nil {
		t.Fatal(err)
	}
	send := func(count int) {
		t.Helper()
		for range count {
			n.sendFrame(t, udpFrom(t, "192.0.2.9", "192.0.2.1"))
		}
	}
	send(7)
	await.OK(t, func() error { return counted(t, "seen", 7) })
	var r inspect.Reader
	defer r.Close()
	all, err := r.Read(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	before := all[0].Arrived()
	send(5)
	await.OK(t, func() error { return counted(t, "seen", 12) })
	if all, err = r.Read(t.Context()); err != nil || all[0].Arrived() != before+5 {
		t.Errorf("of 5 packets %d were judged, %v", all[0].Arrived()-before, err)
	}
}

// What was set after the policy came is told too, and mended by the same.
func TestAnOffloadThatIsTurnedOnLaterMovesThePolicy(t *testing.T) {
	newTestNet(t)
	if err := bringPolicyAt(t, "lv0", store.XDPNative, asksForTags, 0); err != nil {
		t.Fatal(err)
	}
	asked := status(t)
	if asked.Judging.Failed() {
		t.Errorf("whoever asked for the mode has seen to it: %+v", asked.Judging)
	}
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	if err := bringPolicyAt(t, "lv0", store.Auto, "drop udp port 7\ndefault pass\n",
		0); err != nil {
		t.Fatal(err)
	}
	// A replace asks for tags where the policy before did not.
	r, err := Up(t.Context(), UpOptions{Dev: "lv0", PolicyPath: "/etc/tags.levee"},
		compileText(asksForTags))
	if err != nil || r.Mode != must2(attach.TCIngress()) ||
		!strings.Contains(r.Reason, "line 1 asks") {
		t.Errorf("%+v, %v", r, err)
	}
}

// A keeper noticed nothing either.
func TestAKeeperMovesAPolicyThatIsJudgedByNobody(t *testing.T) {
	n := newTestNet(t)
	tc := must2(attach.TCIngress())
	begin := deaf(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, done := make(chan bool, 1), make(chan error, 1)
	type moved struct {
		inspect.Judged
		rep *Report
		err error
	}
	past := make(chan moved, 1)
	const text = "pass udp port 9009 as \"odd\"\ndefault pass\n"
	o := UpOptions{Dev: "lv0", Names: []string{"lv0"}, PolicyPath: "/etc/test.levee",
		Source: []byte(text)}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if err := netns.Set(n.here); err != nil {
			done <- err
			return
		}
		done <- Keep(ctx, o, compileText(text), nil, KeepEvents{
			Ready: func([]*Report) { ready <- true },
			Past:  func(j inspect.Judged, rep *Report, err error) { past <- moved{j, rep, err} },
		})
	}()
	<-ready
	if a := status(t); a.Mode != store.XDPNative {
		t.Fatalf("at %s: %s", a.Mode, a.Reason)
	}
	begin()
	for mtu := 1400; ; mtu++ { // each of these events has it look again
		ip(t, fmt.Sprintf("link set lv0 mtu %d", 1400+mtu%50))
		select {
		case m := <-past:
			if m.err != nil || m.State != inspect.Still || m.rep.Mode != tc {
				t.Errorf("%+v", m)
			}
		case err := <-done:
			t.Fatal(err)
		case <-time.After(60 * time.Millisecond): // it looks 50 ms after each
			continue
		}
		break
	}
	if a := status(t); a.Mode != tc || a.Judging.Failed() {
		t.Errorf("at %s: %s; %+v", a.Mode, a.Reason, a.Judging)
	}
	cancel()
	<-done
}
