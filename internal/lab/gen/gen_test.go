package gen

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/lab"
	"levee/internal/lab/labtest"
	"levee/internal/lang/spec"
	"levee/internal/packet/template"
)

// newLab makes a standard lab, server eth0 to world eth0, that ends with the test.
// into completes a config to send from the world's device.
func into(l *lab.Lab, c Config) Config {
	c.Namespace, c.Device = l.Host(lab.World).Namespace, "eth0"
	return c
}

func prefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

var (
	server4 = netip.MustParseAddr("198.18.0.1")
	server6 = netip.MustParseAddr("2001:db8::1")
)

func TestEveryPacketIsAccountedFor(t *testing.T) {
	l := labtest.New(t)
	v4 := Flood{To: server4, Sources: prefixes("10.0.0.0/8")}
	v6 := Flood{To: server6, Sources: prefixes("2001:db8:5::/48")}
	bursts := map[string]int{"paced, in bursts": 32}
	for _, c := range []struct {
		name  string
		flood Flood
		kind  Kind
		count uint64
		rate  float64
		at    int16
		proto int32
	}{
		{"as fast as possible", v4, UDP, 1e6, 0, 23, 17},
		{"as fast as possible again", v4, UDP, 1e6, 0, 23, 17},
		{"IPv6", v6, UDP, 1e6, 0, 20, 17},
		{"SYN", v4, SYN, 3e5, 0, 23, 6},
		{"SYN over IPv6", v6, SYN, 3e5, 0, 20, 6},
		{"odd count", v4, UDP, 12347, 0, 23, 17},
		{"one", v4, UDP, 1, 0, 23, 17},
		{"paced", v4, UDP, 50000, 200000, 23, 17},
		{"paced asleep", v4, UDP, 100, 1000, 23, 17},
		{"paced, in bursts", v4, UDP, 50000, 200000, 23, 17},
	} {
		t.Run(c.name, func(t *testing.T) {
			rx := receive(t, l, c.at, c.proto, 26, 0)
			c.flood.Kind = c.kind
			r, err := Run(t.Context(), into(l,
				Config{Floods: []Flood{c.flood}, Count: c.count, Rate: c.rate, Seed: 1,
					Burst: bursts[c.name]}))
			if err != nil {
				t.Fatal(err)
			}
			if r.Sent != c.count || r.Errors != 0 {
				t.Errorf("sent %d, errors %d, want %d and 0", r.Sent, r.Errors, c.count)
			}
			if got := rx.received(t, r.Sent-r.Refused); got != r.Sent-r.Refused {
				t.Errorf("sent %d, refused %d, received %d", r.Sent, r.Refused, got)
			}
			if c.rate > 0 {
				last := float64((c.count - 1) / uint64(r.Gaps.Packets) * uint64(r.Gaps.Packets))
				if r.Duration < time.Duration(last/c.rate*1e9) || r.Achieved > c.rate*1.005 {
					t.Errorf("%d packets took %s (%.0f/s), faster than %.0f/s", c.count, r.Duration,
						r.Achieved, c.rate)
				}
			}
			var gaps uint64
			for _, n := range r.Gaps.Log2 {
				gaps += n
			}
			if want := (c.count - 1) / uint64(r.Gaps.Packets); gaps > want || c.rate > 0 &&
				gaps != want {
				t.Errorf("%d gaps of %d packets, want %d", gaps, r.Gaps.Packets, want)
			}
		})
	}
}

func TestBurstsArePowersOfTwo(t *testing.T) {
	for _, n := range []int{-1, 3, 128} {
		c := Config{Device: "eth0", Floods: []Flood{{}}, Burst: n}
		if err := c.check(); err == nil || !strings.Contains(err.Error(), "a power of two") {
			t.Errorf("burst %d: %v", n, err)
		}
	}
}

