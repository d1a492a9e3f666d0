package dataplane

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/filter/assembler"
	"levee/internal/filter/codegen"
)

// Frames of these tests carry a number, 16 bits behind their EtherType.
const (
	numberAt  = 14
	seenMap   = "seen"
	seenBytes = 4 << 16
	answers   = "answers" // the program at egress
)

// compilePair makes a policy of two programs. The one at egress counts the frames that leave, by
// number. The one that judges drops a frame, as "unasked", unless one of its number has left: it is
// no answer. The counts live as long as l says.
func compilePair(file string, l codegen.Lifetime) CompileFunc {
	return func(t codegen.Target) (*codegen.Program, error) {
		prog := handProgramOf(named(file, "unasked"), t, func(b *assembler.Builder) {
			seen(b, "count")
			b.Emit(
				asm.LoadMem(asm.R2, asm.R1, 0, asm.Word),
				asm.JNE.Imm(asm.R2, 0, "count"),
			)
		})
		holds := codegen.Identity{What: "seen"}
		prog.Spec.Maps[seenMap] = mmapable(seenMap, seenBytes)
		prog.Maps = append(prog.Maps, codegen.MapUse{Name: seenMap, Holds: holds, Lifetime: l})

		b := assembler.New()
		b.Emit(
			asm.LoadMem(asm.R7, asm.R1, 76, asm.Word), // __sk_buff.data
			asm.LoadMem(asm.R8, asm.R1, 80, asm.Word), // data_end
		)
		seen(b, "next")
		b.Emit(
			asm.LoadMem(asm.R2, asm.R1, 0, asm.Word),
			asm.Add.Imm(asm.R2, 1),
			asm.StoreMem(asm.R1, 0, asm.R2, asm.Word),
		)
		b.Label("next")
		b.Emit(asm.Mov.Imm(asm.R0, -1), asm.Return()) // TCX_NEXT
		prog.Spec.Programs[answers] = &ebpf.ProgramSpec{
			Name: handName(), Type: ebpf.SchedCLS, AttachType: ebpf.AttachTCXEgress,
			License:      "Dual BSD/GPL",
			Instructions: b.MustFinish(),
		}
		prog.Links = append(prog.Links, codegen.Link{Program: answers, At: codegen.Egress})
		return prog, nil
	}
}

// seen leaves in R1 where the number of the frame from R7 to R8 is counted, or goes to none.
func seen(b *assembler.Builder, none string) {
	b.Emit(
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Add.Imm(asm.R1, numberAt+2),
		asm.JGT.Reg(asm.R1, asm.R8, none),
		asm.LoadMem(asm.R1, asm.R7, numberAt-2, asm.Half),
		asm.JNE.Imm(asm.R1, 0xb588, none),
		asm.LoadMem(asm.R2, asm.R7, numberAt, asm.Half),
		asm.LSh.Imm(asm.R2, 2),
		asm.LoadMapValue(asm.R1, 0, 0).WithReference(seenMap),
		asm.Add.Reg(asm.R1, asm.R2),
	)
}

// pair sends frames with numbers.
type pair struct {
	*testNet
	out      int // packet socket on lv0
	outIndex int
	number   uint16 // of the last question
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{testNet: newTestNet(t)}
	l, err := netlink.LinkByName("lv0")
	if err != nil {
		t.Fatal(err)
	}
	p.outIndex = l.Attrs().Index
	if p.out, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p.out) })
	return p
}

func numbered(n uint16) []byte {
	f := markedFrame(0)
	binary.LittleEndian.PutUint16(f[numberAt:], n)
	return f
}

// ask sends a frame with a new number out of lv0.
func (p *pair) ask(t *testing.T) uint16 {
	t.Helper()
	p.number++
	if err := unix.Sendto(p.out, numbered(p.number), 0,
		&unix.SockaddrLinklayer{Ifindex: p.outIndex}); err != nil {
		t.Fatal(err)
	}
	return p.number
}

// answer sends a frame with a number to lv0.
func (p *pair) answer(t *testing.T, number uint16) { p.sendFrame(t, numbered(number)) }

