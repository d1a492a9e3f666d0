package codegen

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/codegen/env"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/filter/state"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// mark leaves a mark in the place for effects. It is the last of those that were left before, seven
// at most.
const mark = action.Foreign

var marks = map[action.Action]*effect{mark: {leaves: true, size: 6,
	emit: func(c *compiler, _ *scope, _ *ir.Rule, e ir.Effect) {
		effects(c, asm.R1)
		c.Emit(
			asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord),
			asm.LSh.Imm(asm.R2, 8),
			asm.Or.Imm(asm.R2, int32(e.Value)),
			asm.StoreMem(asm.R1, 0, asm.R2, asm.DWord),
		)
	}}}

// peek holds if a byte of what follows the IP headers has a value.
func peek(at int16, value byte) extra {
	return extra{looks: true, asks: true, size: 9, emit: func(c *compiler, no string) {
		c.Context(asm.R1)
		c.Bounds(asm.R1, asm.R1, asm.R2)
		c.Field(asm.R3, env.KeyOff, asm.Half)
		c.Emit(
			asm.And.Imm(asm.R3, 0x7fff), // the verifier's bound
			asm.Add.Reg(asm.R1, asm.R3),
			asm.Mov.Reg(asm.R3, asm.R1),
			asm.Add.Imm(asm.R3, int32(at)+1),
			asm.JGT.Reg(asm.R3, asm.R2, no),
			asm.LoadMem(asm.R3, asm.R1, at, asm.Byte),
			asm.JNE.Imm(asm.R3, int32(value), no),
		)
	}}
}

// seenMap holds the effects of the last packet.
const seenMap = "seen"

// effects gives the address of the place for effects, the last word of the environment.
func effects(c *compiler, to asm.Register) {
	at := int32(c.EnvBytes()) - 8
	if c.InFunction {
		c.Emit(asm.LoadMem(to, asm.R10, env.Pointer, asm.DWord), asm.Add.Imm(to, at))
		return
	}
	c.Emit(asm.Mov.Reg(to, asm.R10), asm.Add.Imm(to, int32(env.At)+at))
}

func keepEffects(c *compiler) {
	c.addMap(state.Memory(seenMap, 8), Identity{What: "effects"}, Private)
	effects(c, asm.R1)
	c.Emit(
		asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.LoadMapValue(asm.R2, 0, 0).WithReference(seenMap),
		asm.StoreMem(asm.R2, 0, asm.R1, asm.DWord),
	)
}

// looking is a policy whose rules look at the payload of UDP and leave marks, by their labels.
// Rules that leave marks are never records, since the marks have an order.
const looking = `drop udp port 7 as "b"
count udp port 7 as "a"
count malformed as "m"
pass udp as "c"
default drop
`

func lookingExtras(p *policy.Policy) func(r *ir.Rule) []extra {
	slots := p.Slots()
	return func(r *ir.Rule) []extra {
		rule := slots[r.Slot].Rule
		if rule == nil {
			return nil
		}
		switch rule.Label {
		case "a":
			return []extra{peek(8, 'a')}
		case "b":
			return []extra{peek(9, 'b')}
		}
		return nil
	}
}

func lookingMarks(r *policy.Rule) []ir.Effect {
	if n := map[string]uint32{"a": 1, "c": 3, "m": 4}[r.Label]; n > 0 {
		return []ir.Effect{{Action: mark, Value: n}}
	}
	return nil
}

// TestRulesLookAtThePacketAndLeaveEffects judges packets by rules that read a byte of the
// payload and write to the environment, as instructions of the main function, of functions, and
// as records.
func TestRulesLookAtThePacketAndLeaveEffects(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to load programs")
	}
	var many strings.Builder // rules that nothing takes for a table, too many for one function
	for i := range 450 {
		fmt.Fprintf(&many, "count len %d\n", 3000+i)
	}
	for form, c := range map[string]struct {
		text    string
		records bool
		has     string // a function that the program has in this form only
	}{
		"in the main function": {looking, false, ""},
		"in functions":         {many.String() + looking, false, "part_0"},
		"as records":           {many.String() + looking, true, interpreter},
	} {
		p, diags := resolve.Parse("test", []byte(c.text),
			func(string) (io.ReadCloser, error) { return nil, fs.ErrNotExist })
		if p == nil {
			t.Fatal(diags.Err())
		}
		for _, target := range []Target{{CPUs: 1}, {CPUs: 2, Frags: true}, {CPUs: 1, Hook: TCX}} {
			target.Trace, target.Bytecode = true, c.records
			t.Run(fmt.Sprintf("%s, %+v", form, target), func(t *testing.T) {
				prog, err := compile(ir.BuildWith(p, lookingMarks), target,
					&extension{extras: lookingExtras(p), effects: marks, end: keepEffects})
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range []string{"part_0", interpreter} {
					if has(prog, f) != (f == c.has) {
						t.Errorf("function %s: %v", f, has(prog, f))
					}
				}
				judgeLooking(t, p, prog)
			})
		}
	}
}

