package codegen_test

import (
	"iter"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"levee/internal/dataplane/loader"
	"levee/internal/filter/codegen"
	"levee/internal/filter/difftest"
	"levee/internal/filter/oracle"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// A plain program decides as the oracle does, or by the default: but for oddities, only what the
// fast path does not know.
func TestPlainProgramsDecideAsOthersOrByTheDefault(t *testing.T) {
	needRoot(t)
	texts := []string{
		"protect from 192.0.2.0/24 tcp port 22\ndefault drop\n",
		"protect from 192.0.2.0/24 tcp port 22\nessential off\ndefault pass\n",
		"set admins = { 192.0.2.0/24, 2001:db8::/32, 203.0.113.7 }\nprotect from admins\n" +
			"protect udp port 1-100\ndefault drop\n",
		lines(400, func(i int) string {
			return "protect from " + six(i) + " tcp port 22\nprotect ttl 3"
		}) + "default drop\n", // functions
	}
	for i, text := range texts {
		p := resolved(t, text)
		for name, target := range map[string]codegen.Target{
			"xdp": {CPUs: 2}, "xdp.frags": {CPUs: 1, Frags: true},
			"tcx": {CPUs: 1, Hook: codegen.TCX},
			"l3":  {CPUs: 2, Link: packet.L3},
		} {
			target.Trace, target.Plain = true, true
			compiled, err := codegen.Compile(p, target)
			if err != nil {
				t.Fatal(err)
			}
			for _, ins := range compiled.Spec.Programs[codegen.ProgramName].Instructions {
				if strings.HasPrefix(ins.Symbol(), "parse_") {
					t.Error("the careful decoder is there")
				}
			}
			run, err := loader.NewRunner(compiled)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			t.Logf("policy %d, %s", i, name)
			if n := byDefault(t, p, run, target, difftest.Packets(p, 7, 2000)); n == 0 {
				t.Error("the fast path knows all packets")
			}
			if n := byDefault(t, p, run, target, slices.Values(commonFrames(t))); n > 0 {
				t.Errorf("%d common packets by the default", n)
			}
			run.Close()
		}
	}
}

// byDefault counts the packets that a plain program decides by the default, and the oracle does
// not.
func byDefault(t *testing.T, p *policy.Policy, run *loader.Runner, target codegen.Target,
	frames iter.Seq[[]byte]) (n int) {
	t.Helper()
	reference, last := oracle.NewOn(p, target.Link), len(p.Slots())-1
	for whole := range frames {
		frame, err := target.Link.Carry(whole)
		if err != nil || target.Link == packet.L3 && len(frame) < 14 {
			continue // BPF_PROG_RUN takes no less than an Ethernet header has
		}
		if target.Hook == codegen.TCX && len(frame) < 54 {
			continue // BPF_PROG_RUN wants the header that the EtherType names
		}
		want := reference.Eval(frame)
		got, action, err := run.Eval(frame)
		switch {
		case err != nil:
			t.Fatalf("%v: frame %x", err, frame)
		case got == want.Slot && action == want.Action:
		case got == last && action == p.Default.Action:
			n++
		default:
			t.Fatalf("program: slot %d %v, oracle: slot %d %v: frame %x", got, action, want.Slot,
				want.Action, frame)
		}
	}
	return n
}

// commonFrames are packets that a fallback must not get wrong.
func commonFrames(t *testing.T) (frames [][]byte) {
	t.Helper()
	for _, from := range []string{"192.0.2.1", "198.51.100.1", "2001:db8::1", "fe80::1"} {
		for _, proto := range []uint8{packet.ProtoTCP, packet.ProtoUDP, packet.ProtoICMP,
			packet.ProtoICMP6, 47} {
			a := netip.MustParseAddr(from)
			if proto == packet.ProtoICMP && a.Is6() || proto == packet.ProtoICMP6 && a.Is4() {
				continue
			}
			spec := packet.Spec{From: a, Proto: &proto}
			if proto == packet.ProtoTCP || proto == packet.ProtoUDP {
				spec.ToPort = new(uint16(22))
			}
			f, err := packet.Build(spec)
			if err != nil {
				t.Fatal(err)
			}
			frames = append(frames, f)
		}
	}
	return frames
}
