package codegen_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"levee/internal/bench/workload"
	"levee/internal/filter/codegen"
	"levee/internal/filter/difftest"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

// oldest is the oldest kernel that has to load compiled policies: nothing in them may be newer. The
// TCX hook itself is, and is used only where the kernel has it.
var oldest = version{6, 1}

// version is that of a kernel.
type version [2]int

func (v version) String() string { return fmt.Sprintf("%d.%d", v[0], v[1]) }

func (v version) after(w version) bool { return v[0] > w[0] || v[0] == w[0] && v[1] > w[1] }

// never is for what the table does not know: it has to be looked up before it is used.
var never = version{99, 0}

// need is something that a program asks of the kernel.
type need struct {
	what  string
	since version
}

// helpers by number: include/uapi/linux/bpf.h, ___BPF_FUNC_MAPPER; the version is the first that
// has it there. The list ends with 211 (6.2): whatever is newer is a kfunc.
var helpers = map[int32]need{
	1:   {"bpf_map_lookup_elem", version{3, 19}},
	7:   {"bpf_get_prandom_u32", version{4, 1}},
	8:   {"bpf_get_smp_processor_id", version{4, 1}},
	9:   {"bpf_skb_store_bytes", version{4, 1}},
	11:  {"bpf_l4_csum_replace", version{4, 1}},
	12:  {"bpf_tail_call", version{4, 2}},
	18:  {"bpf_skb_vlan_push", version{4, 3}},
	19:  {"bpf_skb_vlan_pop", version{4, 3}},
	23:  {"bpf_redirect", version{4, 4}},
	26:  {"bpf_skb_load_bytes", version{4, 5}},
	38:  {"bpf_skb_change_tail", version{4, 9}},
	28:  {"bpf_csum_diff", version{4, 6}},
	46:  {"bpf_get_socket_cookie", version{4, 12}},
	47:  {"bpf_get_socket_uid", version{4, 12}},
	79:  {"bpf_skb_cgroup_id", version{4, 18}},
	113: {"bpf_probe_read_kernel", version{5, 5}},
	115: {"bpf_probe_read_kernel_str", version{5, 5}},
	44:  {"bpf_xdp_adjust_head", version{4, 10}},
	50:  {"bpf_skb_adjust_room", version{4, 13}},
	51:  {"bpf_redirect_map", version{5, 3}}, // with a code of the caller's for none
	65:  {"bpf_xdp_adjust_tail", version{4, 18}},
	69:  {"bpf_fib_lookup", version{4, 18}},
	85:  {"bpf_sk_lookup_udp", version{4, 20}},
	86:  {"bpf_sk_release", version{4, 20}},
	95:  {"bpf_sk_fullsock", version{5, 1}},
	99:  {"bpf_skc_lookup_tcp", version{5, 2}},
	118: {"bpf_jiffies64", version{5, 6}},
	124: {"bpf_sk_assign", version{5, 9}}, // of programs that are asked for sockets
	131: {"bpf_ringbuf_reserve", version{5, 8}},
	132: {"bpf_ringbuf_submit", version{5, 8}},
	133: {"bpf_ringbuf_discard", version{5, 8}},
	181: {"bpf_loop", version{5, 17}},
	188: {"bpf_xdp_get_buff_len", version{5, 18}},
	189: {"bpf_xdp_load_bytes", version{5, 18}},
	190: {"bpf_xdp_store_bytes", version{5, 18}},
}

// mapTypes, with flags of maps and programs: include/uapi/linux/bpf.h.
var (
	mapTypes = map[ebpf.MapType]version{
		ebpf.Array: {3, 19}, ebpf.RingBuf: {5, 8}, ebpf.ProgramArray: {4, 2}, ebpf.XSKMap: {4, 18},
		ebpf.ArrayOfMaps: {4, 12}, ebpf.PerCPUArray: {4, 6},
		ebpf.SockMap: {5, 8}, // that programs look into
	}
	mapFlags = map[uint32]need{
		1 << 7:  {"BPF_F_RDONLY_PROG", version{5, 2}},
		1 << 10: {"BPF_F_MMAPABLE", version{5, 5}},
	}
	programFlags = map[uint32]need{1 << 5: {"BPF_F_XDP_HAS_FRAGS", version{5, 18}}}
	attachTypes  = map[ebpf.AttachType]need{
		ebpf.AttachXDP:        {"BPF_XDP", version{5, 9}},
		ebpf.AttachTCXIngress: {"BPF_TCX_INGRESS", version{6, 6}},
		ebpf.AttachTCXEgress:  {"BPF_TCX_EGRESS", version{6, 6}},
		ebpf.AttachSkLookup:   {"BPF_SK_LOOKUP", version{5, 9}},
	}
)

