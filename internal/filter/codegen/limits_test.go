package codegen_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"levee/internal/dataplane/loader"
	"levee/internal/filter/codegen"
	"levee/internal/filter/ir"
)

// lines makes a text of n lines.
func lines(n int, line func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(line(i) + "\n")
	}
	return b.String()
}

// list makes an element list of n elements.
func list(n int, element func(i int) string) string {
	e := make([]string, n)
	for i := range e {
		e[i] = element(i)
	}
	return "{ " + strings.Join(e, ", ") + " }"
}

// six is an IPv6 prefix of its own for each n, of all lengths from 33 to 122.
func six(n int) string {
	var a [16]byte
	binary.BigEndian.PutUint32(a[:], uint32(0x20010000+n))
	return netip.PrefixFrom(netip.AddrFrom16(a), 33+n%90).String()
}

// A policy that is taken must load. The kernel has limits that some rules reach by themselves.
func TestLimitsOfTheKernelAreKept(t *testing.T) {
	needRoot(t)
	ports := func(i int) string {
		return "count tcp port " + list(10,
			func(j int) string { return fmt.Sprint(1 + i*20 + 2*j) })
	}
	mac := func(i int) string {
		return fmt.Sprintf("02:00:00:%02x:%02x:%02x", i>>14, i>>6&255, i<<2&255)
	}
	sets := func(n int) string {
		return lines(n, func(i int) string {
			return fmt.Sprintf("set s%d = %s\ndrop from s%[1]d", i,
				list(40, func(j int) string { return six(i*40 + j) }))
		})
	}
	dynamic := lines(48,
		func(i int) string {
			return fmt.Sprintf("set d-%d = dynamic(max 10)\ndrop from d-%[1]d", i)
		})
	straight := lines(900,
		func(i int) string { return fmt.Sprintf("count tcp port %d len %d-%d", i, 40+i, 60+i) })
	for name, text := range map[string]string{
		"more tables than maps":     lines(70, ports),
		"tables too long for jumps": sets(60),
		"more Ethernet addresses than jumps reach": "drop ether from " + list(5000,
			mac) + "\ndrop not ether to " + list(5000, mac),
		"more lengths than jumps reach": "drop len " + list(20000,
			func(i int) string { return fmt.Sprint(25576 + 2*i) }) + "\n",
		"more VLANs than jumps reach": "drop not vlan " + list(2000,
			func(i int) string { return fmt.Sprint(2*i + 2) }) + "\n",
		"rules for hosts of one IPv6 network": lines(3000, func(i int) string {
			return fmt.Sprintf("drop tcp from 2001:db8::%x:%x port %d-%d", i*7919%65536, i, i,
				2*i+9)
		}),
		"more open ways than the verifier keeps": lines(6000,
			func(i int) string { return fmt.Sprintf("drop ttl %d len %d", i%255, 100+i) }),
		"many counts": lines(4000,
			func(i int) string { return fmt.Sprintf("count tcp port %d len > %d", i, i%1000) }),
		"48 dynamic sets":                        dynamic,
		"48 dynamic sets and a function a class": dynamic + straight,
	} {
		t.Run(name, func(t *testing.T) {
			agree(t, name, ir.Build(resolved(t, text+"\ndefault pass\n")), codegen.Target{CPUs: 2},
				5, 300)
		})
	}
}

// What the kernel would refuse is refused with a word on what to do.
func TestWhatCannotLoadIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name, text, want string
		cpus             int
	}{
		{"counters of 8,192 CPUs", lines(5000,
			func(i int) string {
				return fmt.Sprintf("drop tcp port %d", i)
			}), "use sets instead", 8192},
	} {
		_, err := codegen.Compile(resolved(t, tt.text+"default pass\n"),
			codegen.Target{CPUs: tt.cpus})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q in it", tt.name, err, tt.want)
		}
	}
}

// Tables of the largest sets end farther from the beginning of their memory than Linux 7.3 lets an
// unknown number lead; that of endpoints was itself larger than any kernel takes.
func TestLargestDynamicSetsAgree(t *testing.T) {
	needRoot(t)
	for _, set := range []string{"dynamic(max 16777216)", "dynamic(of endpoints, max 8388608)",
		"dynamic(of services, max 8388608)"} {
		p := resolved(t, "set s = "+set+"\ndrop from s as \"s\"\npass not to s\ndefault drop\n")
		compiled, err := codegen.Compile(p, codegen.Target{CPUs: 2, Trace: true})
		if err != nil {
			t.Fatal(err)
		}
		run, err := loader.NewRunner(compiled)
		if err != nil {
			t.Fatalf("%s: %v", set, err)
		}
		compare(t, p, run, 5, 600)
		run.Close()
	}
}
