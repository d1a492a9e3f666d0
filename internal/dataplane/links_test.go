package dataplane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/filter/assembler"
	"levee/internal/filter/codegen"
	"levee/internal/lang/resolve"
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
	egress   store.Mode // how programs are attached there, beside XDP; "": as the kernel has it
	out      int        // packet socket on lv0
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
func judged(t *testing.T, what string, before inspect.Attachment, answers, dropped uint64) {
	t.Helper()
	await.OK(t, func() error {
		a := status0(t)
		drops := packets(&a, "unasked") - packets(&before, "unasked")
		if all := drops + packets(&a, "default") - packets(&before, "default"); all < answers ||
			drops != dropped {
			return fmt.Errorf("%s: %d answers judged, %d of them dropped; want %d and %d", what,
				all, drops, answers, dropped)
		}
		return nil
	})
}

func (p *pair) bring(t *testing.T, file string, l codegen.Lifetime, mode store.Mode,
	confirm time.Duration) {
	t.Helper()
	if _, err := Up(t.Context(), UpOptions{Dev: "lv0", Mode: mode, PolicyPath: file,
		Confirm: confirm, egressMode: p.egress}, compilePair(file, l)); err != nil {
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
	all := must2(attach.TcxProgramsAt(l.Attrs().Index, ebpf.AttachTCXEgress))
	for _, f := range must2(attach.EgressFilters(l.Attrs().Index)) {
		program, _ := must3(f.Running())
		all = append(all, program)
	}
	return all
}

func must3[A, B any](a A, b B, err error) (A, B) {
	if err != nil {
		panic(err)
	}
	return a, b
}

// egressWays are the ways in which this kernel has programs at egress.
func egressWays(t *testing.T) []store.Mode { return tcModes(t) }

// noQdisc checks that levee has left no qdisc.
func noQdisc(t *testing.T) error {
	if _, there := filters(t); there {
		return errors.New("a qdisc is left")
	}
	return nil
}

func TestPolicyOfTwoLinksInEveryMode(t *testing.T) {
	p := newPair(t)
	type way struct{ mode, egress store.Mode }
	var all []way
	for _, mode := range allModes(t) {
		all = append(all, way{mode, ""})
	}
	for _, w := range append(all, way{store.XDPNative, store.Clsact},
		way{store.XDPGeneric, store.Clsact}) {
		mode := w.mode
		p.run(t, fmt.Sprint(mode, " ", w.egress), func(t *testing.T) {
			p.egress = w.egress
			before := kernelObjects(t)
			p.bring(t, "a.levee", codegen.Carried, mode, 0)
			empty := status0(t)
			first := p.ask(t)
			p.answer(t, first)
			p.answer(t, 0xffff) // nobody has asked
			judged(t, "first policy", empty, 2, 1)
			p.bring(t, "b.levee", codegen.Carried, mode, 0)
			p.answer(t, first)
			judged(t, "second policy", empty, 3, 1)
			if at := egress(t); len(at) != 1 {
				t.Errorf("programs %v at egress", at)
			}
			bring(t, "lv0", store.Auto, named("c.levee", "unasked"))
			if at := egress(t); len(at) != 0 {
				t.Errorf("programs %v at egress of a policy that has none there", at)
			}
			if err := noQdisc(t); err != nil && mode != store.Clsact {
				t.Error(err)
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
			await.OK(t, func() error { return nothingAdded(t, before) })
			if err := noQdisc(t); err != nil {
				t.Error(err)
			}
			runDirIsGone(t)
		})
	}
}

// Policies of two links take turns while answers follow questions without a pause. No answer is
// dropped: the program that judges finds every question, whichever programs saw it.
func TestReplacesOfTwoLinksDropNoAnswer(t *testing.T) {
	p := newPair(t)
	for _, way := range egressWays(t) {
		p.run(t, string(way), func(t *testing.T) {
			p.egress = way
			replacesOfTwoLinks(t, p)
		})
	}
}

func replacesOfTwoLinks(t *testing.T, p *pair) {
	p.bring(t, "0.levee", codegen.Carried, store.Auto, 0)
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
			await.Pass(20*time.Microsecond, "the pace of the connections")
		}
	}()
	for i := range *replaces {
		p.bring(t, fmt.Sprint(i+1, ".levee"), codegen.Carried, store.Auto,
			time.Duration(i%2)*time.Hour)
	}
	close(stop)
	n := <-sent
	t.Logf("%d replaces, %d questions and answers", *replaces, n)
	judged(t, "after all replaces", before, n, 0)
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
}

// A command that fails or is killed at any step leaves a policy in force whose two programs work
// together, with all that it has learnt, before any other command mends anything; and the next
// command leaves nothing else behind. That holds also where the two policies share no map, and for
// the fallback of a trial.
func TestFailureOrDeathAtAnyStepLeavesTwoLinksOfOnePolicy(t *testing.T) {
	p := newPair(t)
	lifetimes := []codegen.Lifetime{codegen.Carried, codegen.Pinned}
	for _, way := range egressWays(t) {
		p.egress = way
		failOrDieWithTwoLinks(t, p, lifetimes)
		lifetimes = lifetimes[:1] // of maps, which are the same whatever keeps the programs
	}
}

