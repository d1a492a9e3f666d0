package dataplane

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/limit"
	"levee/internal/filter/oracle"
	"levee/internal/filter/plan"
	"levee/internal/filter/state"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

var (
	randomSequences = flag.Int("random-sequences", 120,
		"TestRandomSequencesAgreeWithTheOracle: sequences at each hook by a policy")
	randomAll = flag.Bool("random-all", false,
		"TestRandomSequencesAgreeWithTheOracle: by each policy at each hook")
	randomSeed = flag.Uint64("random-seed", 1,
		"TestRandomSequencesAgreeWithTheOracle: the first seed")
)

// randomPolicies are those by which random sequences are judged. To the oracle a merged packet is
// one, also for limits: where these are of TCP, none comes merged.
var randomPolicies = []struct {
	name, text string
	merges     bool // over TCP
	proofs     bool // and over UDP, with what is of proofs
}{
	{"everything", `fragments track
count tcp established as "tcp"
count udp established as "udp"
count icmp established as "icmp"
count icmp6 established as "icmp6"
count proven as "proven"
count vlan 7 as "vlan"
count inner( tcp port 80 ) as "inner"
pass established as "known"
cookie tcp port 80 as "cookie"
pass tcp syn port { 22, 80, 443 } as "new"
limit udp port 53 rate 2/s burst 2 by source as "queries"
pass udp port { 53, 443 } as "dns"
pass proven tcp port 22 as "friend"
default drop
`, true, false},
	{"strict", `limit not established udp rate 2/s burst 3 by source/24,64 as "udp limit"
drop untagged not established tcp not syn as "untagged"
count not established inner( tcp ) as "tunnel"
pass established as "known"
pass udp inner( tcp port 80 ) as "inner"
pass tcp syn port { 22, 443 } vlan { 5, 7 } as "new"
pass tcp syn port 443 as "new too"
pass udp port 53 as "dns"
default drop
out protect tcp from port 22 as "protected"
out drop tcp flags rst from port 443 as "reset"
out drop vlan 7 not icmp as "out vlan"
out limit udp rate 2/s burst 2 by source, destination as "out limit"
out count inner( tcp ) as "out tunnel"
out count established as "answers"
out drop udp not established port 443 as "begins"
out pass tcp as "out tcp"
out pass udp as "out udp"
out pass icmp type 8 as "ask"
out default drop
`, true, false},
	{"open", `drop icmp not established as "icmp"
drop icmp6 type { 1, 2, 3, 4, 129 } not established as "icmp6"
fragments track
cookie tcp port 443 as "cookie"
limit not proven tcp rate 3/s burst 3 by source, destination as "unproven"
drop tcp port 22 not established as "ssh"
out drop tcp syn port 22 as "no way out"
out drop udp len > 50 port 53 as "long queries"
out count tcp not established as "opens"
out drop icmp type 0 as "replies"
out drop icmp6 type 129 as "replies of IPv6"
default pass
`, false, false},
	{"proofs", `prove "echo" udp port 443 reply payload at 0 41 echo 4 bytes at 1 in request at 1, 5
fragments track
count tcp port { 22, 80, 443 } stream contains "abba" as "abba"
count tcp not stream contains /c[ab]+c/ within 300 bytes or unknown as "no cac"
count udp proven flow as "flow"
count udp dns type ANY as "any"
pass established as "known"
cookie dns udp port 53 as "ask again"
cookie a2s udp port 27015 as "ask for a number"
greylist udp port 123 after 100ms within 10s as "first"
pass udp port 123 as "again"
pass udp port { 53, 443, 27015 } as "udp"
pass tcp syn port { 22, 80, 443 } as "new"
default drop
out count tcp flags rst as "reset"
out pass established as "answers"
out drop udp not established port 53 as "begins"
out default pass
`, true, true},
}

