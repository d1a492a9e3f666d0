package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/sets"
	"levee/internal/filter/prefix"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

func hosts(base string, n int) []sets.Entry {
	a := netip.MustParseAddr(base)
	var out []sets.Entry
	for range n {
		out = append(out, sets.Entry{Prefix: netip.PrefixFrom(a, a.BitLen())})
		a = a.Next()
	}
	return out
}

func TestReplaceChangesTheWholeContents(t *testing.T) {
	n := newTestNet(t)
	ctx := t.Context()
	if err := bringPolicy(t, "lv0", abuserPolicy(5000), 0); err != nil {
		t.Fatal(err)
	}
	other, err := sets.Open(ctx, "lv0", "abusers")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := sets.Add(ctx, "", "abusers",
		entriesOf("203.0.113.0/24", "2001:db8:9::/48")); err != nil {
		t.Fatal(err)
	}
	if _, err := sets.Replace(ctx, "", "abusers",
		entriesOf("198.51.100.7/32", "203.0.113.128/25")); err != nil {
		t.Fatal(err)
	}
	for _, src := range []string{"203.0.113.1", "2001:db8:9::1", "198.51.100.7", "203.0.113.200"} {
		n.from(t, src)
	}
	wantPackets(t, "abuser", 2)
	// A writer that had the set open before writes into what is in force now.
	if err := other.Add(ctx, entriesOf("192.0.2.1/32")...); err != nil {
		t.Fatal(err)
	}
	n.from(t, "192.0.2.1")
	wantPackets(t, "abuser", 3)
	if got, want := listed(t, "lv0"), "192.0.2.1/32 198.51.100.7/32 203.0.113.128/25"; got != want {
		t.Errorf("the set has %s, want %s", got, want)
	}
	// A leased entry keeps what it was given.
	if err := other.Replace(ctx,
		[]sets.Entry{{Prefix: netip.MustParsePrefix("192.0.2.2/32"), Lease: sets.Forever},
			{Prefix: netip.MustParsePrefix("192.0.2.3/32"), Lease: time.Minute}}); err != nil {
		t.Fatal(err)
	}
	entries, err := other.List(ctx)
	if err != nil || len(entries) != 2 || entries[0].Lease != sets.Forever ||
		entries[1].Lease > time.Minute+time.Second || entries[1].Lease < 50*time.Second {
		t.Errorf("leases %v: %v", entries, err)
	}
}

func TestFullSetRefusesAndCounts(t *testing.T) {
	newTestNet(t)
	ctx := t.Context()
	if err := bringPolicy(t, "lv0", abuserPolicy(10_000), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := sets.Add(ctx, "", "abusers", hosts("10.0.0.0", 9990)); err != nil {
		t.Fatal(err)
	}
	want := uint64(0)
	for _, c := range []struct {
		name string
		n    int
		do   func([]sets.Entry) error
	}{
		{"few", 11, func(e []sets.Entry) error {
			_, err := sets.Add(ctx, "", "abusers", e)
			return err
		}},
		{"many", 5000, func(e []sets.Entry) error {
			_, err := sets.Add(ctx, "", "abusers", e)
			return err
		}},
		{"replace", 10_001, func(e []sets.Entry) error {
			_, err := sets.Replace(ctx, "", "abusers", e)
			return err
		}},
	} {
		err := c.do(hosts("172.16.0.0", c.n))
		if !errors.Is(err, prefix.ErrFull) || !strings.Contains(err.Error(), "max 10000") ||
			!strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("%s: %v", c.name, err)
		}
		want += uint64(c.n)
		if a := status(t); a.Sets[0].Refused != want || a.Sets[0].Entries != 9990 {
			t.Errorf("%s: %+v, want %d refused", c.name, a.Sets[0], want)
		}
	}
	if _, err := sets.Add(ctx, "", "abusers", hosts("172.16.0.0", 10)); err != nil {
		t.Error(err)
	}
	if err := bringPolicy(t, "lv0", abuserPolicy(20_000), 0); err != nil {
		t.Fatal(err)
	}
	if a := status(t); a.Sets[0].Refused != want || a.Sets[0].Entries != 10_000 {
		t.Errorf("after a replace by a policy with a larger max: %+v", a.Sets[0])
	}
}

// watched is a table that tells of what leaves it.
type watched struct {
	sets.Table
	left []policy.Element
}

func (w *watched) Delete(e policy.Element) bool {
	w.left = append(w.left, e)
	return w.Table.Delete(e)
}

