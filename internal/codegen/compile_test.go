package codegen_test

import (
	"net/netip"
	"os"
	"testing"

	"levee/internal/codegen"
	"levee/internal/datapath"
	"levee/internal/oracle"
	"levee/internal/packet"
	"levee/internal/policy"
)

func TestSmoke(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	r := func(a policy.Action, m ...policy.Term) *policy.Rule {
		return &policy.Rule{Action: a, Match: m, ID: "x"}
	}
	num := func(f policy.Field, lo, hi uint64) policy.Term {
		return policy.Term{Field: f, Ranges: []policy.Range{{Lo: lo, Hi: hi}}}
	}
	p := &policy.Policy{File: "x.levee", Essential: true, Default: policy.Default{Action: policy.Drop},
		Protect: []*policy.Rule{r(policy.Protect, num(policy.Proto, 6, 6), num(policy.DstPort, 22, 22), policy.Term{Field: policy.SrcAddr, Prefixes: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:7::/48")}})},
		Rules: []*policy.Rule{
			r(policy.Drop, policy.Term{Field: policy.SrcAddr, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.7/32"), netip.MustParsePrefix("2001:db8:8::1/128")}}),
			r(policy.Drop, num(policy.Fragment, 1, 1)),
			r(policy.Count, policy.Term{Field: policy.TCPFlags, Mask: 0x12, Value: 2}),
			r(policy.Drop, num(policy.Proto, 17, 17), num(policy.SrcPort, 53, 53), num(policy.Len, 469, 1<<32-1)),
			r(policy.Pass, num(policy.Proto, 6, 6), policy.Term{Field: policy.DstPort, Ranges: []policy.Range{{Lo: 80, Hi: 80}, {Lo: 443, Hi: 443}}}),
		}}
	for _, target := range []codegen.Target{{Trace: true}, {Trace: true, Frags: true, CPUs: 2}, {Trace: true, Hook: codegen.TCX, CPUs: 3}} {
		prog, err := codegen.Compile(p, target)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(len(prog.Spec.Programs["levee"].Instructions))
		run, err := datapath.NewRunner(prog)
		if err != nil {
			t.Fatalf("%+v", err)
		}
		defer run.Close()
		o := oracle.New(p)
		for _, f := range [][]byte{
			build(t, packet.Spec{}),
		} {
			slot, act, err := run.Eval(f)
			want := o.Eval(f)
			if err != nil || slot != want.Slot {
				t.Errorf("got %d %v %v want %+v", slot, act, err, want)
			}
		}
	}
}

func build(t *testing.T, s packet.Spec) []byte {
	f, err := packet.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
