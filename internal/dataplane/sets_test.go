package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"levee/internal/await"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/prefix"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// gigabyte is the memory of the machine that tests have, unless they are about its size: on a large
// one the kernel clears 64 MB for the connections of each policy.
const gigabyte = 1 << 30

// compileText compiles a policy in the real language with the real compiler.
func compileText(text string) CompileFunc {
	return func(target codegen.Target) (*codegen.Program, error) {
		target.Memory = gigabyte
		p, ds := resolve.Parse("test.levee", []byte(text), nil)
		if ds.HasErrors() {
			return nil, fmt.Errorf("%v", ds)
		}
		prog, err := codegen.Compile(p, target)
		if err == nil {
			prog.Spec.Programs[codegen.ProgramName].Name = handName()
		}
		return prog, err
	}
}

func bringPolicy(t testing.TB, dev, text string, confirm time.Duration) error {
	t.Helper()
	return bringPolicyAt(t, dev, store.Auto, text, confirm)
}

func bringPolicyAt(t testing.TB, dev string, mode store.Mode, text string,
	confirm time.Duration) error {
	t.Helper()
	return bringPolicyUnder(context.Background(), dev, mode, text, confirm)
}

// bringPolicyUnder is bringPolicyAt under a context.
func bringPolicyUnder(ctx context.Context, dev string, mode store.Mode, text string,
	confirm time.Duration) error {
	o := UpOptions{Dev: dev, Mode: mode, Confirm: confirm, PolicyPath: "/etc/test.levee",
		Source: []byte(text)}
	_, err := Up(ctx, o, compileText(text))
	return err
}

func abuserPolicy(max int) string {
	return fmt.Sprintf("set abusers = dynamic(max %d, lease 10m)\ndrop from abusers as "+
		"\"abuser\"\ndefault pass\n", max)
}

func entriesOf(prefixes ...string) []sets.Entry {
	var out []sets.Entry
	for _, p := range prefixes {
		out = append(out, sets.Entry{Prefix: netip.MustParsePrefix(p)})
	}
	return out
}

// listed is the set on one interface, as text.
func listed(t testing.TB, dev string) string {
	t.Helper()
	all, err := sets.List(context.Background(), dev, "abusers")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range all[0].Entries {
		out = append(out, e.Prefix.String())
	}
	return strings.Join(out, " ")
}

// from sends one UDP packet with this source.
func (n *testNet) from(t testing.TB, src string) {
	t.Helper()
	port := uint16(9)
	f, err := packet.Build(packet.Spec{From: netip.MustParseAddr(src), ToPort: &port})
	if err != nil {
		t.Fatal(err)
	}
	n.sendFrame(t, f)
}

