package dataplane

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/greylist"
	"levee/internal/filter/state"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
)

var strangers = flag.Int("strangers", 1<<16,
	"TestStrangersPassByChanceAlone: how many packets of forged sources")

// TestWhoComesAgainPasses follows clients by the clock, at each hook and in both families.
func TestWhoComesAgainPasses(t *testing.T) {
	const text = `greylist udp port 1 after 100ms within 10s as "first"
greylist udp port 2 after 100ms within 10s above 3/s as "flood"
greylist udp port { 1, 3 } after 100ms within 60s as "second"
pass udp
default drop
`
	for name, target := range map[string]codegen.Target{"xdp": {}, "several buffers": {Frags: true},
		"tcx": {Hook: codegen.TCX}, "records": {Bytecode: true}} {
		for _, at := range []string{"203.0.113.9", "[2001:db8::9]"} {
			t.Run(name+"/"+at, func(t *testing.T) {
				target.Trace, target.Clock, target.HZ = true, true, testHZ
				target.Memory = 1 << 20
				r, p := runnerOf(t, text, target)
				now := uint64(1 << 33)
				to := "192.0.2.1"
				if at[0] == '[' {
					to = "[2001:db8::1]"
				}
				judged := func(what string, after float64, from, port int, want string) {
					t.Helper()
					now += uint64(after * testHZ)
					r.SetClock(now)
					f := datagram(t, fmt.Sprintf("%s:%d", at, from), fmt.Sprintf("%s:%d", to, port),
						[]byte("hello"))
					slot, verdict, err := r.Eval(f)
					if err != nil {
						t.Fatal(err)
					}
					got := verdict.String()
					if rule := p.Slots()[slot].Rule; rule != nil && verdict == action.Drop {
						got = rule.Label
					}
					if got != want {
						t.Errorf("%s: %s, want %s", what, got, want)
					}
				}
				judged("the first", 0, 4000, 3, "second")
				judged("too early", 0.05, 4000, 3, "second")
				judged("another port of the client", 0.1, 4001, 3, "second")
				judged("again, by the time of the first", 0.02, 4000, 3, "pass")
				judged("at once", 0, 4000, 3, "pass")
				for range 3 {
					judged("of a session", 59, 4000, 3, "pass")
				}
				judged("after silence", 61, 4000, 3, "second")
				judged("as the first", 1, 4000, 3, "pass")
				judged("hours later", 9000, 4000, 3, "second")

				judged("of the first of two rules", 0, 5000, 1, "first")
				judged("and of the second", 1, 5000, 1, "second")
				judged("of both", 1, 5000, 1, "pass")

				for i := range 3 {
					judged("below the rate", 0, 6000+i, 2, "pass")
				}
				judged("above it", 0, 6003, 2, "flood")
				judged("who came below it, again", 0.2, 6000, 2, "pass")
				judged("for two seconds", 1.7, 6004, 2, "flood")
				judged("and then none", 2.1, 6005, 2, "pass")
			})
		}
	}
}

// greylisted is a policy with a greylist on a machine, whose clock stands at a time in jiffies.
type greylisted struct {
	*loader.Runner
	memory []byte
	frame  []byte
}

func newGreylisted(t *testing.T, machine uint64) *greylisted {
	t.Helper()
	r, _ := runnerOf(t, "greylist udp after 100ms within 10s\npass udp\ndefault drop\n",
		codegen.Target{Trace: true, Clock: true, HZ: testHZ, Memory: machine})
	m := r.Loaded.Holding(state.HoldsGreylist)
	memory, err := store.MapMemory(m, int(m.ValueSize()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(memory) })
	return &greylisted{r, memory, datagram(t, "192.0.2.1:4000", "192.0.2.2:51820", []byte("hello"))}
}

// send has a packet of a client come, and says whether it passes.
func (g *greylisted) send(t *testing.T, client uint64) bool {
	t.Helper()
	binary.BigEndian.PutUint32(g.frame[14+12:], uint32(client>>16))
	binary.BigEndian.PutUint16(g.frame[14+20:], uint16(client))
	_, verdict, err := g.Eval(g.frame)
	if err != nil {
		t.Fatal(err)
	}
	return verdict == action.Pass
}

// TestStrangersPassByChanceAlone: all places have clients that may come again. A packet of another
// one passes if one of 15 in its line has its tag, of 18 bits.
func TestStrangersPassByChanceAlone(t *testing.T) {
	g := newGreylisted(t, 1<<20)
	now := uint64(1 << 33)
	g.SetClock(now)
	tick := uint64(policy.GreylistTick)
	came := uint32(now * (1e9 / testHZ) / tick)
	fill := func() {
		for at := greylist.HeadBytes; at < greylist.MinRoom.Bytes(); at += 4 {
			word := rand.Uint32()&^(1<<14-1) | came&(1<<13-1)
			if (at-greylist.HeadBytes)%64 == 0 {
				word = came
			}
			binary.NativeEndian.PutUint32(g.memory[at:], word)
		}
	}
	g.SetClock(now + testHZ)
	passed := 0
	for i := range *strangers {
		if i%(1<<14) == 0 { // strangers take places, and come too early themselves
			fill()
		}
		if g.send(t, rand.Uint64()) {
			passed++
		}
	}
	chance := float64(*strangers) * 15 / (1 << 18)
	t.Logf("%d packets of forged sources: %d pass, by chance %.1f", *strangers, passed, chance)
	if math.Abs(float64(passed)-chance) > 6*math.Sqrt(chance)+1 {
		t.Errorf("%d of %d packets pass, by chance %.1f", passed, *strangers, chance)
	}
}