func has(p *Program, function string) bool {
	for i := range p.Spec.Programs[ProgramName].Instructions {
		if p.Spec.Programs[ProgramName].Instructions[i].Symbol() == function {
			return true
		}
	}
	return false
}

func judgeLooking(t *testing.T, p *policy.Policy, prog *Program) {
	coll, err := ebpf.NewCollection(prog.Spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer coll.Close()
	slots := map[string]int{}
	for i, s := range prog.Slots {
		if s.Rule != nil && s.Reason == policy.ByRule {
			slots[s.Rule.Label] = i
		}
	}
	for name, frame := range lookingFrames(t) {
		var want []byte // marks
		slot := -1
		var d packet.Packet
		packet.Decode(frame, &d)
		at := func(i int) byte {
			if d.TransportOffset+i < len(frame) {
				return frame[d.TransportOffset+i]
			}
			return 0
		}
		port7 := d.Transport == packet.PortTransport && (d.SrcPort == 7 || d.DstPort == 7)
		switch {
		case d.Malformed != 0:
			want = []byte{4}
		case d.Proto != packet.ProtoUDP:
		case port7 && at(9) == 'b':
			slot = slots["b"]
		default:
			want, slot = []byte{3}, slots["c"]
		}
		if slot != slots["b"] && port7 && at(8) == 'a' {
			want = append([]byte{1}, want...)
		}
		if _, err := coll.Programs[ProgramName].Run(&ebpf.RunOptions{Data: frame,
			Repeat: 1}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, decided := value(t, coll, seenMap), value(t, coll, plan.TraceMap)
		var wanted [8]byte
		for i, m := range want {
			wanted[len(want)-1-i] = m
		}
		if got != binary.LittleEndian.Uint64(wanted[:]) {
			t.Errorf("%s: effects %x, want the marks %v", name, got, want)
		}
		if slot >= 0 && uint32(decided) != uint32(slot) {
			t.Errorf("%s: slot %d decided, want %d", name, uint32(decided), slot)
		}
	}
}

func value(t *testing.T, coll *ebpf.Collection, name string) uint64 {
	t.Helper()
	v, err := coll.Maps[name].LookupBytes(uint32(0))
	if err != nil {
		t.Fatal(err)
	}
	return binary.NativeEndian.Uint64(v)
}

// lookingFrames are packets that the fast path decodes, and others.
func lookingFrames(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, payload := range []string{"", "a", "ab", "xb", "xx", "abcdefgh"} {
		for name, s := range map[string]packet.Spec{
			"IPv4": {Family: packet.IPv4},
			"IPv6": {Family: packet.IPv6},
			"IPv4, tagged": {Family: packet.IPv4, VLAN: new(uint16(5)),
				InnerVLAN: new(uint16(6))},
			"IPv4 with options":    {Family: packet.IPv4, Options: true},
			"IPv6 with extensions": {Family: packet.IPv6, Options: true},
			"first fragment":       {Family: packet.IPv6, Frag: new(uint16(0))},
			"later fragment":       {Family: packet.IPv4, Frag: new(uint16(9))},
			"another port":         {Family: packet.IPv4, ToPort: new(uint16(8))},
			"TCP":                  {Family: packet.IPv4, Flags: new(uint8(2))},
		} {
			if s.ToPort == nil {
				s.ToPort = new(uint16(7))
			}
			if s.Flags == nil {
				s.Proto = new(uint8(packet.ProtoUDP))
			}
			if s.Frag != nil && *s.Frag > 0 {
				s.ToPort = nil
			}
			s.Payload = []byte(payload)
			frame, err := packet.Build(s)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			out[fmt.Sprintf("%s, payload %q", name, payload)] = frame
		}
	}
	arp, err := packet.Build(packet.Spec{Family: packet.ARP})
	if err != nil {
		t.Fatal(err)
	}
	out["ARP"] = arp
	malformed := bytes.Clone(out[`IPv4, payload "ab"`])
	malformed[14] = 0x41 // a header of four bytes
	out["malformed"] = malformed
	return out
}