// Parts of an opcode, RFC 9669 section 3.
const (
	classLD, classLDX, classST, classSTX      = 0, 1, 2, 3
	classALU, classJMP, classJMP32, classALU6 = 4, 5, 6, 7
	modeIMM, modeMEM, modeATOMIC              = 0, 3, 6
)

// instructionNeed says what an encoded instruction needs of the kernel. Besides RFC 9669, which
// begins with what Linux 6.6 calls cpu v4, the kernel's Documentation/bpf/standardization and its
// verifier.c say since when.
func instructionNeed(raw []byte) need {
	op, src := raw[0], raw[1]>>4
	off, imm := int16(binary.LittleEndian.Uint16(raw[2:])),
		int32(binary.LittleEndian.Uint32(raw[4:]))
	class, mode, size := op&7, op>>5, op>>3&3
	switch class {
	case classLD:
		loads := []need{{"64 bit constant", version{3, 18}}, {"map", version{3, 18}},
			{"address in a map", version{5, 2}}, 4: {"address of a function", version{5, 13}}}
		if mode == modeIMM && size == 3 && int(src) < len(loads) && loads[src].what != "" {
			return loads[src]
		}
	case classLDX, classST:
		if mode == modeMEM {
			return need{"load or store", version{3, 18}}
		}
	case classSTX:
		switch {
		case mode == modeMEM:
			return need{"load or store", version{3, 18}}
		case mode == modeATOMIC && imm == 0:
			return need{"atomic add", version{3, 18}}
		case mode == modeATOMIC && imm < 0x100:
			return need{"atomic operation", version{5, 12}}
		}
	case classALU, classALU6:
		return arithmeticNeed(op, off)
	case classJMP, classJMP32:
		return jumpNeed(op, src, off, imm)
	}
	// sign-extending loads (6.6), acquire and release (6.15) and what is newer still
	return need{fmt.Sprintf("instruction %x", raw), never}
}

func arithmeticNeed(op byte, off int16) need {
	const end = 0xd
	if off != 0 || op>>4 > end || op>>4 == end && op&7 == classALU6 {
		return need{fmt.Sprintf("signed arithmetic, bswap or a cast of address spaces (opcode %#x)",
			op), version{6, 6}}
	}
	return need{"arithmetic", version{3, 18}}
}

func jumpNeed(op, src byte, off int16, imm int32) need {
	const ja, call, exit, less, mayGoto = 0, 8, 9, 0xa, 0xe
	wide := op&7 == classJMP
	switch code := op >> 4; {
	case code == call && wide && src == 0:
		if h, ok := helpers[imm]; ok {
			return h
		}
		return need{fmt.Sprintf("helper %d", imm), never}
	case code == call && wide && src == 1:
		return need{"call of a function", version{4, 16}}
	case code == call && wide && src == 2:
		return need{"kfunc", never}
	case code == ja && !wide:
		return need{"gotol", version{6, 6}}
	case code == ja && op&8 != 0:
		return need{"jump to a register", never}
	case code >= mayGoto, code == exit && !wide, code == call:
		return need{fmt.Sprintf("may_goto or an unknown jump (opcode %#x)", op), version{6, 9}}
	case !wide:
		return need{"jump by 32 bits", version{5, 1}}
	case code >= less:
		return need{"jump if less", version{4, 14}}
	}
	return need{"jump", version{3, 18}}
}

// needs lists all that a program and its maps ask for, the first place of each.
func needs(t *testing.T, p *codegen.Program) map[need]string {
	t.Helper()
	out := map[need]string{}
	add := func(n need, format string, args ...any) {
		if _, ok := out[n]; !ok {
			out[n] = fmt.Sprintf(format, args...)
		}
	}
	flags := func(of map[uint32]need, set uint32, what string) {
		for bit := uint32(1); bit != 0; bit <<= 1 {
			if n, ok := of[bit]; set&bit != 0 && ok {
				add(n, "%s", what)
			} else if set&bit != 0 {
				add(need{fmt.Sprintf("flag %#x", bit), never}, "%s", what)
			}
		}
	}
	for name, m := range p.Spec.Maps {
		for ; m != nil; m = m.InnerMap {
			since, ok := mapTypes[m.Type]
			if !ok {
				since = never
			}
			add(need{"map type " + m.Type.String(), since}, "map %s", name)
			flags(mapFlags, m.Flags, "map "+name)
			if m.MapExtra != 0 {
				add(need{"map_extra", version{5, 16}}, "map %s", name)
			}
		}
	}
	for _, spec := range p.Spec.Programs {
		flags(programFlags, spec.Flags, "program")
		n, ok := attachTypes[spec.AttachType]
		if !ok {
			n = need{spec.AttachType.String(), never}
		}
		add(n, "program")
		var raw bytes.Buffer
		for i := range spec.Instructions {
			ins := &spec.Instructions[i]
			raw.Reset()
			if _, err := ins.Marshal(&raw, binary.LittleEndian); err != nil {
				t.Fatalf("instruction %d, %v: %v", i, ins, err)
			}
			add(instructionNeed(raw.Bytes()[:8]), "instruction %d, %v", i, ins)
			typeNeeds(ins, func(n need) { add(n, "function %s", ins.Symbol()) })
		}
	}
	return out
}

