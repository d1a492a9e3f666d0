package difftest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/sets"
	"levee/internal/filter/codegen"
	"levee/internal/filter/oracle"
	"levee/internal/kernel"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

var (
	bigPolicies = flag.Int("policies", 0, "TestBig: how many policies are generated")
	bigPackets  = flag.Int("packets", 1_000_000, "TestBig: how many packets in all")
	bigRecords  = flag.Bool("records", false, "TestBig: all rules become records, not instructions")
	firstSeed   = flag.Uint64("seed", 0,
		"first seed; 0 is one of the time for TestBig, and 1 for the others")
)

// compiled is a policy as it runs in the kernel.
type compiled struct {
	*loader.Runner
	hook codegen.Hook
	way  *arrival // nil: frames come to it as they are
}

// Eval leaves out frames of which BPF_PROG_RUN makes no socket buffer: an IP packet that ends
// within its header (net/bpf/test_run.c).
func (c compiled) Eval(frame []byte) (int, action.Action, error) {
	var context []byte
	if c.way != nil {
		frame, context = c.way.split(frame)
	}
	slot, verdict, err := c.Runner.EvalWith(frame, context)
	if c.hook == codegen.TCX && len(frame) < 14+40 && errors.Is(err, unix.EINVAL) {
		return 0, action.Drop, errNotRun
	}
	return slot, verdict, err
}

// Answer is that to the last frame.
func (c compiled) Answer() []byte {
	answer := c.Runner.Answer()
	if c.way != nil {
		answer = c.way.whole(answer)
	}
	return answer
}

// Close ends the program, and what is in front of it.
func (c compiled) Close() error {
	err := c.Runner.Close()
	if c.way != nil {
		err = errors.Join(err, c.way.close())
	}
	return err
}

// Packets adapts the counters that every policy keeps.
func (c compiled) Packets() []uint64 {
	var sums []uint64
	for _, n := range c.Counters() {
		sums = append(sums, n.Packets)
	}
	return sums
}

// Put and Take change the dynamic sets of the program.
func (c compiled) Put(set string, e policy.Element) error {
	return c.SetAdd(set, sets.EntryOf(e, sets.Forever))
}

func (c compiled) Take(set string, e policy.Element) { c.SetDel(set, e) }

// Time and SetTime are the clock of the program.
func (c compiled) Time() (jiffies, hz uint64) {
	now, hz, err := kernel.Jiffies()
	if err != nil {
		panic(err) // the program could not have been loaded
	}
	return now, hz
}

func (c compiled) SetTime(jiffies uint64) { c.SetClock(jiffies) }

// Leave runs the program at egress, which makes a socket buffer of the frame.
func (c compiled) Leave(frame []byte) error {
	err := c.Runner.Leave(frame)
	if errors.Is(err, unix.EINVAL) {
		return errNotRun
	}
	return err
}

// gigabyte is the memory of a small machine. Connections have a sixteenth of the most room there,
// so that the kernel does not clear 64 MB for each program.
const gigabyte = 1 << 30

// target takes turns with the kinds of program, and with the rooms for connections.
func target(seed uint64, records bool) codegen.Target {
	t := codegen.Target{CPUs: int(seed%3) + 1, Trace: true, Bytecode: records, Memory: gigabyte}
	if seed%5 == 0 {
		t.Memory = 0 // the most room
	}
	switch seed % 4 {
	case 2:
		t.Frags = true
	case 3:
		t.Hook = codegen.TCX
	}
	return t
}

// timed has a program go by the clock of a comparison.
func timed(t *codegen.Target) (err error) {
	t.Clock = true
	_, t.HZ, err = kernel.Jiffies()
	return err
}

