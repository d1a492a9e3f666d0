package dataplane

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/echo"
	"levee/internal/filter/state"
	"levee/internal/lang/action"
	"levee/internal/packet"
	"levee/internal/packet/a2s"
)

var guesses = flag.Int("guesses", 1<<14, "tests of guesses: how many packets")

// datagram is a packet over UDP between two addresses with ports.
func datagram(t testing.TB, from, to string, payload []byte) []byte {
	t.Helper()
	src, dst := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	f, err := packet.Build(packet.Spec{Proto: new(uint8(packet.ProtoUDP)), From: src.Addr(),
		To: dst.Addr(), FromPort: new(src.Port()), ToPort: new(dst.Port()), Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestGuessedEchoesProveNobody: each of many clients was given a value, and who forges their
// addresses and ports guesses it. 2^22 guesses of 4 bytes prove 1 in 1,024 tries of this test.
func TestGuessedEchoesProveNobody(t *testing.T) {
	const clients = 4096
	r, _ := runnerOf(t, "prove \"a\" udp port 27015 reply echo 4 bytes at 0 "+
		"in request at 0\npass udp proven flow\ndefault drop\n",
		codegen.Target{Trace: true, Clock: true, HZ: testHZ})
	r.SetClock(1 << 33)
	client := func(i int) string { return fmt.Sprintf("10.9.%d.%d:4000", i>>8, i&255) }
	frames := make([][]byte, clients)
	value := make([]byte, 4)
	for i := range frames {
		binary.BigEndian.PutUint32(value, rand.Uint32())
		if err := r.Leave(datagram(t, "192.0.2.1:27015", client(i), value)); err != nil {
			t.Fatal(err)
		}
		frames[i] = datagram(t, client(i), "192.0.2.1:27015", value)
	}
	proven := 0
	for i := range *guesses {
		f := frames[i%clients]
		binary.BigEndian.PutUint32(f[42:], rand.Uint32())
		_, verdict, err := r.Eval(f)
		if err != nil {
			t.Fatal(err)
		}
		if verdict == action.Pass {
			proven++
		}
	}
	tally := echoTally(t, r)
	t.Logf("%d guesses of 4 bytes for %d clients: %d proven; by chance %.4f", *guesses, clients,
		proven, float64(*guesses)/(1<<32))
	if proven > 1 || tally.Wrong < uint64(*guesses-proven) {
		t.Errorf("%d of %d guesses prove a client; %d were counted as wrong", proven, *guesses,
			tally.Wrong)
	}
}

// TestValuesThatDifferInTheirHighestBitAreTwo: the sums of two such values differ in their upper 33
// bits alone, of which the second cancelled out the first by one pair of keys of 2^33, as by these.
func TestValuesThatDifferInTheirHighestBitAreTwo(t *testing.T) {
	r, _ := runnerOf(t, "prove \"a\" udp port 27015 reply echo 4 bytes at 0 "+
		"in request at 0\npass udp proven flow\ndefault drop\n",
		codegen.Target{Trace: true, Clock: true, HZ: testHZ})
	r.SetClock(1 << 33)
	memory, err := store.MapMemory(r.Loaded.Holding(state.HoldsEchoes), echo.Size)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	// Words of the head: start, last, 12 factors, 2 keys. The hash of every flow is 0.
	for i, word := range [16]uint64{2 + 10: 1, 2 + 11: 0x12aa7333} {
		binary.NativeEndian.PutUint64(memory[int(echo.AtStart)+8*i:], word)
	}
	const server, client = "192.0.2.1:27015", "203.0.113.9:4000"
	if err := r.Leave(datagram(t, server, client, []byte{1, 2, 3, 4})); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		last byte
		want action.Action
	}{{0x84, action.Drop}, {0x04, action.Pass}} {
		_, verdict, err := r.Eval(datagram(t, client, server, []byte{1, 2, 3, c.last}))
		if err != nil || verdict != c.want {
			t.Errorf("a value that ends in %#x: %v, %v", c.last, verdict, err)
		}
	}
}

// TestAStrangersPacketHasAWrongValueWhereItIsLongEnough: a client that was given nothing has one of
// a form once, if its packet reaches behind any of the places, whatever their order.
func TestAStrangersPacketHasAWrongValueWhereItIsLongEnough(t *testing.T) {
	r, _ := runnerOf(t, "prove \"a\" udp port 27015 reply echo 4 bytes at 0 in request at 25, 5, "+
		"9\npass udp proven flow\ndefault drop\n",
		codegen.Target{Trace: true, Clock: true, HZ: testHZ})
	r.SetClock(1 << 33)
	want := uint64(0)
	for i, n := range []int{8, 9, 12, 29, 40} {
		if n >= 9 {
			want++
		}
		f := datagram(t, fmt.Sprintf("10.9.0.1:%d", 4000+i), "192.0.2.1:27015", make([]byte, n))
		if _, verdict, err := r.Eval(f); err != nil || verdict != action.Drop {
			t.Fatal(verdict, err)
		}
		if got := echoTally(t, r).Wrong; got != want {
			t.Errorf("behind one of %d bytes %d are wrong, want %d", n, got, want)
		}
	}
}

// TestGuessedNumbersProveNobody: who forges many addresses guesses the number that a cookie for A2S
// gives to each. One bit of the four bytes names the period, so 2^22 guesses prove 1 in 512 tries
// of this test.
func TestGuessedNumbersProveNobody(t *testing.T) {
	const clients = 4096
	r, _ := runnerOf(t, "pass udp proven flow\ncookie a2s udp port 27015\ndefault drop\n",
		codegen.Target{Trace: true, Clock: true, HZ: testHZ})
	r.SetClock(1 << 33)
	frames := make([][]byte, clients)
	for i := range frames {
		frames[i] = datagram(t, fmt.Sprintf("10.9.%d.%d:4000", i>>8, i&255), "192.0.2.1:27015",
			a2s.Query(a2s.Player, 0))
	}
	proven := 0
	for i := range *guesses {
		f := slices.Clone(frames[i%clients]) // it becomes the answer
		binary.LittleEndian.PutUint32(f[len(f)-4:], rand.Uint32())
		_, verdict, err := r.Eval(f)
		if err != nil {
			t.Fatal(err)
		}
		if verdict == action.Pass {
			proven++
		}
	}
	t.Logf("%d guesses of a number for %d clients: %d proven; by chance %.4f", *guesses, clients,
		proven, float64(*guesses)/(1<<31))
	if proven > 1 {
		t.Errorf("%d of %d guesses prove a client", proven, *guesses)
	}
}

// TestAFlowThatSendsIsNeverEvicted: all places have flows that send, so proofs are refused. Where
// one of a line is silent for longer than ten seconds, its place is taken, and no other.
func TestAFlowThatSendsIsNeverEvicted(t *testing.T) {
	r, _ := runnerOf(t, "prove \"a\" udp port 27015 reply echo 4 bytes at 0 in request at 0\n"+
		"pass udp proven flow\ndefault drop\n",
		codegen.Target{Trace: true, Clock: true, HZ: testHZ})
	memory, err := store.MapMemory(r.Loaded.Holding(state.HoldsEchoes), echo.Size)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	flows := memory[echo.Size-8*echo.Places:]
	fill := func(now uint64, silent int) { // tags are of no flow here, as nearly all
		ends := now + uint64(echo.Lease.Seconds()+1)*testHZ
		for i := range echo.Places {
			if i%8 == silent {
				continue
			}
			binary.NativeEndian.PutUint64(flows[8*i:], uint64(i)<<33|1<<32|ends&(1<<32-1))
		}
	}
	prove := func(n int) (proven int) {
		for i := range n {
			client := fmt.Sprintf("10.9.%d.%d:4000", i>>8, i&255)
			value := []byte{1, 2, byte(i >> 8), byte(i)}
			if err := r.Leave(datagram(t, "192.0.2.1:27015", client, value)); err != nil {
				t.Fatal(err)
			}
			_, verdict, err := r.Eval(datagram(t, client, "192.0.2.1:27015", value))
			if err != nil {
				t.Fatal(err)
			}
			if verdict == action.Pass {
				proven++
			}
		}
		return proven
	}
	now := uint64(1 << 33)
	r.SetClock(now)
	fill(now, -1)
	before := slices.Clone(flows)
	if n := prove(500); n != 0 || !bytes.Equal(flows, before) {
		t.Errorf("where all flows send, %d others are proven", n)
	}
	now += 12 * testHZ
	r.SetClock(now)
	fill(now, 3)
	before = slices.Clone(flows)
	const tries = 500
	if n := prove(tries); n < tries*9/10 {
		t.Errorf("%d of %d take the places of those that are silent", n, tries)
	}
	for i := range echo.Places {
		if is := flows[8*i:][:8]; i%8 != 3 && !bytes.Equal(is, before[8*i:][:8]) {
			t.Fatalf("a flow that sends has lost its place, %d", i)
		}
	}
	if s := echo.Read(memory, now); s.Refused < tries || s.Taken < tries*9/10 {
		t.Errorf("the memory tells of %d refused and %d taken", s.Refused, s.Taken)
	}
}

// echoTally returns the tally of a policy's only `prove` statement, summed over all CPUs.
func echoTally(t testing.TB, r *loader.Runner) echo.Tally {
	t.Helper()
	memory, err := store.MapMemory(r.Loaded.Holding(state.HoldsEchoes), echo.Size)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	var sum echo.Tally
	for i := range echo.Tallies {
		e := echo.ReadTally(memory, i)
		sum.Given, sum.Proofs, sum.Wrong = sum.Given+e.Given, sum.Proofs+e.Proofs, sum.Wrong+e.Wrong
		sum.Values += e.Values
	}
	return sum
}

// A flow that is proven stays so for as long as it sends something every three minutes, and a value
// that comes back after more than five seconds proves nobody, as if it had been captured.
func TestAProvenFlowStaysWhileItSends(t *testing.T) {
	for name, target := range map[string]codegen.Target{"xdp": {}, "several buffers": {Frags: true},
		"tcx": {Hook: codegen.TCX}, "records": {Bytecode: true}} {
		for _, at := range [][2]string{{"203.0.113.9:4000", "192.0.2.1:27015"},
			{"[2001:db8::9]:4000", "[2001:db8::1]:27015"}} {
			t.Run(name+"/"+at[0], func(t *testing.T) {
				target.Trace, target.Clock, target.HZ = true, true, testHZ
				r, _ := runnerOf(t, "prove \"a\" udp port 27015 reply payload at 0 41 "+
					"echo 20 bytes at 1 in request at 30, 2\npass udp proven flow\n"+
					"default drop\n", target)
				now := uint64(1 << 33)
				judged := func(what string, after uint64, payload string, want action.Action) {
					t.Helper()
					now += after * testHZ
					r.SetClock(now)
					_, verdict, err := r.Eval(datagram(t, at[0], at[1], []byte(payload)))
					if err != nil || verdict != want {
						t.Errorf("%s: %v, %v", what, verdict, err)
					}
				}
				const value = "twenty bytes of them"
				leave := func(payload string) {
					t.Helper()
					if err := r.Leave(datagram(t, at[1], at[0], []byte(payload))); err != nil {
						t.Fatal(err)
					}
				}
				judged("before", 0, "xx"+value, action.Drop)
				leave("B" + value)
				judged("of another reply", 0, "xx"+value, action.Drop)
				leave("A" + value)
				judged("elsewhere", 0, "xxx"+value, action.Drop)
				judged("cut short", 0, "xx"+value[:19], action.Drop)
				judged("after six seconds", 6, "xx"+value, action.Drop)
				leave("A" + value)
				judged("after five seconds", 5, "xx"+value, action.Pass)
				for range 3 {
					judged("of a session", 179, "hello", action.Pass)
				}
				judged("after silence", 182, "hello", action.Drop)
				judged("a replay", 0, "xx"+value, action.Drop)
			})
		}
	}
}

// TestAValueComesBackWheneverItWasGiven: also where the time of its mark comes around, on a CPU
// that is a second behind, and as late as may be. Six seconds later it is none, whatever its mark
// says.
func TestAValueComesBackWheneverItWasGiven(t *testing.T) {
	const unit = 256 // jiffies at testHZ
	r, _ := runnerOf(t, "prove \"a\" udp port 27015 reply echo 4 bytes at 0 in request at 0\n"+
		"pass udp proven flow\ndefault drop\n",
		codegen.Target{Trace: true, Clock: true, HZ: testHZ})
	const service = "192.0.2.1:27015"
	comes := map[int]action.Action{-testHZ: action.Pass, 5 * testHZ: action.Pass,
		6*testHZ + 1: action.Drop}
	n := 0
	for i := range 260 {
		for _, at := range []int{0, unit - 1} {
			given := 1<<33 + i*unit + at
			for later, want := range comes {
				client := fmt.Sprintf("10.7.%d.%d:4000", n>>8, n&255)
				n++
				r.SetClock(uint64(given))
				if err := r.Leave(datagram(t, service, client, []byte("four"))); err != nil {
					t.Fatal(err)
				}
				r.SetClock(uint64(given + later))
				_, verdict, err := r.Eval(datagram(t, client, service, []byte("four")))
				if err != nil || verdict != want {
					t.Fatalf("given at %d jiffies of unit %d, %d later: %v, %v", at, i, later,
						verdict, err)
				}
			}
		}
	}
}