// typeNeeds walks the types of a function that begins here: tags of declarations and types and 64
// bit enumerations are newer than the rest of BTF.
func typeNeeds(ins *asm.Instruction, add func(need)) {
	f := btf.FuncMetadata(ins)
	if f == nil {
		return
	}
	add(need{"BTF of functions", version{5, 0}})
	if len(f.Tags) > 0 {
		add(need{"BTF tags of functions", version{5, 16}})
	}
	proto := f.Type.(*btf.FuncProto)
	for i, p := range proto.Params {
		if len(f.ParamTags) > i && len(f.ParamTags[i]) > 0 {
			add(need{"BTF tags of arguments, which the verifier obeys", version{6, 8}})
		}
		for typ := p.Type; typ != nil; {
			next := btf.Type(nil)
			switch v := typ.(type) {
			case *btf.Pointer:
				next = v.Target
			case *btf.Const:
				next = v.Type
			case *btf.Typedef:
				next = v.Type
			case *btf.Int, *btf.Void, *btf.Fwd, *btf.Struct, *btf.Array, *btf.Union:
			default:
				add(need{fmt.Sprintf("BTF %T", v), never})
			}
			typ = next
		}
	}
}

// TestNothingIsNewerThanTheOldestKernel compiles policies of all kinds for all targets, and looks
// at each instruction, helper, map, flag and type in what comes out, and for faults of loops and
// results: Linux 6.1 refused every policy, since clang had laid out a loop of the decoder so that
// an instruction fell into it, and leaves of trees and shapes of endpoints were counted down to
// "not 0".
func TestNothingIsNewerThanTheOldestKernel(t *testing.T) {
	targets := map[string]codegen.Target{
		"XDP": {CPUs: 4}, "XDP, fragments": {CPUs: 4, Frags: true, Trace: true},
		"XDP, trial": {CPUs: 1, Trial: true},
		"TCX":        {CPUs: 4, Hook: codegen.TCX},
		"TCX, trial": {CPUs: 2, Hook: codegen.TCX, Trial: true, Trace: true},
		"bytecode":   {CPUs: 4, Bytecode: true},
	}
	loops := 0
	all := map[need]string{}
	for name, p := range manyPolicies(t) {
		for of, target := range targets {
			prog, err := codegen.Compile(p, target)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !target.Trial {
				for program, spec := range prog.Spec.Programs {
					faults, n := olderFaults(t, spec.Instructions)
					loops += n
					for _, fault := range faults {
						t.Errorf("%s, for %s: %s: %s", name, of, program, fault)
					}
				}
			}
			for n, where := range needs(t, prog) {
				if target.Hook == codegen.TCX && n == attachTypes[ebpf.AttachTCXIngress] {
					continue
				}
				// What leaves is seen by a filter on older kernels.
				if (p.Asks(field.Flow, field.ProvenFlow, field.Stream) || p.Leaving() != nil) &&
					n == attachTypes[ebpf.AttachTCXEgress] {
					continue
				}
				if n.since.after(oldest) {
					t.Errorf("%s, for %s: %s needs Linux %v, the oldest is %v: %s", name, of,
						n.what, n.since, oldest, where)
				}
				all[n] = name
			}
		}
	}
	if loops == 0 {
		t.Error("no program has a loop: the policies do not cover what they should")
	}
	sorted := slices.SortedFunc(maps.Keys(all),
		func(a, b need) int { return slices.Compare(b.since[:], a.since[:]) })
	for _, n := range sorted {
		t.Logf("%v %s", n.since, n.what)
	}
	// If these are gone the test looks at nothing.
	for _, want := range []string{"bpf_jiffies64", "BPF_F_MMAPABLE", "map type ArrayOfMaps",
		"call of a function", "address in a map"} {
		if !slices.ContainsFunc(sorted, func(n need) bool { return n.what == want }) {
			t.Errorf("no policy needs %s: the policies do not cover what they should", want)
		}
	}
}