// TestACPUThatIsATickBehindForgetsNobody: the line was swept, and its client written, at a time
// that another CPU had not read yet. That one swept the line again, of all its clients.
func TestACPUThatIsATickBehindForgetsNobody(t *testing.T) {
	g := newGreylisted(t, 1<<20)
	const start, client, tick = uint64(1 << 33), 7, testHZ/60 + 1
	now := start
	for i, after := range []uint64{0, testHZ / 5, 5 * testHZ, 10 * testHZ, 17 * testHZ} {
		now = start + after
		g.SetClock(now)
		if passes := g.send(t, client); passes != (i > 0) {
			t.Fatalf("packet %d passes: %v", i, passes)
		}
	}
	g.SetClock(now - tick)
	if !g.send(t, client) {
		t.Error("who has come again is a stranger to a CPU that is a tick behind")
	}
	g.SetClock(now + testHZ)
	if !g.send(t, client) {
		t.Error("he is one from then on")
	}
}

// TestACPUThatIsATickBehindBeginsNoSecond: how many came in a second was counted from zero again
// where another CPU had begun to count it at a tick that this one had not read.
func TestACPUThatIsATickBehindBeginsNoSecond(t *testing.T) {
	r, _ := runnerOf(t, "greylist udp after 100ms within 10s above 5/s\npass udp\ndefault drop\n",
		codegen.Target{Trace: true, Clock: true, HZ: testHZ, Memory: 1 << 20})
	passed := func(now uint64, sources uint32) (n int) {
		r.SetClock(now)
		for source := range sources {
			_, verdict, err := r.Eval(from(source))
			if err != nil {
				t.Fatal(err)
			}
			if verdict == action.Pass {
				n++
			}
		}
		return n
	}
	const now = 1 << 33
	if first, behind := passed(now, 5), passed(now-1, 5); first != 5 || behind != 0 {
		t.Errorf("of a rate of 5 a second %d passed, and %d a tick earlier", first, behind)
	}
}

// TestAClientIsKnownBesideAFlood: in the largest memory nearly all clients are known for 5 s beside
// a million forged sources a second. The memory here is the smallest, and the flood as much less.
func TestAClientIsKnownBesideAFlood(t *testing.T) {
	g := newGreylisted(t, 1<<20)
	const flood = 1_000_000 * int(greylist.MinRoom) / int(greylist.MaxRoom)
	const clients, seconds, steps = 200, 5, 50
	now := uint64(1 << 33)
	g.SetClock(now)
	for i := range clients {
		g.send(t, uint64(i))
	}
	for range steps {
		now += seconds * testHZ / steps
		g.SetClock(now)
		for range seconds * flood / steps {
			g.send(t, rand.Uint64()|1<<47)
		}
	}
	known := 0
	for i := range clients {
		if g.send(t, uint64(i)) {
			known++
		}
	}
	s := greylist.Read(g.memory, now, testHZ)
	t.Logf("%d of %d clients are known after %d s; %+v", known, clients, seconds, s)
	if known < clients*99/100 || s.Again < known || s.Clients < int(greylist.MinRoom)/4 {
		t.Errorf("%d of %d clients are known after %d s; %+v", known, clients, seconds, s)
	}
}

// BenchmarkGreylist measures the time of a packet above an empty program by a policy with a
// greylist, by one with a limit, and by one with neither: of one client, and of a million in turn,
// which are known in a memory of 16 MB and have each lost their place again in one of 4 MB.
func BenchmarkGreylist(b *testing.B) {
	for _, c := range []struct {
		from, to string
		at       int
	}{
		{"10.0.0.0:4000", "192.0.2.1:51820", 14 + 12},
		{"[2a00::]:4000", "[2001:db8::1]:51820", 14 + 8 + 12},
	} {
		for _, sources := range []int{1, 1 << 20} {
			frame := datagram(b, c.from, c.to, []byte("hello"))
			frames := make([][]byte, sources)
			for i := range frames {
				frames[i] = slices.Clone(frame)
				binary.BigEndian.PutUint32(frames[i][c.at:], 10<<24|uint32(i))
			}
			trace, err := loader.NewTrace(frames)
			if err != nil {
				b.Fatal(err)
			}
			defer trace.Close()
			for _, of := range []struct {
				rule string
				mega uint64
			}{
				{"", 0}, {"limit udp rate 100/s by source", 0}, {"limit udp rate 100/s by flow", 0},
				{"greylist udp after 59s within 60s", 16},
				{"greylist udp after 20ms within 60s", 16},
				{"greylist udp after 20ms within 60s above 900Mpps", 4},
				{"greylist udp after 20ms within 60s", 4},
			} {
				name := fmt.Sprintf("%s/sources=%d/%q/%dMB", c.from, sources, of.rule, of.mega)
				b.Run(name, func(b *testing.B) {
					r, _ := runnerOf(b, of.rule+"\ndefault pass\n", codegen.Target{
						CPUs: runtime.NumCPU(), Memory: of.mega << 28 * 5 / 4})
					run, err := r.OnTrace(trace)
					if err != nil {
						b.Fatal(err)
					}
					reportRounds(b, run)
				})
			}
		}
	}
}