func failOrDieWithTwoLinks(t *testing.T, p *pair, lifetimes []codegen.Lifetime) {
	const base = "old.levee"
	for _, lifetime := range lifetimes {
		steady, trial, expired := stages(
			func(t *testing.T) { p.bring(t, base, lifetime, store.Auto, 0) },
			func(t *testing.T) { p.bring(t, "new.levee", lifetime, store.Auto, time.Hour) })
		for _, c := range []struct {
			name    string
			prepare func(*testing.T)
			do      order
			expire  bool // before it is looked at
		}{
			{"replace", steady, order{Do: "up", File: "new.levee"}, false},
			{"replace on trial", steady, order{Do: "up", File: "new.levee", Confirm: time.Hour},
				false},
			{"replace on a short trial", steady,
				order{Do: "up", File: "new.levee", Confirm: time.Hour}, true},
			{"replace during a trial", trial, order{Do: "up", File: "newer.levee"}, false},
			{"confirm", trial, order{Do: "confirm"}, false},
			{"roll back", expired, order{Do: "status"}, false},
		} {
			p.run(t, fmt.Sprint(c.name, ", ", lifetime, ", ", p.egress), func(t *testing.T) {
				c.do.Dev, c.do.Pair, c.do.Egress = "lv0", lifetime, p.egress
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
						if c.expire {
							expire(t)
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
						await.OK(t, func() error { return noOtherLinks(t, after, what) })
						if t.Failed() {
							return
						}
					}
				}
			})
		}
	}
	p.run(t, fmt.Sprint("first up and down, ", p.egress), func(t *testing.T) {
		if _, err := Down(t.Context(), "lv0"); err != nil {
			t.Fatal(err)
		}
		up, down := order{Do: "up", Dev: "lv0", File: "new.levee", Pair: codegen.Carried,
			Egress: p.egress}, order{Do: "down", Dev: "lv0"}
		ups, downs := record(t, up), record(t, down)
		for i := range ups {
			for _, kill := range []bool{false, true} {
				inject(t, up, i, kill)
				_, _, _ = inspect.Status(t.Context(), true)
				_, _ = Down(t.Context(), "lv0") // the last steps come after the swap
				await.OK(t,
					func() error {
						return errors.Join(noQdisc(t), nothingAtAll(t,
							fmt.Sprint("up failed at ", ups[i], ", kill ", kill)))
					})
			}
		}
		for i := range downs {
			p.bring(t, "a.levee", codegen.Carried, store.Auto, 0)
			inject(t, down, i, true)
			_, _, _ = inspect.Status(t.Context(), true)
			_, _ = Down(t.Context(), "lv0")
			await.OK(t,
				func() error {
					return errors.Join(noQdisc(t), nothingAtAll(t,
						fmt.Sprint("down killed at ", downs[i])))
				})
		}
	})
}

// noOtherLinks checks that only the programs of policies that may judge are at egress.
func noOtherLinks(t *testing.T, a inspect.Attachment, what string) error {
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

// A filter at egress comes behind those of others, which stay, with the qdisc that is theirs now.
// Somebody who deletes levee's is told what that means, and the next policy has its own.
func TestAFilterAtEgressStandsBesideOthers(t *testing.T) {
	p := newPair(t)
	p.egress = store.Clsact
	p.bring(t, "a.levee", codegen.Carried, store.XDPNative, 0)
	b := (&attach.Filter{Index: p.outIndex, Generation: 1}).Filter()
	theirs := *b
	theirs.Name, theirs.Handle, theirs.Priority = "somebody", 1, 2
	theirs.Fd = must2(ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})).FD()
	if err := netlink.FilterAdd(&theirs); err != nil {
		t.Fatal(err)
	}
	before := status0(t)
	p.answer(t, p.ask(t))
	p.answer(t, 0xffff)
	judged(t, "beside others", before, 2, 1)
	if err := netlink.FilterDel(b); err != nil {
		t.Fatal(err)
	}
	_, notes, err := inspect.Status(t.Context(), false)
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "is gone, and `established`") {
		t.Errorf("told %q (%v)", notes, err)
	}
	p.bring(t, "b.levee", codegen.Carried, store.XDPNative, 0)
	before = status0(t)
	p.answer(t, p.ask(t))
	p.answer(t, 0xffff)
	judged(t, "after a replace", before, 2, 1)
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	all := must2(netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{
		Index: p.outIndex}}, netlink.HANDLE_MIN_EGRESS))
	if err := noQdisc(t); err == nil || len(all) != 1 {
		t.Errorf("filters of others: %v, qdisc: %v", all, err)
	}
	runDirIsGone(t)
}

// A shadow may have a filter at egress where the policy in force has none: it goes with the shadow,
// and with a command that is killed before the shadow is described.
func TestAShadowTakesItsFilterAtEgressAway(t *testing.T) {
	newTestNet(t)
	const text = "pass established\ndefault drop\n"
	p, ds := resolve.Parse("shadow.levee", []byte(text), nil)
	if p == nil {
		t.Fatal(ds)
	}
	up := func(ctx context.Context) error {
		_, err := UpShadow(ctx, []string{"lv0"}, UpOptions{PolicyPath: "/etc/shadow.levee",
			Source: []byte(text), egressMode: store.Clsact}, p)
		return err
	}
	if err := bringPolicyAt(t, "lv0", store.XDPNative, "default pass\n", 0); err != nil {
		t.Fatal(err)
	}
	if err := up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if at := egress(t); len(at) != 1 {
		t.Errorf("programs %v at egress with a shadow", at)
	}
	if _, _, err := DownShadow(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	gone := func(when string) {
		t.Helper()
		status(t)
		if at := egress(t); len(at) != 0 || noQdisc(t) != nil {
			t.Errorf("%s: programs %v at egress, %v", when, at, noQdisc(t))
		}
	}
	gone("without the shadow")
	err := up(stepping(t.Context(), failing("describe shadow")))
	if !errors.Is(err, errInjected) {
		t.Fatal(err)
	}
	gone("after a failure")
	if err := up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	if noQdisc(t) != nil {
		t.Error("a qdisc is left")
	}
	runDirIsGone(t)
}