// TestCopiesGoInARow: each frame so many times, then the next one.
func TestCopiesGoInARow(t *testing.T) {
	packets, ds := template.Parse("test", []byte("ipv4 udp len 46 port 2000-2009"))
	if err := ds.Err(); err != nil {
		t.Fatal(err)
	}
	made, err := template.Compile(packets, template.Defaults{To4: server4}, 1)
	if err != nil {
		t.Fatal(err)
	}
	u := &user{Config: Config{Copies: 3}, t: made}
	var got [][]byte
	for range 9 {
		b := make([]byte, made.Longest())
		got = append(got, b[:u.frame(b)])
		u.n++
	}
	for i := range got {
		want := made.Frame(make([]byte, made.Longest()), uint64(i/3))
		if !bytes.Equal(got[i], want) {
			t.Errorf("frame %d is % x, not % x", i, got[i], want)
		}
	}
	for want, c := range map[string]Config{
		"written anew":         {Copies: 2},
		"-1 copies":            {Copies: -1, Path: Packet},
		"10000000 copies":      {Copies: 10_000_000, Path: Packet},
		"a power of two up to": {Burst: 3},
	} {
		c.Device, c.Floods = "eth0", []Flood{{}}
		if err := c.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestSourcesDoNotRepeatAndFollowTheSeed(t *testing.T) {
	const n = 100000
	l := labtest.New(t)
	f := Flood{To: server4, Sources: prefixes("10.1.0.0/16", "192.0.2.7/32", "172.16.0.0/17",
		"203.0.113.0/29")}
	space := uint64(1<<16 + 1 + 1<<15 + 8)
	var r Report
	var got []uint32
	rate := 400000.0
	await.OK(t, func() error {
		// Slow enough that nothing is refused on a quiet machine, and slower on a busy one. A
		// refused packet is a hole in the sequence, not a repetition, so it is looked for and not
		// taken for an error.
		rx := receive(t, l, 23, 17, 26, n)
		defer rx.detach()
		var err error
		r, err = Run(t.Context(), into(l, Config{Floods: []Flood{f}, Count: n, Rate: rate,
			Seed: 42}))
		if err != nil {
			t.Fatal(err)
		}
		got = rx.noted(t, int(rx.received(t, r.Sent-r.Refused))) // none is left for the next
		if rate /= 2; r.Refused > n*19/20 {
			return fmt.Errorf("%d of %d packets were refused", r.Refused, n)
		}
		return nil
	})
	asked := f
	if err := asked.complete(device{mtu: 1500, inLab: true}); err != nil {
		t.Fatal(err)
	}
	tmpl, err := template.Compile([]spec.Packet{asked.packet()}, template.Defaults{}, 42)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, tmpl.Longest())
	sourceOf := func(i uint64) uint32 { return binary.BigEndian.Uint32(tmpl.Frame(buf, i)[26:]) }
	i, holes := uint64(0), 0
	for k, a := range got {
		for i < n && sourceOf(i) != a {
			i, holes = i+1, holes+1
		}
		if i == n {
			t.Fatalf("packet %d has source %x, which the permutation does not give in this order",
				k, a)
		}
		i++
	}
	if holes > int(r.Refused) {
		t.Errorf("%d sources are missing, %d packets were refused", holes, r.Refused)
	}
	seen := make(map[uint32]bool)
	for i := range space {
		a := sourceOf(i)
		if seen[a] {
			t.Fatalf("source %x came again before all had come", a)
		}
		seen[a] = true
	}
}

func TestDurationEndsARun(t *testing.T) {
	l := labtest.New(t)
	f := Flood{To: server4, Sources: prefixes("10.0.0.0/8")}
	for _, rate := range []float64{0, 100, 20000} {
		calls := 0
		r, err := Run(t.Context(), into(l, Config{
			Floods: []Flood{f}, Rate: rate, Duration: 300 * time.Millisecond,
			Progress: func(p Progress) { calls++ },
		}))
		if err != nil {
			t.Fatal(err)
		}
		if r.Duration > 301*time.Millisecond || r.Sent == 0 {
			t.Errorf("rate %g: sent %d in %s", rate, r.Sent, r.Duration)
		}
		if rate > 0 && float64(r.Sent) > rate*0.3+1 {
			t.Errorf("rate %g: sent %d in %s", rate, r.Sent, r.Duration)
		}
		if calls == 0 {
			t.Errorf("rate %g: progress was not called", rate)
		}
	}
}

func TestContextEndsARun(t *testing.T) {
	l := labtest.New(t)
	for _, rate := range []float64{0, 0.01, 10000} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		began := time.Now()
		_, err := Run(ctx, into(l, Config{Floods: []Flood{{To: server4,
			Sources: prefixes("10.0.0.0/8")}}, Rate: rate}))
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		// At the lowest rate the next packet is due after 100 s.
		if took := time.Since(began); took > 50*time.Second {
			t.Errorf("rate %g: took %s", rate, took)
		}
	}
}