// arena is a policy on two interfaces, as one, at a hook:
//
//	        here                     peer
//	+--------------------+   +--------------------+
//	| lv0  <- the policy |===| lv1  <- arrives    |
//	| lw0  <- the policy |===| lw1  <- arrives    |
//	|   leaves ->        |   |   answers          |
//	+--------------------+   +--------------------+
//
// The time is the test's.
type arena struct {
	*testing.T
	mode    store.Mode
	merges  bool
	proofs  bool
	text    string
	policy  *policy.Policy
	oracle  *oracle.Evaluator
	devs    []arenaDev
	out     int // packet socket of here, whose frames have a struct virtio_net_hdr in front
	in      int // and of peer
	clocks  []func(jiffies uint64)
	budgets [][]byte
	mapped  [][]byte
	jiffies uint64
	tick    time.Duration
	decides []bool   // by slot: counting in it is the decision
	met     []uint64 // by slot: packets
	log     []string
	hearing
}

type arenaDev struct {
	number    int
	near, far int // indexes of its ends
	mac       [6]byte
	counters  []byte
	row       int
	seen      []store.Counter
}

func (a *arena) now() time.Time { return time.Unix(0, int64(a.jiffies)*int64(a.tick)) }

// TestRandomSequencesAgreeWithTheOracle: what comes and goes by two interfaces, on two CPUs, as
// stacks, networks and attackers have it, at each hook, with the time. After each packet all
// counters are those of the oracle, and what passes has come to the other end, as it was sent, and
// nothing else has.
func TestRandomSequencesAgreeWithTheOracle(t *testing.T) {
	n := newTestNet(t)
	addVeth(t, "lw0", "lw1", n.peer)
	n.inPeer(t, func() { ip(t, "link set lw1 up") })
	for i, mode := range allModes(t) {
		for j, p := range randomPolicies {
			if !*randomAll && j != i%len(randomPolicies) {
				continue
			}
			n.run(t, string(mode)+"/"+p.name, func(t *testing.T) {
				a := newArena(t, n, mode)
				a.merges, a.proofs = p.merges && mode.AtTC(), p.proofs
				frames := 0
				for seed := range uint64(*randomSequences) {
					if seed%250 == 0 { // leases of 32 bits of jiffies come around
						a.bring(p.text)
					}
					frames += a.sequence(*randomSeed + seed)
					if t.Failed() {
						break
					}
				}
				a.told(frames)
				a.end()
			})
		}
	}
}

// told says what was met. Each rule has to be.
func (a *arena) told(frames int) {
	words := fmt.Sprintf("%d packets as the oracle has it", frames)
	for i, s := range a.policy.Slots() {
		if s.Rule != nil {
			words += fmt.Sprintf(", %d %s", a.met[i], s.Rule.Label)
			if a.met[i]*3000 < uint64(frames) {
				a.Errorf("only %d of %d packets met %q", a.met[i], frames, s.Rule.Label)
			}
		}
	}
	a.Log(words)
}

// newArena opens the sockets.
func newArena(t *testing.T, n *testNet, mode store.Mode) *arena {
	a := &arena{T: t, mode: mode}
	_, hz, err := kernel.Jiffies()
	if err != nil {
		t.Fatal(err)
	}
	a.tick = time.Duration(limit.Tick(hz))
	open := func(protocol int) int {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	a.out = open(0)
	for i, names := range [][2]string{{"lv0", "lv1"}, {"lw0", "lw1"}} {
		l := must2(netlink.LinkByName(names[0]))
		d := arenaDev{number: i, near: l.Attrs().Index, mac: [6]byte(l.Attrs().HardwareAddr)}
		n.inPeer(t, func() {
			d.far = must2(netlink.LinkByName(names[1])).Attrs().Index
			if a.in == 0 {
				a.in = open(0)
			}
		})
		if mode == store.XDPNative {
			hearXDP(t, n.peer, names[1])
		}
		a.devs = append(a.devs, d)
	}
	for _, fd := range []int{a.in, a.out} {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
			t.Fatal(err)
		}
	}
	a.listen(n)
	return a
}

// bring puts a policy into force that goes by the test's clock, and maps what is read and set.
func (a *arena) bring(text string) {
	a.Helper()
	a.end()
	p, ds := resolve.Parse("random.levee", []byte(text), nil)
	if ds.HasErrors() {
		a.Fatal(ds)
	}
	a.policy, a.text = p, text
	if a.met == nil {
		a.met = make([]uint64, len(p.Slots()))
	}
	a.up()
	now, _, err := kernel.Jiffies()
	if err != nil {
		a.Fatal(err)
	}
	a.jiffies = now
	a.pass(0)
}