// load compiles a policy and loads it until the test ends.
func load(t *testing.T, p *policy.Policy, target codegen.Target) *loader.Runner {
	t.Helper()
	target.Trace, target.Memory = true, gigabyte
	if err := timed(&target); err != nil {
		t.Fatal(err)
	}
	program, err := codegen.Compile(p, target)
	if err != nil {
		t.Fatal(err)
	}
	r, err := loader.NewRunner(program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	way, err := arriveAt(r, program, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { way.close() })
	return r
}

// compileCase compiles and loads the policy of c and fills its dynamic sets.
func compileCase(c Case, records bool) (compiled, error) {
	target := target(c.Seed, records)
	target.Link = c.Link
	if err := timed(&target); err != nil {
		return compiled{}, err
	}
	program, err := codegen.Compile(c.Policy, target)
	if err != nil {
		return compiled{}, fmt.Errorf("seed %d: compile: %w\n%s", c.Seed, err, c.Text)
	}
	r, err := loader.NewRunner(program)
	if err != nil {
		return compiled{}, fmt.Errorf("seed %d: load: %w\n%s", c.Seed, err, c.Text)
	}
	if err := fill(r, c); err != nil {
		return compiled{}, errors.Join(fmt.Errorf("seed %d: %w", c.Seed, err), r.Close())
	}
	way, err := arriveAt(r, program, c.Seed)
	if err != nil {
		return compiled{}, errors.Join(fmt.Errorf("seed %d: %w", c.Seed, err), r.Close())
	}
	return compiled{r, target.Hook, way}, nil
}

// fill puts the entries of c into the dynamic sets of r, and waits until those whose lease is to
// have ended are still there and hold no more.
func fill(r *loader.Runner, c Case) error {
	ended := false
	for _, set := range c.Policy.Sets {
		for _, e := range c.Entries(set) {
			lease := [...]time.Duration{Forever: sets.Forever, Running: time.Hour,
				Ended: time.Millisecond}[e.Lease]
			if err := r.SetAdd(set.Name, sets.EntryOf(e.Element, lease)); err != nil {
				return fmt.Errorf("set %s: %w", set.Name, err)
			}
			ended = ended || e.Lease == Ended
		}
	}
	if ended {
		await.Pass(30*time.Millisecond, "some ticks of the slowest kernel's clock")
	}
	return nil
}

// run compares the compiled program of one seed with the oracle.
func run(ctx context.Context, seed uint64, frames int, records bool) (Stats, error) {
	return runOn(ctx, packet.Ethernet, seed, frames, records)
}

func runOn(ctx context.Context, link packet.Link, seed uint64, frames int, records bool) (Stats,
	error) {
	p, text, err := Policy(seed)
	if err != nil {
		return Stats{}, err
	}
	if link == packet.L3 {
		WithoutEthernet(p)
	}
	c := Case{Policy: p, Link: link, Text: text, Seed: seed, Frames: frames}
	engine, err := compileCase(c, records)
	if err != nil {
		return Stats{}, err
	}
	stats, err := Compare(ctx, c, engine)
	return stats, errors.Join(err, engine.Close())
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to load programs")
	}
}

// TestCompiledPoliciesAgreeWithTheOracle is the fixed run, in two halves for two cores. The kernel
// takes a quarter of a second to verify a policy, and none for its packets: `make soak` has more
// policies (docs/explanation/soak.md).
func TestCompiledPoliciesAgreeWithTheOracle(t *testing.T) { fixedRun(t, 120, 1000, false) }

// TestRecordsAgreeWithTheOracle judges half of these policies by records, which rules become that
// are too many for instructions of their own: one interpreter runs all of them.
func TestRecordsAgreeWithTheOracle(t *testing.T) { fixedRun(t, 60, 1000, true) }

// TestAFINSoonAfterARSTClosesAConnection: for a second after a RST had come in, the program did not
// note that a FIN left, and took a connection for open that both sides had closed.
func TestAFINSoonAfterARSTClosesAConnection(t *testing.T) {
	needRoot(t)
	if _, err := run(t.Context(), 417, 1000, false); err != nil {
		t.Error(err)
	}
}

