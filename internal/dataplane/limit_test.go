package dataplane

import (
	"encoding/binary"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/limit"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

const testHZ = 250

var manySources = flag.Bool("many-sources", false, "TestLimitIsExactBelowItsBound: 10,000 beside "+
	"ten million")

// limited is a policy with one limit, in the kernel, with a clock of its own.
type limited struct {
	*loader.Runner
	t     testing.TB
	limit *policy.Limit
	rest  int    // slot of the counter of what the limit lets pass
	now   uint64 // jiffies
}

func newLimited(t testing.TB, rule string, cpus int) *limited {
	t.Helper()
	return newLimitedAt(t, rule, cpus, codegen.XDP)
}

func newLimitedAt(t testing.TB, rule string, cpus int, hook codegen.Hook) *limited {
	t.Helper()
	r, p := runnerOf(t, rule+"\ndefault pass\n", codegen.Target{CPUs: cpus, HZ: testHZ, Trace: true,
		Clock: true, Hook: hook})
	l := &limited{Runner: r, t: t, limit: p.Rules[0].Limit, rest: p.DefaultSlot(), now: 1 << 33}
	l.pass(0)
	return l
}

// pass lets jiffies pass.
func (l *limited) pass(jiffies uint64) {
	l.now += jiffies
	l.SetClock(l.now)
}

// send sends a frame n times and says how many passed.
func (l *limited) send(frame []byte, n int) (passed int) {
	for range n { // one by one: to repeat a frame the kernel takes 25 ms
		ret, err := l.Loaded.Prog.Run(&ebpf.RunOptions{Data: frame})
		if err != nil {
			l.t.Fatal(err)
		}
		if ret == attach.XdpPass {
			passed++
		}
	}
	return passed
}

// repeat is send for a program at TCX, for which the kernel repeats a frame at once.
func (l *limited) repeat(frame []byte, n int) (passed int) {
	before := l.passed()
	if _, err := l.Loaded.Prog.Run(&ebpf.RunOptions{Data: frame,
		Repeat: uint32(n)}); err != nil {
		l.t.Fatal(err)
	}
	return int(l.passed() - before)
}

func (l *limited) passed() uint64 { return l.Counters()[l.rest].Packets }

func (l *limited) stats() limit.Stats {
	memory, err := store.CopyOfMap(l.Loaded.Maps["limit_0"])
	if err != nil {
		l.t.Fatal(err)
	}
	return limit.Read(memory, limit.ShapeOf(l.limit), l.now, testHZ)
}

var udpFrame = func() []byte {
	f, err := packet.Build(packet.Spec{Proto: new(uint8(packet.ProtoUDP)), Len: new(46)})
	if err != nil {
		panic(err)
	}
	return f
}()

// from is a UDP packet of 60 bytes from the IPv4 address of a number.
func from(source uint32) []byte {
	f := slices.Clone(udpFrame)
	binary.BigEndian.PutUint32(f[26:], source)
	return f
}

// from6 is one from the IPv6 address whose last bits are a number.
func from6(t testing.TB, source uint32) []byte {
	f, err := packet.Build(packet.Spec{Family: packet.IPv6,
		Proto: new(uint8(packet.ProtoUDP))})
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint32(f[14+8+12:], source)
	return f
}

// TestLimitAdmitsTheRate: at 2 to 1,000 times the rate for 60 s a budget pays what the rate gives,
// within 1 %, and never more than that and the burst.
func TestLimitAdmitsTheRate(t *testing.T) {
	for _, c := range []struct {
		rate  string
		burst string
		give  float64 // packets of 60 bytes a second
	}{
		{"100/s", "100", 100}, {"7/s", "5", 7}, {"1000/s", "10", 1000},
		{"90/m", "3", 1.5}, {"480kbit/s", "6000", 1000}, {"1mbit/s", "64kB", 1e6 / 8 / 60},
	} {
		for _, times := range []float64{2, 10, 1000} {
			if times*c.give > 10_000 {
				continue // what is dropped costs no budget, however much it is
			}
			for _, by := range []string{"", " by source", " by source, source/24 x2, flow"} {
				rule := "limit rate " + c.rate + " burst " + c.burst + by
				l := newLimitedAt(t, rule, 2, codegen.TCX)
				most := float64(l.limit.Burst)
				if l.limit.Rate.Bits {
					most /= 60
				}
				passed, sent, due := 0, 0.0, 0.0
				const seconds = 60
				for range seconds * testHZ {
					due += c.give * times / testHZ
					if n := int(due - sent); n > 0 {
						passed += l.repeat(from(1), n)
						sent += float64(n)
					}
					l.pass(1)
				}
				lower, upper := 0.99*c.give*seconds, c.give*seconds+most
				if p := float64(passed); p > upper || p < lower {
					t.Errorf("%s at %g times the rate: %d passed in 60 s, want %.0f to %.0f",
						rule, times, passed, lower, upper)
				}
			}
		}
	}
}

// TestKeysOfAPacketHaveSlotsOfTheirOwn: the budgets of one packet may lie in one line. New there,
// they took the same slot: the packet was dropped, or, on one CPU, one of the debts was lost.
func TestKeysOfAPacketHaveSlotsOfTheirOwn(t *testing.T) {
	for _, by := range []string{"source, source/24 x2", "source, source/24 x2, source/16 x4"} {
		for _, cpus := range []int{1, 2} {
			rule := "limit rate 10/s burst 1 by " + by + " memory 4kB"
			l := newLimited(t, rule, cpus)
			first, again := 0, 0
			const sources = 2000
			for i := range uint32(sources) {
				source := i << 16 // of a network of its own
				if i%2 > 0 {
					source = i / 2 // of one that had a budget before
				}
				l.pass(testHZ) // all budgets are full
				first += l.send(from(source), 1)
				again += l.send(from(source), 1)
			}
			if first != sources || again != 0 {
				t.Errorf("%s, %d CPUs: of %d sources %d packets passed, and %d of the same at "+
					"once behind them", rule, cpus, sources, first, again)
			}
		}
	}
}

// TestLimitIsExactBelowItsBound: forged sources that send once, as many as `levee check` says,
// cost the others nothing.
func TestLimitIsExactBelowItsBound(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for how, arrivals := range map[string]func(crowd, steps, step int) int{
		"evenly": func(crowd, steps, _ int) int { return crowd / steps },
		"by chance": func(crowd, steps, _ int) int { // of a Poisson process, for many
			mean := float64(crowd) / float64(steps)
			return max(0, int(mean+math.Sqrt(mean)*r.NormFloat64()))
		},
		"in bursts": func(crowd, steps, step int) int { // all at once, and then none
			if step%(steps+1) == 0 {
				return crowd
			}
			return 0
		},
	} {
		t.Run(how, func(t *testing.T) { exactBelowItsBound(t, arrivals) })
	}
}

// exactBelowItsBound has as many sources come as a limit is exact for: arrivals says how many in
// each step, of which a source holds its slot for so many.
func exactBelowItsBound(t *testing.T, arrivals func(crowd, steps, step int) int) {
	honest, seconds := 1000, 2
	if *manySources {
		honest, seconds = 10_000, 60
	}
	l := newLimited(t, "limit rate 10/s burst 20 by source memory 4MB", 2)
	// Each source sends once: no number of 28 bits comes again in 2^28.
	next := uint32(0)
	forge := func(to []byte) {
		binary.BigEndian.PutUint32(to[26:], 16<<24+next*2654435761&(1<<28-1))
		next++
	}
	forged := make([][]byte, 1<<18)
	for i := range forged {
		forged[i] = slices.Clone(udpFrame)
		forge(forged[i])
	}
	trace, err := loader.NewTrace(forged)
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	memory := make([]byte, trace.Stride*trace.Count)
	for i, f := range forged {
		copy(memory[i*trace.Stride:], f)
	}
	run, err := l.OnTrace(trace)
	if err != nil {
		t.Fatal(err)
	}
	frames := make([][]byte, honest)
	for i := range frames {
		frames[i] = from(0xc6120000 + uint32(i))
	}
	r := rand.New(rand.NewPCG(1, 2))
	exact := make([]uint64, honest) // until when each is in debt
	const (
		price = testHZ / 10 // jiffies
		burst = 20
		step  = price / 5 // of the time for which a packet holds a slot
	)
	crowd := int(l.limit.Crowd())
	sent, lost, packets := 0, 0, 0
	fresh := 0 // packets since the trace got other sources
	for i := range seconds * testHZ / step {
		each := arrivals(crowd, price/step, i)
		if fresh += each; fresh > trace.Count {
			fresh = each
			for i := 0; i < len(memory); i += trace.Stride {
				forge(memory[i:])
			}
			if err := trace.Frames.Put(uint32(0), memory); err != nil {
				t.Fatal(err)
			}
		}
		if each > 0 {
			if _, _, err := run.Feeder.Prog.Benchmark(run.Frame, each, nil); err != nil {
				t.Fatal(err)
			}
		}
		packets += each
		for range max(1, honest/20) { // each at half its rate on the average
			i, n := r.IntN(honest), 1+r.IntN(3)
			for range n {
				if full := max(exact[i], l.now) + price; full-l.now <= burst*price {
					exact[i] = full
					lost += 1 - l.send(frames[i], 1)
					sent++
				}
			}
		}
		l.pass(step)
	}
	t.Logf("%d forged packets at %.0f a second, each from another source, %d honest ones from %d: "+
		"%d of these dropped; %+v", packets, l.limit.Bound(), sent, honest, lost, l.stats())
	if lost > 0 {
		t.Errorf("%d of %d honest packets were dropped below the bound", lost, sent)
	}
}

// TestTheBoundCountsTicks: a slot is empty again at the first tick of the kernel's clock behind its
// time. So a source that sends once holds one for a tick at least, however high the rate is: far
// below the bound lines were full, where the rate is above one packet a tick.
func TestTheBoundCountsTicks(t *testing.T) {
	frames := make([][]byte, 1<<18)
	for i := range frames {
		frames[i] = from(uint32(i) * 2654435761)
	}
	trace, err := loader.NewTrace(frames)
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	for _, rule := range []string{
		"limit rate 100/s by source memory 4MB",
		"limit rate 1kpps by source memory 4MB",
		"limit rate 50kpps by source, source/24 x32 memory 4MB",
		"limit rate 100mbit/s by source memory 4MB",
	} {
		l := newLimited(t, rule, 2)
		run, err := l.OnTrace(trace)
		if err != nil {
			t.Fatal(err)
		}
		each := int(l.limit.Bound() / testHZ)
		const jiffies = 50
		for range jiffies {
			if _, _, err := run.Feeder.Prog.Benchmark(run.Frame, each, nil); err != nil {
				t.Fatal(err)
			}
			l.pass(1)
		}
		if s := l.stats(); s.Evicted > uint64(each*jiffies)/100_000 {
			t.Errorf("%s: of %d packets at %.0f a second %d found no slot of their own", rule,
				each*jiffies, l.limit.Bound(), s.Evicted)
		}
	}
}

// TestAFullLimitLetsThroughLess: above the bound what passes of each source is at most what it
// would be below.
func TestAFullLimitLetsThroughLess(t *testing.T) {
	l := newLimited(t, "limit rate 100/s burst 5 by source memory 4kB", 1) // 64 lines
	r := rand.New(rand.NewPCG(3, 4))
	exact := map[uint32]float64{} // until when each source is in debt, jiffies
	passed, should := 0, 0
	const price = 2.5 // jiffies
	for range 20_000 {
		source := uint32(r.IntN(2000))
		if r.IntN(3) == 0 {
			source = uint32(r.IntN(10)) // which send more than the others
		}
		full := max(exact[source], float64(l.now)) + price
		may := full-float64(l.now) <= 5*price
		if may {
			should++
		}
		if l.send(from(source), 1) == 1 {
			passed++
			if !may {
				t.Fatalf("source %d got more than its rate", source)
			}
			exact[source] = full
		}
		if r.IntN(400) == 0 {
			l.pass(uint64(r.IntN(3)))
		}
	}
	s := l.stats()
	if passed == should || s.Evicted == 0 || s.InheritedSeconds == 0 || s.Live == 0 {
		t.Errorf("%d of %d passed, %+v: the memory was not full", passed, should, s)
	}
}

// TestCPUsShareABudget: what two CPUs let through together is the burst, to the packet.
func TestCPUsShareABudget(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("two CPUs are not at hand")
	}
	for _, by := range []string{"", " by source"} {
		l := newLimited(t, "limit rate 100kpps burst 100000"+by, runtime.NumCPU())
		var wg sync.WaitGroup
		const each = 400_000
		for cpu := range 2 {
			wg.Go(func() {
				runtime.LockOSThread() // and the thread ends with it
				var set unix.CPUSet
				set.Set(cpu)
				if err := unix.SchedSetaffinity(0, &set); err != nil {
					t.Error(err)
				}
				if _, _, err := l.Loaded.Prog.Benchmark(from(1), each, nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		// A run that a signal ends early is begun again, so more than 2*each may have run.
		if passed := l.passed(); passed != 100_000 {
			t.Errorf("limit%s: %d passed, want 100000; %+v", by, passed, l.stats())
		}
	}
}

// TestLimitForgetsNoTime: budgets are full again after a long time, also after one in which the
// time in slots comes around.
func TestLimitForgetsNoTime(t *testing.T) {
	l := newLimited(t, "limit rate 10/s burst 5 by source", 1)
	for _, jiffies := range []uint64{0, 125, testHZ * 3600, testHZ * 70_368, 1<<40 + 1000} {
		l.pass(jiffies)
		if n := l.send(from(7), 20); n != 5 {
			t.Errorf("after %d jiffies %d passed, want 5", jiffies, n)
		}
	}
}

// TestABudgetIsUsedUpForACPUThatIsBehind: a program that read the time before a tick comes to a
// budget that another CPU has used up behind it. It owed more than it can then, and was full.
func TestABudgetIsUsedUpForACPUThatIsBehind(t *testing.T) {
	for _, by := range []string{"", " by source"} {
		l := newLimited(t, "limit rate 10/s burst 5"+by, 2)
		if n := l.send(from(7), 20); n != 5 {
			t.Errorf("limit%s: %d passed, want 5", by, n)
		}
		for range 3 {
			l.now--
			l.pass(0)
			if n := l.send(from(7), 20); n != 0 {
				t.Errorf("limit%s: %d more passed where it is earlier", by, n)
			}
		}
	}
}

// TestUnusedBudgetsAreFullAtAllTimes: memory that nobody has written to owes nothing, also just
// before the time in slots comes around to zero, which it does every 19.5 hours. New sources found
// all of it in debt then.
func TestUnusedBudgetsAreFullAtAllTimes(t *testing.T) {
	const around = 1 << 46 // ns
	for _, by := range []string{"", " by source"} {
		l := newLimited(t, "limit rate 10/s burst 5"+by, 1)
		// half of what the burst is worth before it
		l.now = (7*around - 250_000_000) / limit.Tick(testHZ)
		l.pass(0)
		if live := l.stats().Live; live != 0 {
			t.Errorf("limit%s: %d budgets that nobody has used are in debt", by, live)
		}
		for source := range uint32(20) {
			if n := l.send(from(source), 7); n != 5 && (by != "" || source == 0) {
				t.Errorf("limit%s: of a new source %d passed, want 5", by, n)
			}
		}
		if s := l.stats(); s.Evicted != 0 {
			t.Errorf("limit%s: %+v", by, s)
		}
	}
}

// TestKeysAreTold: what differs in a key has a budget of its own, what does not shares one.
func TestKeysAreTold(t *testing.T) {
	build := func(s packet.Spec) []byte {
		f, err := packet.Build(s)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	six := func(last uint32, high byte) []byte {
		f := from6(t, last)
		f[14+8+7] = high // bits 56 to 63
		return f
	}
	port := func(source, to uint16) []byte {
		return build(packet.Spec{Proto: new(uint8(packet.ProtoUDP)), FromPort: &source,
			ToPort: &to})
	}
	for _, c := range []struct {
		by   string
		a, b []byte
		same bool
	}{
		{"source", from(1), from(2), false},
		{"source/31", from(2), from(3), true},
		{"source/31", from(1), from(2), false},
		{"source/24", six(1, 0), six(2, 9), true},     // /56
		{"source/24,64", six(1, 0), six(2, 9), false}, // bits 56 to 63 count
		{"source/24,64", six(1, 3), six(2, 3), true},
		{"source/8,127", six(2, 0), six(3, 0), true},
		{"source", six(2, 0), six(3, 0), false},
		{"destination", from(1), from(2), true},
		{"port", port(1, 2), port(3, 2), true},
		{"port", port(1, 2), port(1, 3), false},
		{"from port", port(1, 2), port(1, 3), true},
		{"flow", port(1, 2), port(1, 3), false},
		{"flow", port(1, 2), port(1, 2), true},
		{"source/8,20", from(1), six(1, 0), false}, // both begin with zeros only
	} {
		l := newLimited(t, "limit rate 10/s burst 5 by "+c.by, 1)
		first, second := l.send(c.a, 5), l.send(c.b, 5)
		if want := map[bool]int{true: 0, false: 5}[c.same]; first != 5 || second != want {
			t.Errorf("by %s: %d and %d passed, want 5 and %d", c.by, first, second, want)
		}
	}
}

// TestOneRateForAllAddresses: a table with one prefix of all addresses of a family had no place to
// be searched, and the kernel refused the policy.
func TestOneRateForAllAddresses(t *testing.T) {
	for _, c := range []struct {
		table string
		frame []byte
		want  int
	}{
		{"0.0.0.0/0 10/s burst 5", from(1), 5},
		{"0.0.0.0/0 10/s burst 5", from6(t, 1), 9},
		{"::/0 10/s burst 6", from6(t, 1), 6},
		{"::/0 10/s burst 6", from(1), 9},
		{"0.0.0.0/0 10/s burst 5, ::/0 10/s burst 6", from(1), 5},
		{"0.0.0.0/0 10/s burst 5, ::/0 10/s burst 6", from6(t, 1), 6},
		{"0.0.0.0/0 10/s burst 5, ::/0 10/s burst 6, 2001:db8::/32 10/s burst 7", from(1), 5},
	} {
		l := newLimited(t, "limit rate from { "+c.table+" }", 1)
		if got := l.send(c.frame, 9); got != c.want {
			t.Errorf("%s: %d of 9 pass, want %d", c.table, got, c.want)
		}
	}
}

// runnerOf runs a policy until the test ends.
func runnerOf(t testing.TB, text string, target codegen.Target) (*loader.Runner, *policy.Policy) {
	t.Helper()
	needRoot(t)
	p, ds := resolve.Parse("test.levee", []byte(text),
		func(path string) (io.ReadCloser, error) { return os.Open(path) })
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	prog, err := codegen.Compile(p, target)
	if err != nil {
		t.Fatal(err)
	}
	r, err := loader.NewRunner(prog)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, p
}

// passing hears what passes. It returns a function that waits for a packet of UDP to a port.
func passing(t testing.TB) func(port uint16) error {
	t.Helper()
	ear, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
		int(be16(unix.ETH_P_ALL)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(ear) })
	if err := unix.SetsockoptTimeval(ear, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&unix.Timeval{Sec: 20}); err != nil {
		t.Fatal(err)
	}
	return func(port uint16) error {
		for b := make([]byte, 2048); ; {
			size, _, err := unix.Recvfrom(ear, b, 0)
			if err != nil {
				return err
			}
			if size > 38 && binary.BigEndian.Uint16(b[36:]) == port {
				return nil
			}
		}
	}
}

// wantUntil waits until something holds.
func wantUntil(t testing.TB, holds func() bool) {
	t.Helper()
	await.True(t, "it holds", holds)
}