func TestNothingLeavesForOtherNetworks(t *testing.T) {
	l := labtest.New(t)
	flood := []Flood{{To: server4, Sources: prefixes("10.0.0.0/8")}}
	for name, c := range map[string]Config{
		"loopback here": {Device: "lo", Floods: flood, Count: 1},
		"loopback in the lab": {Namespace: l.Host(lab.World).Namespace, Device: "lo", Floods: flood,
			Count: 1},
		"a lab device's name": {Device: "eth0", Floods: flood, Count: 1},
		"replay":              {Device: "lo", Replay: &Replay{Open: Capture(os.DevNull)}, Count: 1},
	} {
		r, err := Run(t.Context(), c)
		if !errors.Is(err, lab.ErrForeign) || !errors.Is(err, ErrNotOurs) || r.Sent != 0 {
			t.Errorf("%s: sent %d, %v", name, r.Sent, err)
		}
	}
}

func TestOwnNetworkSendsOnAnyDevice(t *testing.T) {
	l := labtest.New(t)
	rx := receive(t, l, 23, 17, 26, 0)
	t.Setenv("LEVEE_RUN", t.TempDir()) // now nobody knows that this is a lab
	c := into(l, Config{Floods: []Flood{{To: server4, Sources: prefixes("10.0.0.0/8")}}, Count: 10})
	if r, err := Run(t.Context(), c); !errors.Is(err, ErrNotOurs) || r.Sent != 0 {
		t.Fatalf("sent %d without being told that the network is ours: %v", r.Sent, err)
	}
	c.OwnNetwork = true
	if _, err := Run(t.Context(), c); err == nil {
		t.Error("sent without a destination Ethernet address")
	}
	c.Floods[0].ToMAC = [6]byte{2, 0, 0, 0, 0, 1}
	if r, err := Run(t.Context(), c); err != nil || r.Sent != 10 || rx.received(t, 10) != 10 {
		t.Errorf("sent %d, received %d, %v", r.Sent, rx.received(t, 10), err)
	}
}

func TestLengthsArriveAsTheyWereAsked(t *testing.T) {
	labtest.NeedRoot(t)
	top := lab.Standard()
	top.MTU = 3400 // about the most that XDP without fragments takes
	l, err := lab.New(t.Context(), top)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f := Flood{To: server4, Sources: prefixes("10.0.0.0/8"),
		Lengths: []int{3000, 28, 29, 1500, 700}}
	const n = 1000
	rx := receive(t, l, 23, 17, 16, n) // total length and id
	r, err := Run(t.Context(), into(l, Config{Floods: []Flood{f}, Count: n, Rate: 20000}))
	if err != nil {
		t.Fatal(err)
	}
	if want := uint64((3000 + 28 + 29 + 1500 + 700 + 5*14) * n / 5); r.Bytes != want {
		t.Errorf("%d bytes are reported, want %d", r.Bytes, want)
	}
	for _, v := range rx.noted(t, int(rx.received(t, r.Sent-r.Refused))) {
		if length, id := int(v>>16), int(v&0xffff); length != f.Lengths[id%5] {
			t.Fatalf("packet %d has length %d, want %d", id, length, f.Lengths[id%5])
		}
	}
}

// vanishing is a run whose receiver goes away once it has begun.
func vanishing(t *testing.T, c Config) (Report, error) {
	t.Helper()
	l := labtest.New(t)
	once := false
	c.Duration = 20 * time.Second
	c.Progress = func(Progress) {
		if once {
			return
		}
		once = true
		if out, err := l.Host(lab.Server).Command(t.Context(), "ip", "link", "del",
			"eth0").CombinedOutput(); err != nil {
			t.Errorf("%v %s", err, out)
		}
	}
	return Run(t.Context(), into(l, c))
}