// TestAFlowHasEightValues: where a flow was given nine values within a second, the program had no
// place for the first, and the oracle still took it for one that proves.
func TestAFlowHasEightValues(t *testing.T) {
	needRoot(t)
	pol, ds := resolve.Parse("echo.levee", []byte("prove \"a\" udp port 27015 reply echo 4 bytes "+
		"at 0 in request at 0\npass udp proven flow\ndefault drop\n"), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	c := Case{Policy: pol, Seed: 1}
	engine, err := compileCase(c, false)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	o := oracle.NewOn(pol, packet.Ethernet)
	r := &comparison{c: c, oracle: o, clock: newClock(1, []Engine{engine}),
		engines: []Engine{engine}}
	o.SetClock(r.clock.now)
	server := netip.MustParseAddrPort("192.0.2.1:27015")
	client := netip.MustParseAddrPort("203.0.113.1:4000")
	for _, given := range []int{8, 9, 16, 20} {
		for sent := range given {
			client = netip.AddrPortFrom(client.Addr(), client.Port()+1)
			for i := range given {
				reply := r.frame(datagram(server, client, []byte{1, 2, 3, byte(i)}))
				if _, err := r.leave(reply); err != nil {
					t.Fatal(err)
				}
				r.clock.pass(1)
			}
			back := r.frame(datagram(client, server, []byte{1, 2, 3, byte(sent)}))
			want := o.Eval(back)
			if should := sent >= given-8; (want.Action == action.Pass) != should {
				t.Errorf("of %d values the oracle says %v of number %d", given, want.Action, sent)
			}
			if _, got, err := engine.Eval(back); err != nil || got != want.Action {
				t.Errorf("of %d values number %d: %v, %v; the oracle says %v", given, sent, got,
					err, want.Action)
			}
		}
	}
}

func fixedRun(t *testing.T, policies uint64, frames int, records bool) {
	needRoot(t)
	first := max(*firstSeed, 1)
	for half := range uint64(2) {
		t.Run(fmt.Sprint(half), func(t *testing.T) {
			t.Parallel()
			failed := 0
			for seed := first + half; seed < first+policies; seed += 2 {
				if _, err := run(t.Context(), seed, frames, records); err != nil {
					t.Error(err)
					if failed++; failed == 3 {
						t.Fatal("stopped after three")
					}
				}
			}
		})
	}
}

// Programs for devices whose packets begin with IP are held to the oracle in the same way.
func TestProgramsWithoutEthernetAgreeWithTheOracle(t *testing.T) {
	needRoot(t)
	var sum Stats
	for seed := max(*firstSeed, 1); seed < max(*firstSeed, 1)+50; seed++ {
		stats, err := runOn(t.Context(), packet.L3, seed, 800, seed%5 == 0)
		if err != nil {
			t.Fatal(err)
		}
		sum.Frames += stats.Frames
		sum.Malformed += stats.Malformed
	}
	if sum.Malformed*2 > sum.Frames {
		t.Errorf("%d of %d packets are malformed", sum.Malformed, sum.Frames)
	}
}

// TestBig is the long run: go test ./internal/filter/difftest -run Big -policies 200 -packets
// 1000000 [-records]
func TestBig(t *testing.T) {
	if *bigPolicies == 0 {
		t.Skip("the long run is asked for with -policies N")
	}
	needRoot(t)
	seed := *firstSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seeds from %d", seed)
	var sum Stats
	failed := 0
	for i := range *bigPolicies {
		frames := *bigPackets/(*bigPolicies) + btoi(i < *bigPackets%*bigPolicies)
		stats, err := run(t.Context(), seed+uint64(i), frames, *bigRecords)
		sum.Frames += stats.Frames
		sum.Malformed += stats.Malformed
		if err != nil {
			t.Error(err)
			if failed++; failed == 3 {
				break
			}
		}
	}
	kind := "instructions"
	if *bigRecords {
		kind = "records"
	}
	// a row of docs/explanation/soak.md
	t.Logf("| %s, seeds from %d | %d | %d | %d | %d |", kind, seed, *bigPolicies, sum.Frames,
		failed, sum.Malformed)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