// A refused addition gives entries that it has renewed their leases back; they must not be missing
// for a moment.
func TestRenewedEntriesStayWhileAnAdditionIsTakenBack(t *testing.T) {
	mem := make([]uint64, 1<<16)
	spec, err := prefix.DynamicSpec("set", 20)
	if err != nil {
		t.Fatal(err)
	}
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&mem[0])), int(spec.InnerMap.ValueSize))
	if err := prefix.Format(bytes, 20); err != nil {
		t.Fatal(err)
	}
	d, err := prefix.Open(bytes, func() uint64 { return 1 })
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{Table: sets.Prefixes{Dynamic: d}}
	clock, err := kernel.JiffiesClock()
	if err != nil {
		t.Skip("needs the kernel's clock: ", err)
	}
	all := hosts("10.0.0.0", 21)
	for _, e := range all[:5] {
		if err := w.Add(e.Element(), 1000); err != nil {
			t.Fatal(err)
		}
	}
	s := &sets.Set{Name: "set",
		Maps: []sets.InForce{{Memory: &sets.Memory{Name: "set", Table: w, Clock: clock, Frozen: 1},
			Places: nil}}}
	if _, err := sets.AddInPlace([]*sets.Set{s},
		slices.Concat(all[5:15], all[:5], all[15:])); !errors.Is(err,
		prefix.ErrFull) {
		t.Fatal(err)
	}
	for _, e := range w.left {
		if slices.Contains(all[:5], sets.Entry{Prefix: e.Prefix}) {
			t.Errorf("%v was out of the set for a moment", e)
		}
	}
	for i, e := range all {
		if expires, there := w.Get(e.Element()); there != (i < 5) || there && expires != 1000 {
			t.Errorf("%v: %v, until %d", e.Element(), there, expires)
		}
	}
}

// Two maps may have the same number of bytes although entries lie elsewhere in them.
func TestSetSurvivesASlightlyLargerMax(t *testing.T) {
	n := newTestNet(t)
	for i := range 5 {
		if err := bringPolicy(t, "lv0", abuserPolicy(1000+i), 0); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if _, err := sets.Add(t.Context(), "", "abusers", hosts("10.0.0.0", 900)); err != nil {
				t.Fatal(err)
			}
		}
		for _, src := range []string{"10.0.0.0", "10.0.1.1", "10.0.3.131"} {
			n.from(t, src)
		}
		wantPackets(t, "abuser", uint64(3*(i+1)))
		if got := status(t).Sets[0].Max; got != 1000+i {
			t.Errorf("max %d, want %d", got, 1000+i)
		}
	}
}