// judged waits until so many answers have been judged, of which so many were dropped.
func judged(t *testing.T, what string, before Attachment, answers, dropped uint64) {
	t.Helper()
	eventually(t, func() error {
		a := status0(t)
		drops := a.packets("unasked") - before.packets("unasked")
		if all := drops + a.packets("default") - before.packets("default"); all < answers ||
			drops != dropped {
			return fmt.Errorf("%s: %d answers judged, %d of them dropped; want %d and %d", what,
				all, drops, answers, dropped)
		}
		return nil
	})
}

func bringPair(t *testing.T, file string, l codegen.Lifetime, mode Mode, confirm time.Duration) {
	t.Helper()
	if _, err := Up(t.Context(), UpOptions{Dev: "lv0", Mode: mode, PolicyPath: file,
		Confirm: confirm}, compilePair(file, l)); err != nil {
		t.Fatal(err)
	}
}

// egress lists the programs at egress of lv0.
func egress(t *testing.T) []uint32 {
	t.Helper()
	l, err := netlink.LinkByName("lv0")
	if err != nil {
		t.Fatal(err)
	}
	return tcxProgramsAt(l.Attrs().Index, ebpf.AttachTCXEgress)
}

func TestPolicyOfTwoLinksInEveryMode(t *testing.T) {
	p := newPair(t)
	for _, mode := range allModes(t) {
		p.run(t, string(mode), func(t *testing.T) {
			before := kernelObjects(t)
			bringPair(t, "a.levee", codegen.Carried, mode, 0)
			empty := status0(t)
			first := p.ask(t)
			p.answer(t, first)
			p.answer(t, 0xffff) // nobody has asked
			judged(t, "first policy", empty, 2, 1)
			bringPair(t, "b.levee", codegen.Carried, mode, 0)
			p.answer(t, first)
			judged(t, "second policy", empty, 3, 1)
			if at := egress(t); len(at) != 1 {
				t.Errorf("programs %v at egress", at)
			}
			bring(t, "lv0", Auto, named("c.levee", "unasked"))
			if at := egress(t); len(at) != 0 {
				t.Errorf("programs %v at egress of a policy that has none there", at)
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
			eventually(t, func() error { return sameObjects(t, before) })
			runDirIsGone(t)
		})
	}
}

// Policies of two links take turns while answers follow questions without a pause. No answer is
// dropped: the program that judges finds every question, whichever programs saw it.
func TestReplacesOfTwoLinksDropNoAnswer(t *testing.T) {
	p := newPair(t)
	bringPair(t, "0.levee", codegen.Carried, Auto, 0)
	before := status0(t)
	stop, sent := make(chan struct{}), make(chan uint64)
	go func() {
		p.enterHere(t)
		n := uint64(0)
		for {
			select {
			case <-stop:
				sent <- n
				return
			default:
			}
			p.answer(t, p.ask(t))
			n++
			time.Sleep(20 * time.Microsecond)
		}
	}()
	for i := range *replaces {
		bringPair(t, fmt.Sprint(i+1, ".levee"), codegen.Carried, Auto, time.Duration(i%2)*time.Hour)
	}
	close(stop)
	n := <-sent
	t.Logf("%d replaces, %d questions and answers", *replaces, n)
	judged(t, "after all replaces", before, n, 0)
}

// A command that fails or is killed at any step leaves a policy in force whose two programs work
// together, with all that it has learnt, before any other command mends anything; and the next
// command leaves nothing else behind. That holds also where the two policies share no map, and for
// the policy that a trial ends in.
func TestFailureOrDeathAtAnyStepLeavesTwoLinksOfOnePolicy(t *testing.T) {
	p := newPair(t)
	const base, shortTrial = "old.levee", 300 * time.Millisecond
	for _, lifetime := range []codegen.Lifetime{codegen.Carried, codegen.Pinned} {
		steady := func(t *testing.T) { bringPair(t, base, lifetime, Auto, 0) }
		trial := func(d time.Duration) func(*testing.T) {
			return func(t *testing.T) {
				steady(t)
				bringPair(t, "new.levee", lifetime, Auto, d)
				if d < time.Second {
					time.Sleep(d + 50*time.Millisecond)
				}
			}
		}
		for _, c := range []struct {
			name    string
			prepare func(*testing.T)
			do      order
		}{
			{"replace", steady, order{Do: "up", File: "new.levee"}},
			{"replace on trial", steady, order{Do: "up", File: "new.levee", Confirm: time.Hour}},
			{"replace on a short trial", steady,
				order{Do: "up", File: "new.levee", Confirm: shortTrial}},
			{"replace during a trial", trial(time.Hour), order{Do: "up", File: "newer.levee"}},
			{"confirm", trial(time.Hour), order{Do: "confirm"}},
			{"roll back", trial(shortTrial), order{Do: "status"}},
		} {
			p.run(t, fmt.Sprint(c.name, ", ", lifetime), func(t *testing.T) {
				c.do.Dev, c.do.Pair = "lv0", lifetime
				c.prepare(t)
				steps := record(t, c.do)
				t.Log("steps:", steps)
				if c.do.Do == "up" && !slices.Contains(steps, "link") {
					t.Fatal("no link was made")
				}
				for i, step := range steps {
					for _, kill := range []bool{false, true} {
						what := fmt.Sprintf("step %d (%s), kill %v", i, step, kill)
						c.prepare(t)
						// by the policy that is in force, and by the one to return to
						known := p.ask(t)
						inject(t, c.do, i, kill)
						if c.do.Confirm == shortTrial {
							time.Sleep(shortTrial + 50*time.Millisecond)
						}
						before := status0(t)
						p.answer(t, p.ask(t))
						p.answer(t, 0xffff)
						judged(t, what, before, 2, 1)
						if lifetime == codegen.Carried || filepath.Base(before.Policy) == base {
							p.answer(t, known)
							judged(t, what+", known before", before, 3, 1)
						}
						after := status(t)
						p.answer(t, p.ask(t))
						judged(t, what+", mended", before, 3, 1)
						eventually(t, func() error { return noOtherLinks(t, after, what) })
						if t.Failed() {
							return
						}
					}
				}
			})
		}
	}
	p.run(t, "first up and down", func(t *testing.T) {
		if _, err := Down(t.Context(), "lv0"); err != nil {
			t.Fatal(err)
		}
		up, down := order{Do: "up", Dev: "lv0", File: "new.levee", Pair: codegen.Carried},
			order{Do: "down", Dev: "lv0"}
		ups, downs := record(t, up), record(t, down)
		for i := range ups {
			for _, kill := range []bool{false, true} {
				inject(t, up, i, kill)
				_, _, _ = Status(t.Context(), true)
				_, _ = Down(t.Context(), "lv0") // the last steps come after the swap
				eventually(t,
					func() error {
						return nothingAtAll(t, fmt.Sprint("up failed at ", ups[i], ", kill ", kill))
					})
			}
		}
		for i := range downs {
			bringPair(t, "a.levee", codegen.Carried, Auto, 0)
			inject(t, down, i, true)
			_, _, _ = Status(t.Context(), true)
			_, _ = Down(t.Context(), "lv0")
			eventually(t,
				func() error { return nothingAtAll(t, fmt.Sprint("down killed at ", downs[i])) })
		}
	})
}

// noOtherLinks checks that only the programs of policies that may judge are at egress.
func noOtherLinks(t *testing.T, a Attachment, what string) error {
	want := 1
	if a.Trial != 0 {
		want = 2
	}
	if at := egress(t); len(at) != want {
		return fmt.Errorf("%s: programs %v at egress, want %d", what, at, want)
	}
	return nil
}

func TestProgramsThatNoLinkListsAreRefused(t *testing.T) {
	newTestNet(t)
	for _, spoil := range []func(*codegen.Program){
		func(p *codegen.Program) { p.Links = p.Links[:1] },
		func(p *codegen.Program) { p.Links = p.Links[1:] },
		func(p *codegen.Program) { p.Links[1] = p.Links[0] },
		func(p *codegen.Program) { p.Links[1].At = codegen.Ingress },
		func(p *codegen.Program) { p.Links[1].At = "above" },
	} {
		_, err := Up(t.Context(), UpOptions{Dev: "lv0", PolicyPath: "a.levee"},
			func(target codegen.Target) (*codegen.Program, error) {
				p, err := compilePair("a.levee", codegen.Carried)(target)
				if err == nil {
					spoil(p)
				}
				return p, err
			})
		if err == nil {
			t.Error("attached")
		}
	}
	runDirIsGone(t)
}
