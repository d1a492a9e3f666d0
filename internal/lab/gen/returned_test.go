package gen

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"levee/internal/await"
	"levee/internal/filter/assembler"
	"levee/internal/lab"
	"levee/internal/lab/labtest"
)

// TestFramesThatComeBackShorterAreSentWhole: the receiver cuts each frame and sends it back, as an
// answer to a SYN is; its page is then sent again, and was at the length of the answer once.
func TestFramesThatComeBackShorterAreSentWhole(t *testing.T) {
	l := labtest.New(t)
	const n, length, cut = 5000, 98, 30
	attach(t, l.Host(lab.World), asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}) // XDP_DROP
	lengths, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8,
		MaxEntries: 2048})
	if err != nil {
		t.Fatal(err)
	}
	defer lengths.Close()
	b := assembler.New()
	b.Emit(
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R1, asm.R6, 0, asm.Word),
		asm.LoadMem(asm.R2, asm.R6, 4, asm.Word),
		asm.Sub.Reg(asm.R2, asm.R1),
		asm.StoreMem(asm.RFP, -4, asm.R2, asm.Word),
		asm.Mov.Reg(asm.R7, asm.R2),
		asm.LoadMapPtr(asm.R1, lengths.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "drop"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord), // one NAPI thread: nobody else writes
		asm.JLT.Imm(asm.R7, length-cut, "drop"),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, -cut),
		asm.FnXdpAdjustTail.Call(),
		asm.Mov.Imm(asm.R0, 3), asm.Return(), // XDP_TX
	)
	b.Label("drop")
	b.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
	attach(t, l.Host(lab.Server), b.MustFinish())
	at := func(length uint32) (n uint64) {
		if err := lengths.Lookup(length, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	arrived := func() uint64 { return at(length) + at(length-cut) + at(length-2*cut) }
	for _, c := range []struct {
		dropped bool
		cut     bool // some frames arrive cut
	}{{true, true}, {false, false}} {
		send := func() error {
			before, short := arrived(), at(length-cut)
			r, err := Run(t.Context(), into(l, Config{Path: Live, Count: n, Rate: 50_000, Seed: 1,
				Dropped: c.dropped, Floods: []Flood{{To: server4, Sources: prefixes("10.0.0.0/8"),
					Lengths: []int{length - 14}}}}))
			if err != nil {
				t.Fatal(err)
			}
			await.True(t, "what was not refused arrives", func() bool {
				return arrived()-before >= n-r.Refused
			})
			if short = at(length-cut) - short; (short > 0) != c.cut {
				return fmt.Errorf("told that all are dropped: %v; of %d frames %d arrived cut, %d "+
					"were refused", c.dropped, n, short, r.Refused)
			}
			return nil
		}
		if c.cut { // one that came back was sent again, if the receiver had time for any
			await.OK(t, send)
		} else if err := send(); err != nil {
			t.Error(err)
		}
	}
}

// attach puts an XDP program on the first device of a host until the test ends.
func attach(t *testing.T, h *lab.Host, ins asm.Instructions) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, Instructions: ins,
		License: "Dual BSD/GPL"})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { prog.Close() })
	if err := h.Do(func() error {
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: h.Devices[0].Index,
			Flags: link.XDPDriverMode})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