func TestAFailedSwapChangesNoSet(t *testing.T) {
	n := newTestNet(t)
	addVeth(t, "lv2", "lv3", n.peer)
	for _, dev := range []string{"lv0", "lv2"} {
		if err := bringPolicy(t, dev, abuserPolicy(100), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sets.Add(t.Context(), "", "abusers", entriesOf("192.0.2.1/32")); err != nil {
		t.Fatal(err)
	}
	for at := range 2 {
		seen := 0
		ctx := stepping(t.Context(), func(step string) error {
			if step == "swap set" {
				if seen++; seen == at+1 {
					return errInjected
				}
			}
			return nil
		})
		_, err := sets.Replace(ctx, "", "abusers", entriesOf("192.0.2.2/32"))
		if !errors.Is(err, errInjected) {
			t.Errorf("swap %d: %v", at, err)
		}
		for _, dev := range []string{"lv0", "lv2"} {
			if got := listed(t, dev); got != "192.0.2.1/32" {
				t.Errorf("failure at swap %d: %s has %s", at, dev, got)
			}
		}
	}
}

// While the contents alternate between two sets without a common prefix length, of which each
// covers the address, no look-up may find neither.
func TestNoPacketIsJudgedByHalfASet(t *testing.T) {
	newTestNet(t)
	if err := bringPolicy(t, "lv0",
		"set abusers = dynamic(max 1000)\ncount from { 10.1.2.3, 2001:db8:1::1 } as \"sent\"\n"+
			"count from abusers as \"abuser\"\ndefault pass\n", 0); err != nil {
		t.Fatal(err)
	}
	contents := [2][]sets.Entry{entriesOf("10.1.0.0/16", "2001:db8::/32"),
		entriesOf("10.1.2.0/24", "2001:db8:1::/48")}
	if _, err := sets.Replace(t.Context(), "", "abusers", contents[1]); err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for _, src := range []string{"10.1.2.3", "2001:db8:1::1"} {
		port := uint16(9)
		f, err := packet.Build(packet.Spec{From: netip.MustParseAddr(src), ToPort: &port})
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, f)
	}
	prog := inForceProgram(t)
	sent, done := make(chan uint64), make(chan struct{})
	go func() {
		total := uint64(0)
		for {
			for _, f := range frames {
				select {
				case <-done:
					sent <- total
					return
				default:
				}
				if _, _, err := prog.Benchmark(f, 20_000, nil); err != nil {
					t.Error(err)
				}
				total += 20_000
			}
		}
	}()
	for i := range 100 {
		if _, err := sets.Replace(t.Context(), "", "abusers", contents[i%2]); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	asked := <-sent
	// A run that a signal interrupts is made again, so more packets may be judged than this test
	// has ordered.
	a := status(t)
	judged := packets(&a, "sent")
	t.Logf("%d look-ups during 100 replaces", judged)
	if judged < asked {
		t.Errorf("%d packets were judged, %d asked for", judged, asked)
	}
	wantPackets(t, "abuser", judged)
}

// inForceProgram opens the program that the one attachment of this namespace runs.
func inForceProgram(t *testing.T) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(status(t).Program.ID))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// BenchmarkSetReplace replaces the contents of a running policy's set of a million entries.
func BenchmarkSetReplace(b *testing.B) {
	newTestNet(b)
	if err := bringPolicy(b, "lv0", abuserPolicy(1_000_000), 0); err != nil {
		b.Fatal(err)
	}
	entries := make([]sets.Entry, 1_000_000)
	for i := range entries {
		entries[i].Prefix = netip.PrefixFrom(address(i), 32)
	}
	set, err := sets.Open(context.Background(), "lv0", "abusers")
	if err != nil {
		b.Fatal(err)
	}
	defer set.Close()
	b.Run("replace", func(b *testing.B) {
		for b.Loop() {
			if err := set.Replace(context.Background(), entries); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("add", func(b *testing.B) {
		for b.Loop() {
			if err := set.Add(context.Background(), entries...); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestFullSetRollsUpWhereThePolicySaysSo(t *testing.T) {
	n := newTestNet(t)
	ctx := t.Context()
	const text = "set abusers = dynamic(max 20, rollup)\nset admins = { 10.0.5.0/28 }\nprotect " +
		"from admins tcp port 22\ndrop from abusers as \"abuser\"\ndefault pass\n"
	if err := bringPolicy(t, "lv0", text, 0); err != nil {
		t.Fatal(err)
	}
	add := func(entries []sets.Entry) {
		t.Helper()
		if _, err := sets.Add(ctx, "", "abusers", entries); err != nil {
			t.Fatal(err)
		}
	}
	add(hosts("10.0.5.16", 12)) // beside a protected address
	add(hosts("10.0.6.1", 5))
	add(hosts("2001:db8::1", 3))
	add(hosts("198.51.100.1", 1))
	n.from(t, "10.0.6.200")
	n.from(t, "10.0.5.200")
	n.from(t, "198.51.100.1")
	wantPackets(t, "abuser", 2)
	add(hosts("198.51.100.2", 4))
	add(hosts("172.16.0.1", 1))
	if a := status(t); a.Sets[0].Refused != 0 || !a.Sets[0].RollUp {
		t.Errorf("%+v", a.Sets[0])
	}
	if got := listed(t, "lv0"); strings.Contains(got, "10.0.5.0/24") ||
		!strings.Contains(got, "10.0.5.16/32") || !strings.Contains(got, "10.0.6.0/24") {
		t.Errorf("the set has %s", got)
	}
	// What is left cannot be rolled up.
	before := ""
	for i := 0; ; i++ {
		before = listed(t, "lv0")
		_, err := sets.Add(ctx, "", "abusers", hosts(fmt.Sprintf("172.16.%d.1", i+1), 1))
		if err != nil {
			if !errors.Is(err, prefix.ErrFull) {
				t.Error(err)
			}
			break
		}
		if i > 20 {
			t.Fatal("the set is never full")
		}
	}
	if got := listed(t, "lv0"); got != before || status(t).Sets[0].Refused != 1 {
		t.Errorf("a refused entry changed %s to %s", before, got)
	}
}

// An addition is seen by the next packet: the program reads the memory that it is written to.
func TestTheNextPacketSeesAnAddition(t *testing.T) {
	newTestNet(t)
	if err := bringPolicy(t, "lv0", abuserPolicy(2000), 0); err != nil {
		t.Fatal(err)
	}
	set, err := sets.Open(t.Context(), "lv0", "abusers")
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	prog := inForceProgram(t)
	for i := range 1000 {
		entry := sets.Entry{Prefix: netip.PrefixFrom(address(i), 32)}
		f, err := packet.Build(packet.Spec{From: entry.Prefix.Addr()})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []uint32{attach.XdpPass, loader.XdpDrop} {
			if ret, err := prog.Run(&ebpf.RunOptions{Data: f}); err != nil || ret != want {
				t.Fatalf("entry %d: the program returns %d, want %d: %v", i, ret, want, err)
			}
			if err := set.Add(t.Context(), entry); err != nil {
				t.Fatal(err)
			}
		}
	}
}