// manyPolicies are the examples, generated ones, and rules and sets large enough for every
// structure.
func manyPolicies(t *testing.T) map[string]*policy.Policy {
	t.Helper()
	out := map[string]*policy.Policy{}
	files, err := filepath.Glob("../../../examples/*.levee")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p, diags := resolve.Parse(filepath.Base(file), text,
			func(name string) (io.ReadCloser, error) {
				return os.Open("../../../examples/" + name)
			})
		if p == nil {
			t.Fatal(diags.Err())
		}
		out[filepath.Base(file)] = p
	}
	for seed := range uint64(150) {
		p, _, err := difftest.Policy(seed + 1)
		if err != nil {
			t.Fatal(err)
		}
		out[fmt.Sprint("seed ", seed+1)] = p
	}
	for _, shape := range workload.Shapes {
		rules, err := workload.Rules(shape, 1500, 1)
		if err != nil {
			t.Fatal(err)
		}
		out[shape] = resolved(t, lines(len(rules), func(i int) string {
			r := &rules[i]
			return fmt.Sprintf("%s ipv4 from %s to %s", []string{"drop", "pass", "count"}[i%3],
				r.Src, r.Dst)
		})+"default drop\n")
	}
	table := append(workload.Internet4(20_000, 1), workload.Internet6(20_000, 1)...)
	out["a routing table"] = resolved(t,
		"set view = "+list(len(table),
			func(i int) string { return table[i].String() })+"\ndrop from view\ndefault pass\n")
	out["many dynamic sets"] = resolved(t, lines(40, func(i int) string {
		return fmt.Sprintf("set d-%d = dynamic(max %d, lease 1m, rollup)\ndrop from d-%[1]d", i,
			10<<(i%16))
	})+"default pass\n")
	out["functions"] = resolved(t, lines(3000, func(i int) string {
		return fmt.Sprintf("count tcp port %d len %d-%d from %s", i%65535, 40+i, 60+i, six(i))
	})+"default pass\n")
	return out
}

// TestNewerInstructionsAreSeen shows that the table above would say so.
func TestNewerInstructionsAreSeen(t *testing.T) {
	for _, c := range []struct {
		name string
		raw  string
		want string // of the version
	}{
		{"r0 = 1", "b7 00 00 00 01 00 00 00", "3.18"},
		{"if r1 < r2", "ad 21 05 00 00 00 00 00", "4.14"},
		{"if w1 == 0", "16 01 05 00 00 00 00 00", "5.1"},
		{"lock fetch add", "db 21 00 00 01 00 00 00", "5.12"},
		{"bpf_jiffies64", "85 00 00 00 76 00 00 00", "5.6"},
		{"r0 = be16 r0", "dc 00 00 00 10 00 00 00", "3.18"},
		{"r0 = bswap16 r0", "d7 00 00 00 10 00 00 00", "6.6"},
		{"r0 = (s8) r1", "bf 10 08 00 00 00 00 00", "6.6"},
		{"r0 s/= r1", "3f 10 01 00 00 00 00 00", "6.6"},
		{"cast to arena", "bf 10 01 00 01 00 00 00", "6.6"}, // by the same field; really 6.9
		{"gotol", "06 00 00 00 ff ff 00 00", "6.6"},
		{"may_goto", "e5 00 05 00 00 00 00 00", "6.9"},
		{"r0 = *(s32 *)(r1)", "81 10 00 00 00 00 00 00", "99.0"},
		{"load acquire", "db 10 00 00 00 01 00 00", "99.0"},
		{"kfunc", "85 20 00 00 01 00 00 00", "99.0"},
		{"bpf_cgrp_storage_get", "85 00 00 00 d2 00 00 00", "99.0"},
		{"jump to a register", "0d 01 00 00 00 00 00 00", "99.0"},
	} {
		var raw [8]byte
		for i, b := range strings.Fields(c.raw) {
			if _, err := fmt.Sscanf(b, "%x", &raw[i]); err != nil {
				t.Fatal(err)
			}
		}
		if got := instructionNeed(raw[:]); got.since.String() != c.want {
			t.Errorf("%s: %v since %v, want %s", c.name, got.what, got.since, c.want)
		}
	}
}
