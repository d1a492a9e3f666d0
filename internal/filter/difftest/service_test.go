package difftest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/sets"
	"levee/internal/filter/codegen"
	"levee/internal/filter/oracle"
	"levee/internal/filter/plan"
	"levee/internal/kernel"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
	"levee/internal/packet/craft"
)

// forService takes out of a generated policy what a service does not have. What leaves is judged as
// what arrives, where the hook has it.
func forService(t *testing.T, arriving *policy.Policy, sockets bool) *policy.Policy {
	t.Helper()
	p := *arriving
	p.Interfaces, p.OnError, p.Proves = nil, policy.KeepLast, nil
	bad := map[policy.Pos]bool{}
	for _, r := range p.NotOfService(sockets) {
		bad[r.Pos] = true
	}
	some := func(rules []*policy.Rule) []*policy.Rule {
		return slices.DeleteFunc(slices.Clone(rules), func(r *policy.Rule) bool {
			return bad[r.Pos] || slices.ContainsFunc(r.Match, func(term policy.Term) bool {
				// a frame of memory begins elsewhere than a packet that came to a socket
				payload := sockets && term.Looks(field.Payload, field.Contents)
				return bad[term.Pos] || payload || term.Looks(field.Remembered()...)
			})
		})
	}
	p.Protect, p.Rules = some(p.Protect), some(p.Rules)
	p.Inners = slices.DeleteFunc(slices.Clone(p.Inners), func(in *policy.Inner) bool {
		asks := func(term policy.Term) bool { return term.Inner == in }
		return !slices.ContainsFunc(p.Rules,
			func(r *policy.Rule) bool { return slices.ContainsFunc(r.Match, asks) })
	})
	for i, in := range p.Inners {
		in.Number = i
	}
	if sockets {
		return &p
	}
	both := outOf(&p)
	both.Protect, both.Rules, both.Inners = p.Protect, p.Rules, p.Inners
	return both
}

// atSocket reports whether a packet can come to a socket as it is: the kernel drops what is
// malformed, puts fragments together, and cuts off what is behind the IP packet.
func atSocket(ip []byte) bool {
	var p packet.Packet
	packet.L3.Decode(ip, &p)
	return p.Malformed == 0 && !p.Fragment && p.Len == len(ip)
}

// TestServicesAgreeWithTheOracle: programs at the cgroup and at the sockets of a service judge and
// count as the oracle does.
func TestServicesAgreeWithTheOracle(t *testing.T) {
	if err := kernel.Privileged(); err != nil {
		t.Skip(err)
	}
	for _, hook := range []plan.Hook{plan.CGroup, plan.Socket} {
		t.Run(codegen.Target{Hook: hook}.String(), func(t *testing.T) {
			t.Parallel()
			judged := map[bool]int{}
			for seed := uint64(1); seed <= 16; seed++ {
				if err := serviceSeed(t, hook, seed, judged); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if judged[false] < 1500 || hook == plan.CGroup && judged[true] < 1500 {
				t.Errorf("%v packets judged", judged)
			}
		})
	}
}

func serviceSeed(t *testing.T, hook plan.Hook, seed uint64, judged map[bool]int) error {
	arriving, text, err := Policy(seed)
	if err != nil {
		return err
	}
	p := forService(t, arriving, hook == plan.Socket)
	prog, err := codegen.Compile(p, codegen.Target{Hook: hook, Link: packet.L3, Trace: true,
		Clock: true, HZ: 1000, CPUs: int(seed%3) + 1, Bytecode: seed%4 == 3, Memory: gigabyte})
	if err != nil {
		return err
	}
	r, err := loader.NewRunner(prog)
	if err != nil {
		return err
	}
	defer r.Close()
	r.SetClock(1 << 33)
	ref := oracle.NewOn(p, packet.L3)
	ref.SetClock(func() time.Time { return now })
	for _, s := range p.Sets {
		if s.Kind != policy.Dynamic {
			continue
		}
		for _, e := range craft.Entries(s) {
			if ref.AddEntry(s.Name, e, time.Time{}) != nil {
				continue // it is full
			}
			if err := r.SetAdd(s.Name, sets.EntryOf(e, sets.Forever)); err != nil {
				return err
			}
		}
	}
	sums := make([]uint64, len(p.Slots()))
	judge := func(leaves bool, frame []byte) error {
		ip := arrivingIP(frame)
		if len(ip) < 20 || hook == plan.Socket && !atSocket(ip) {
			return nil
		}
		var slot int
		var verdict action.Action
		var err error
		var want oracle.Result
		if leaves {
			slot, verdict, err = r.EvalLeaving(ip)
		} else {
			slot, verdict, err = r.Eval(ip)
		}
		if errors.Is(err, unix.EINVAL) {
			return nil // the kernel makes no socket buffer of it
		}
		if leaves {
			want = ref.Leave(ip)
		} else {
			want = ref.Eval(ip)
		}
		if err != nil {
			return err
		}
		if slot != want.Slot || verdict != want.Action {
			return fmt.Errorf("leaves %v: %x: %v by %d, want %v by %d\n%s", leaves, ip, verdict,
				slot, want.Action, want.Slot, text)
		}
		for _, s := range append(want.Counted, want.Slot) {
			sums[s]++
		}
		judged[leaves]++
		return nil
	}
	for frame := range Packets(p, seed, 400) {
		if err := judge(false, frame); err != nil {
			return err
		}
	}
	if out := p.Leaving(); out != nil {
		for frame := range Packets(out, seed, 400) {
			if err := judge(true, frame); err != nil {
				return err
			}
		}
	}
	for i, c := range r.Counters() {
		if c.Packets != sums[i] {
			return fmt.Errorf("slot %d counts %d packets, want %d\n%s", i, c.Packets, sums[i], text)
		}
	}
	return nil
}

// arrivingIP is a frame without all that stands before its IP header.
func arrivingIP(frame []byte) []byte { return arriving(packet.L3, frame) }
