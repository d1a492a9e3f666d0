package env

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/filter/plan"
	"levee/internal/filter/ring"
)

// Registers of the generated program. Until the packet is decoded R6 is the context, R7 and R8 the
// bounds of the frame and R9 its length; where the rules of a class begin they hold the fields that
// rules ask for most, and all else is read from struct key on the stack. R0 to R5 are scratch.
const (
	RegCtx   = asm.R6
	RegData  = asm.R7
	RegEnd   = asm.R8
	RegBytes = asm.R9

	RegSrc     = asm.R6 // IPv4 address, or upper half of the IPv6 address, host order
	RegDst     = asm.R7
	RegDstPort = asm.R8 // or ICMP type << 8 | code
	RegSrcPort = asm.R9
)

// Code is code that knows where the environment is.
type Code struct {
	*assembler.Builder
	Plan       *plan.Plan
	Target     plan.Target
	AnyEffects bool // a rule leaves effects
	RowInEnv   bool // the main function finds the row of counters for all functions
	InFunction bool // now
}

// Verdicts: include/uapi/linux/bpf.h enum xdp_action, enum tcx_action_base.
func (c *Code) PassCode() int32 {
	switch c.Target.Hook {
	case plan.TCX:
		return -1 // TCX_NEXT: what else is attached has its say
	case plan.CGroup:
		return 1 // go on (kernel/bpf/cgroup.c)
	case plan.Socket:
		return -1 // keep all bytes (net/core/filter.c, sk_filter_trim_cap)
	}
	return 2 // XDP_PASS
}

func (c *Code) DropCode() int32 {
	switch c.Target.Hook {
	case plan.TCX:
		return 2 // TCX_DROP
	case plan.CGroup, plan.Socket:
		return 0
	}
	return 1 // XDP_DROP
}

func (c *Code) AnswerCode() int32 {
	if c.Target.Hook == plan.TCX {
		return 7 // TCX_REDIRECT, to where the effect has said
	}
	return 3 // XDP_TX
}

// RedirectCode hands a packet of XDP to where the effect has said: XDP_REDIRECT.
const RedirectCode = ring.Redirected

// AsksInside reports whether a rule asks for the word, also where nobody looks into tunnels.
func (c *Code) AsksInside() bool { return len(c.Plan.Program.Inners) > 0 }

// word32 returns a 32-bit immediate; the compare must be a 32-bit one.
func word32(v uint32) int32 { return int32(v) }

// FourBytes returns an IPv4 address in host order.
func FourBytes(b [4]byte) uint32 { return binary.BigEndian.Uint32(b[:]) }
