package rules

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"levee/internal/bench/load"
	"levee/internal/bench/workload"
	"levee/internal/filter/assembler"
	"levee/internal/lab"
	"levee/internal/lab/contender"
)

// mostPlain is the number of rules one by one that the verifier reads in bearable time: it grows by
// their square.
const mostPlain = 10_000

// plain returns the rules one by one in an eBPF program, as papers about such programs have them,
// once by the kernel's JIT and once interpreted. levee's own programs cannot be interpreted: they
// call functions, and tail calls are refused there beside these.
func plain(rules []workload.Rule) []load.Spec {
	body := plainBody(rules)
	jit := load.Plain(contender.XDPProgram("ebpf rules",
		"an XDP program of the rules one by one, in order; counted by the driver", body, compiled))
	without := load.Plain(contender.XDPProgram("ebpf rules interpreted",
		"the same program, loaded while the kernel's JIT was off", body, lab.Interpreted))
	for _, s := range []*load.Spec{&jit, &without} {
		s.Most, s.MostWhy = mostPlain, fmt.Sprintf("more than %d rules one by one: the verifier's "+
			"time grows by their square", mostPlain)
	}
	return []load.Spec{jit, without}
}

// compiled loads programs as the machine does, by its JIT as a rule.
func compiled(load func() error) error { return load() }

// plainBody drops a packet at the first rule that it meets, or behind the last.
func plainBody(rules []workload.Rule) asm.Instructions {
	const (
		ethernet, ipv4, ports = 14, 20, 4
		src, dst, proto, both = asm.R6, asm.R7, asm.R8, asm.R9 // both ports, the source's above
		data, end             = 0, 4                           // of struct xdp_md
		dropped               = 1                              // XDP_DROP
	)
	drop := asm.Instructions{asm.Mov.Imm(asm.R0, dropped), asm.Return()}
	// Big-endian numbers become the machine's own.
	field := func(to asm.Register, at int16) asm.Instructions {
		return asm.Instructions{asm.LoadMem(to, asm.R2, at, asm.Word), asm.HostTo(asm.BE, to,
			asm.Word)}
	}
	b := assembler.New()
	b.Emit(
		asm.LoadMem(asm.R2, asm.R1, data, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, end, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, ethernet+ipv4+ports),
		asm.JGT.Reg(asm.R4, asm.R3, "end"),
	)
	b.Emit(field(src, ethernet+12)...)
	b.Emit(field(dst, ethernet+16)...)
	b.Emit(asm.LoadMem(proto, asm.R2, ethernet+9, asm.Byte))
	b.Emit(field(both, ethernet+ipv4)...)
	for i := range rules {
		r := &rules[i]
		next := fmt.Sprintf("rule%d", i+1)
		if i == len(rules)-1 {
			next = "end"
		}
		var tests asm.Instructions
		prefix := func(reg asm.Register, addr [4]byte, bits int) {
			if bits == 0 {
				return
			}
			v := uint32(addr[0])<<24 | uint32(addr[1])<<16 | uint32(addr[2])<<8 | uint32(addr[3])
			tests = append(tests, asm.Mov.Reg(asm.R1, reg), asm.RSh.Imm(asm.R1, int32(32-bits)),
				asm.JNE.Imm32(asm.R1, int32(v>>(32-bits)), next))
		}
		prefix(src, r.Src.Addr().As4(), r.Src.Bits())
		prefix(dst, r.Dst.Addr().As4(), r.Dst.Bits())
		if r.Proto != 0 {
			tests = append(tests, asm.JNE.Imm32(proto, int32(r.Proto), next))
		}
		between := func(p workload.Ports, prepare asm.Instruction) {
			if p == workload.AllPorts {
				return
			}
			tests = append(tests, asm.Mov.Reg(asm.R1, both), prepare,
				asm.JLT.Imm32(asm.R1, int32(p.Lo), next), asm.JGT.Imm32(asm.R1, int32(p.Hi), next))
		}
		between(r.SrcPort, asm.RSh.Imm(asm.R1, 16))
		between(r.DstPort, asm.And.Imm(asm.R1, 0xffff))
		b.Label(fmt.Sprintf("rule%d", i))
		b.Emit(tests...)
		b.Emit(drop...)
		if len(tests) == 0 {
			break // no rule behind it is reached
		}
	}
	b.Label("end")
	b.Emit(drop...)
	return b.MustFinish()
}