func TestSetEntriesDropPacketsAndSurviveReplaces(t *testing.T) {
	n := newTestNet(t)
	ctx := context.Background()
	up := func(text string, confirm time.Duration) {
		t.Helper()
		if err := bringPolicy(t, "lv0", text, confirm); err != nil {
			t.Fatal(err)
		}
	}
	up(abuserPolicy(1000), 0)
	n.from(t, "203.0.113.7")
	wantPackets(t, "abuser", 0)
	if devs, err := sets.Add(ctx, "lv0", "abusers",
		entriesOf("203.0.113.0/24",
			"2001:db8:9::/48")); err != nil || len(devs) != 1 || devs[0] != "lv0" {
		t.Fatal(devs, err)
	}
	n.from(t, "203.0.113.7")
	n.from(t, "203.0.114.7")
	n.from(t, "2001:db8:9::1")
	wantPackets(t, "abuser", 2)
	if a := status(t); len(a.Sets) != 1 || a.Sets[0].Entries != 2 || a.Sets[0].Max != 1000 {
		t.Errorf("sets %+v", a.Sets)
	}
	both := "203.0.113.0/24 2001:db8:9::/48"

	up(abuserPolicy(1000)+"# the same shape\n", 0)
	n.from(t, "203.0.113.7")
	wantPackets(t, "abuser", 3)
	up(abuserPolicy(2000), 0) // another shape
	n.from(t, "203.0.113.7")
	wantPackets(t, "abuser", 4)
	if got := listed(t, "lv0"); got != both {
		t.Errorf("after replaces: %s", got)
	}
	if err := bringPolicy(t, "lv0", abuserPolicy(1), 0); !errors.Is(err, prefix.ErrFull) ||
		!strings.Contains(err.Error(), `"abusers" holds 2 entries`) {
		t.Errorf("a set that does not fit: %v", err)
	}
	if a := status(t); a.Sets[0].Max != 2000 {
		t.Errorf("max %d", a.Sets[0].Max)
	}

	// What is added during a trial is there in whatever policy comes out of it.
	up(abuserPolicy(3000), time.Minute)
	if _, err := sets.Add(ctx, "", "abusers", entriesOf("198.51.100.1/32")); err != nil {
		t.Fatal(err)
	}
	n.from(t, "198.51.100.1")
	wantPackets(t, "abuser", 5)
	expire(t)
	n.from(t, "198.51.100.1")
	wantPackets(t, "abuser", 6)
	if got := listed(t, ""); got != "198.51.100.1/32 "+both {
		t.Errorf("after the roll-back: %s", got)
	}

	deleted, _, err := sets.Delete(ctx, "lv0", "abusers",
		[]policy.Element{{Prefix: netip.MustParsePrefix("203.0.113.0/24")},
			{Prefix: netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil || deleted != 1 {
		t.Errorf("deleted %d: %v", deleted, err)
	}
	n.from(t, "203.0.113.7")
	wantPackets(t, "abuser", 6)
}

func TestSetAddIsAllOrNothing(t *testing.T) {
	n := newTestNet(t)
	ctx := context.Background()
	addVeth(t, "lv2", "lv3", n.peer)
	for dev, max := range map[string]int{"lv0": 100, "lv2": 10} {
		if err := bringPolicy(t, dev, abuserPolicy(max), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sets.Add(ctx, "", "abusers", entriesOf("192.0.2.1/32", "10.0.0.0/8")); err != nil {
		t.Fatal(err)
	}
	want := "10.0.0.0/8 192.0.2.1/32"
	var many []sets.Entry
	for i := range 20 {
		many = append(many,
			sets.Entry{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 32)})
	}
	for _, c := range []struct {
		name    string
		dev     string
		entries []sets.Entry
		want    string
	}{
		{"host bits", "lv0", entriesOf("203.0.113.0/24", "203.0.113.1/24"),
			"entry 2: 203.0.113.1/24 has host bits set; did you mean 203.0.113.0/24?; nothing " +
				"was changed"},
		{"IPv4-mapped", "lv0", entriesOf("::ffff:192.0.2.1/128"), "IPv4-mapped"},
		{"no prefix", "lv0", make([]sets.Entry, 1), "not a prefix"},
		{"lease", "lv0", []sets.Entry{{Prefix: netip.MustParsePrefix("192.0.2.9/32"), Lease: -7}},
			"lease"},
		{"full", "lv2", many, "set is full"},
		{"full on one of two", "", many, "set is full"},
	} {
		_, err := sets.Add(ctx, c.dev, "abusers", c.entries)
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		for _, dev := range []string{"lv0", "lv2"} {
			if got := listed(t, dev); got != want {
				t.Errorf("%s: %s has %s, want %s", c.name, dev, got, want)
			}
		}
	}
	if _, err := sets.Add(ctx, "lv0", "abuser", nil); !errors.Is(err, sets.ErrNoSet) ||
		!strings.Contains(err.Error(), "has abusers") {
		t.Errorf("unknown set: %v", err)
	}
}

// A deletion that one of several sets cannot take went through the others before.
func TestSetDelIsAllOrNothing(t *testing.T) {
	n := newTestNet(t)
	ctx := t.Context()
	addVeth(t, "lv2", "lv3", n.peer)
	host := policy.Element{Prefix: netip.MustParsePrefix("192.0.2.1/32")}
	port := policy.Element{Service: policy.Service{Proto: 6, Lo: 80, Hi: 80}}
	for dev, c := range map[string]struct {
		of, rule string
		has      policy.Element
	}{
		"lv0": {"addresses", "from bad", host},
		"lv2": {"services", "to bad", port},
	} {
		text := "set bad = dynamic(of " + c.of + ", max 10)\ndrop " + c.rule + "\ndefault pass\n"
		if err := bringPolicy(t, dev, text, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := sets.Add(ctx, dev, "bad",
			[]sets.Entry{{Prefix: c.has.Prefix, Service: c.has.Service}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range []policy.Element{host, port} {
		deleted, _, err := sets.Delete(ctx, "", "bad", []policy.Element{e})
		if err == nil || deleted != 0 || !strings.HasSuffix(err.Error(), "nothing was changed") {
			t.Errorf("%v: %d deleted, %v", e, deleted, err)
		}
		for _, c := range must2(sets.List(ctx, "", "bad")) {
			if len(c.Entries) != 1 {
				t.Errorf("%v: %s has %v, want its entry", e, c.Dev, c.Entries)
			}
		}
	}
}

func TestSetLeasesEnd(t *testing.T) {
	n := newTestNet(t)
	if err := bringPolicy(t, "lv0", abuserPolicy(10), 0); err != nil {
		t.Fatal(err)
	}
	_, err := sets.Add(context.Background(), "lv0", "abusers", []sets.Entry{
		{Prefix: netip.MustParsePrefix("192.0.2.1/32"), Lease: time.Minute},
		{Prefix: netip.MustParsePrefix("192.0.2.2/32"), Lease: 0},
		{Prefix: netip.MustParsePrefix("192.0.2.3/32"), Lease: sets.Forever},
	})
	if err != nil {
		t.Fatal(err)
	}
	all, err := sets.List(context.Background(), "lv0", "abusers")
	if err != nil {
		t.Fatal(err)
	}
	for i, max := range []time.Duration{time.Minute + 50*time.Millisecond, 10*time.Minute +
		50*time.Millisecond, sets.Forever} {
		if lease := all[0].Entries[i].Lease; lease > max ||
			(max == sets.Forever) != (lease == sets.Forever) || lease == 0 {
			t.Errorf("%v has %v left, want up to %v", all[0].Entries[i].Prefix, lease, max)
		}
	}
	n.from(t, "192.0.2.1")
	wantPackets(t, "abuser", 1)
	_, err = sets.Add(context.Background(), "lv0", "abusers", []sets.Entry{
		{Prefix: netip.MustParsePrefix("192.0.2.1/32"), Lease: time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	await.Pass(40*time.Millisecond, "the kernel ends the lease")
	n.from(t, "192.0.2.1") // the program itself sees that the lease has ended
	n.from(t, "192.0.2.2")
	n.from(t, "192.0.2.3")
	wantPackets(t, "abuser", 3)
	if a := status(t); a.Sets[0].Entries != 2 {
		t.Errorf("%d entries, want 2", a.Sets[0].Entries)
	}
}

// A writer in another goroutine adds through an open Set while policies of alternating shapes
// replace each other: no entry may be lost on a map that is not in force any more.
func TestOpenSetFollowsReplaces(t *testing.T) {
	n := newTestNet(t)
	if err := bringPolicy(t, "lv0", abuserPolicy(100_000), 0); err != nil {
		t.Fatal(err)
	}
	set, err := sets.Open(context.Background(), "lv0", "abusers")
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	stop, added := make(chan struct{}), make(chan int)
	go func() {
		defer close(added)
		n.enterHere(t)
		for i := 0; ; i++ {
			select {
			case <-stop:
				added <- i
				return
			default:
			}
			if err := set.Add(context.Background(),
				sets.Entry{Prefix: netip.PrefixFrom(address(i), 32)}); err != nil {
				t.Errorf("add %d: %v", i, err)
				return
			}
			await.Pass(50*time.Microsecond, "the pace of the changes")
		}
	}()
	for i := range 10 {
		if err := bringPolicy(t, "lv0", abuserPolicy(100_000+i%2*50_000), 0); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	want := <-added
	entries, err := set.List(context.Background())
	if err != nil || len(entries) != want || want == 0 {
		t.Errorf("%d entries, want %d: %v", len(entries), want, err)
	}
	if _, err := Down(context.Background(), "lv0"); err != nil {
		t.Fatal(err)
	}
	if err := set.Add(context.Background(), entriesOf("192.0.2.1/32")...); err == nil {
		t.Error("an entry was added to a policy that is gone")
	}
}

func address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

func BenchmarkSetAdd(b *testing.B) {
	newTestNet(b)
	if err := bringPolicy(b, "lv0", abuserPolicy(1_000_000), 0); err != nil {
		b.Fatal(err)
	}
	set, err := sets.Open(context.Background(), "lv0", "abusers")
	if err != nil {
		b.Fatal(err)
	}
	defer set.Close()
	i := 0
	for b.Loop() {
		if err := set.Add(context.Background(),
			sets.Entry{Prefix: netip.PrefixFrom(address(i%900_000), 32)}); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