func TestADeviceThatVanishesEndsTheRun(t *testing.T) {
	if _, err := vanishing(t, Config{Floods: []Flood{{To: server4,
		Sources: prefixes("10.0.0.0/8")}}}); err == nil {
		t.Error("no error")
	}
}

func TestConfigsThatMakeNoSenseAreRefused(t *testing.T) {
	f := func(change func(*Flood)) *Flood {
		f := &Flood{To: server4, Sources: prefixes("10.0.0.0/8")}
		change(f)
		return f
	}
	dev := device{name: "eth0", mtu: 1500, inLab: true}
	for name, flood := range map[string]*Flood{
		"no destination":     f(func(f *Flood) { f.To = netip.Addr{} }),
		"mapped destination": f(func(f *Flood) { f.To = netip.MustParseAddr("::ffff:192.0.2.1") }),
		"no source":          f(func(f *Flood) { f.Sources = nil }),
		"mixed families":     f(func(f *Flood) { f.Sources = prefixes("2001:db8::/32") }),
		"overlap": f(func(f *Flood) {
			f.Sources = prefixes("10.0.0.0/8",
				"10.1.0.0/16")
		}),
		"65 sources":    f(func(f *Flood) { f.Sources = make([]netip.Prefix, 65) }),
		"three tags":    f(func(f *Flood) { f.VLANs = []uint16{1, 2, 3} }),
		"tag 4095":      f(func(f *Flood) { f.VLANs = []uint16{4095} }),
		"too short":     f(func(f *Flood) { f.Lengths = []int{27} }),
		"above the MTU": f(func(f *Flood) { f.Lengths = []int{100, 1501} }),
		"unknown kind":  f(func(f *Flood) { f.Kind = 9 }),
	} {
		if err := flood.complete(dev); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	good := []Flood{*f(func(*Flood) {})}
	for name, c := range map[string]Config{
		"no device":         {Floods: good},
		"nothing to send":   {Device: "eth0"},
		"both":              {Device: "eth0", Floods: good, Replay: &Replay{}},
		"negative rate":     {Device: "eth0", Floods: good, Rate: -1},
		"negative duration": {Device: "eth0", Floods: good, Duration: -1},
	} {
		if err := c.check(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Paced runs wait for microseconds each, unpaced ones take less than 100 ns.
func TestASystemCallRunsTheProgramAsOftenAsInTenMilliseconds(t *testing.T) {
	for _, each := range []time.Duration{40 * time.Nanosecond, 6 * time.Microsecond,
		15 * time.Microsecond, time.Millisecond} {
		runs := uint64(firstRuns)
		for range 20 {
			runs = nextRuns(runs, time.Duration(runs)*each, aCall)
		}
		want := min(max(uint64(aCall/each), pacedBatch), mostRuns)
		if runs < want*9/10 || runs > want {
			t.Errorf("%v each: %d runs, want %d", each, runs, want)
		}
	}
	if n := nextRuns(firstRuns, 0, aCall); n != 2*firstRuns {
		t.Errorf("a call that took no time is followed by one of %d runs, want %d", n,
			2*firstRuns)
	}
}

// TestARunThatRestsSleepsBetweenCalls: one of real-time priority that never slept was kept from its
// core for 50 ms of each second, and with it all others there that had one. The run ends once it
// has slept often enough.
func TestARunThatRestsSleepsBetweenCalls(t *testing.T) {
	l := labtest.New(t)
	const least = 20 // a call takes 1 ms
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var first, last int64
	if _, err := Run(ctx, into(l, Config{Path: Live, Rate: 20_000, Rests: true,
		Duration: time.Minute, Floods: []Flood{{To: server4,
			Sources: prefixes("10.0.0.0/8")}}, Progress: func(Progress) {
			var used unix.Rusage
			if err := unix.Getrusage(unix.RUSAGE_THREAD, &used); err != nil {
				t.Error(err)
			}
			if last = used.Nvcsw; first == 0 {
				first = last
			}
			if last-first >= least {
				stop()
			}
		}})); err != nil {
		t.Fatal(err)
	}
	if last-first < least {
		t.Errorf("the sender slept %d times, want %d at least", last-first, least)
	}
}
