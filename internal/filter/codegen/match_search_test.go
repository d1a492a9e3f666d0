package codegen_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"levee/internal/dataplane/loader"
	"levee/internal/filter/codegen"
	"levee/internal/lang/action"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// datagram is a frame with a payload of UDP.
func datagram(t *testing.T, port uint16, payload []byte) []byte {
	t.Helper()
	f, err := packet.Build(packet.Spec{Proto: new(uint8(packet.ProtoUDP)), ToPort: &port,
		Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestASearchFindsAcrossItsRounds: wherever something stands in the payload, and however that ends,
// also where it begins in one round of 64 bytes and ends in the next.
func TestASearchFindsAcrossItsRounds(t *testing.T) {
	needRoot(t)
	p, ds := resolve.Parse("p.levee", []byte("drop udp port 1 payload contains \"needle\"\n"+
		"drop udp port 2 payload contains /e$/\n"+
		"drop udp port 3 not payload contains /^a[^b]*$/\ndefault pass\n"), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	for _, target := range []codegen.Target{
		{CPUs: 2, Trace: true}, {CPUs: 2, Trace: true, Plain: true},
		{CPUs: 2, Trace: true, Hook: codegen.TCX},
	} {
		prog, err := codegen.Compile(p, target)
		if err != nil {
			t.Fatal(err)
		}
		run, err := loader.NewRunner(prog)
		if err != nil {
			t.Fatalf("%+v: %v", target, err)
		}
		expect := func(port uint16, payload []byte, drops bool) {
			t.Helper()
			_, got, err := run.Eval(datagram(t, port, payload))
			if err != nil {
				t.Fatal(err)
			}
			if got == action.Drop != drops {
				t.Errorf("%+v: port %d, %d bytes: %v", target, port, len(payload), got)
			}
		}
		for at := range 200 {
			payload := append(bytes.Repeat([]byte("n"), at), "needle"...)
			expect(1, payload, true)
			expect(2, payload, true)
			expect(1, payload[:at+5], false)
			expect(1, append(payload[:at+5], "x"...), false)
			expect(2, payload[:at+5], false)
		}
		long := bytes.Repeat([]byte("a"), 1472)
		expect(1, long, false)
		expect(3, long, false)
		long[1471] = 'b'
		expect(3, long, true)
		copy(long[1466:], "needle")
		expect(1, long, true)
		expect(3, nil, true)
		run.Close()
	}
}

// TestAsManySearchesAsThereMayBeLoad: each with rules of its own, of which some are in functions.
func TestAsManySearchesAsThereMayBeLoad(t *testing.T) {
	needRoot(t)
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, "drop udp len > %d not payload contains { \"text %d\", /[a-f]%d+.x/ } as "+
			"\"r%d\"\n", i, i%32, i%32, i)
	}
	fmt.Fprintf(&b, "drop inner( udp payload contains { \"text 1\", /[a-f]1+.x/ } )\n")
	b.WriteString("default pass\n")
	p, ds := resolve.Parse("p.levee", []byte(b.String()), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	for _, target := range []codegen.Target{
		{CPUs: 2, Trace: true}, {CPUs: 2, Trace: true, Frags: true},
		{CPUs: 2, Trace: true, Hook: codegen.TCX},
	} {
		prog, err := codegen.Compile(p, target)
		if err != nil {
			t.Fatal(err)
		}
		run, err := loader.NewRunner(prog)
		if err != nil {
			t.Fatalf("%+v: %v", target, err)
		}
		if target.Hook == codegen.XDP && !target.Frags {
			compare(t, p, run, 1, 300)
		}
		run.Close()
	}
}