// up puts the policy into force, also where it is already: then what it remembers goes on.
func (a *arena) up() {
	a.Helper()
	a.unmap()
	names := []string{"lv0", "lw0"}
	if _, err := UpAll(a.Context(), names, UpOptions{Names: names, Mode: a.mode,
		PolicyPath: "/etc/random.levee", Source: []byte(a.text)},
		func(target codegen.Target) (*codegen.Program, error) {
			target.Clock, target.Memory = true, gigabyte
			return codegen.Compile(a.policy, target)
		}); err != nil {
		a.Fatal(err)
	}
	for i, name := range names {
		if err := generation.TransactOn(a.Context(), name,
			func(s *store.Store, at *attach.Attachment) error {
				return errors.Join(a.open(s, at.Key, at.Current(), &a.devs[i]),
					a.openClock(ebpf.ProgramID(at.Program)))
			}); err != nil {
			a.Fatal(err)
		}
	}
	a.decides = nil
	for _, s := range a.policy.Slots() {
		a.decides = append(a.decides, s.Rule == nil || s.Rule.Action.MayDecide())
	}
}

// open maps the memories of a generation.
func (a *arena) open(s *store.Store, key string, g *store.Description, d *arenaDev) error {
	for _, use := range g.Maps {
		what, size := use.Holds.What, 0
		i := slices.IndexFunc(state.Table, func(r state.Row) bool {
			return r.What == what && r.SetClock != nil
		})
		switch {
		case i >= 0:
			size = state.Table[i].Head
		case what != state.HoldsCounters && what != state.HoldsLimit:
			continue
		}
		m, err := s.OpenPinned(key, g.Generation, use.Name)
		if err != nil {
			return err
		}
		if size == 0 {
			size = int(m.ValueSize())
		}
		b, err := store.MapMemory(m, size)
		m.Close()
		if err != nil {
			return err
		}
		a.mapped = append(a.mapped, b)
		switch {
		case i >= 0:
			a.clocks = append(a.clocks, func(jiffies uint64) {
				state.Table[i].SetClock(b, jiffies)
			})
		case what == state.HoldsLimit:
			a.budgets = append(a.budgets, b)
		default:
			d.counters, d.row = b[:size], g.RowBytes
			d.seen = make([]store.Counter, len(g.Slots))
			a.read(d, d.seen)
		}
	}
	return nil
}

// openClock maps the clock that a program goes by, which has no pin.
func (a *arena) openClock(id ebpf.ProgramID) error {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return err
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return err
		}
		defer m.Close()
		if info, err := m.Info(); err != nil || info.Name != plan.ClockMap {
			continue
		}
		b, err := store.MapMemory(m, 8)
		if err != nil {
			return err
		}
		a.mapped = append(a.mapped, b)
		a.clocks = append(a.clocks, func(jiffies uint64) {
			atomic.StoreUint64((*uint64)(unsafe.Pointer(&b[0])), jiffies)
		})
		return nil
	}
	return errors.New("the program has no clock")
}

// unmap lets go of the memories.
func (a *arena) unmap() {
	for _, b := range a.mapped {
		unix.Munmap(b)
	}
	a.mapped, a.clocks, a.budgets = nil, nil, nil
}

// end takes the policy off.
func (a *arena) end() {
	a.unmap()
	for _, name := range []string{"lv0", "lw0"} {
		if a.policy != nil {
			if _, err := Down(a.Context(), name); err != nil {
				a.Fatal(err)
			}
		}
	}
	a.policy = nil
}

// pass lets time pass.
func (a *arena) pass(jiffies uint64) {
	a.jiffies += jiffies
	for _, set := range a.clocks {
		set(a.jiffies)
	}
}

// read sums the counters of a device over all CPUs.
func (a *arena) read(d *arenaDev, into []store.Counter) {
	clear(into)
	for _, row := range generation.Rows(d.counters, d.row, len(into)) {
		for i, c := range row {
			into[i].Packets += c.Packets
			into[i].Bytes += c.Bytes
		}
	}
}
