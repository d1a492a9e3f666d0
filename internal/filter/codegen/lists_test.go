package codegen_test

import (
	"testing"

	"levee/internal/filter/codegen"
	"levee/internal/filter/ir"
)

// One list of endpoints was looked up for the side that asked for it first, whichever side asked.
func TestOneListOfEndpointsIsAskedForBothSidesPortsAndProtocols(t *testing.T) {
	p := resolved(t, `set sides = { 192.0.2.0/26 tcp/80, 192.0.2.0/24 udp/53, 198.51.100.1 tcp/80, 198.51.100.2 tcp/81, 198.51.100.3 tcp/82,
    198.51.100.4 tcp/83, 198.51.100.5 tcp/84, 198.51.100.6 tcp/85 }
set numbers = { 10.0.0.1 gre, 10.0.0.2 gre, 10.0.0.3 gre, 10.0.0.4 gre, 10.0.0.4 esp, 10.0.0.5 esp, 10.0.0.6 esp, 10.0.0.7 esp,
    10.0.0.1 tcp/47, 10.0.0.2 tcp/47, 10.0.0.3 tcp/47, 10.0.0.4 tcp/47, 10.0.0.4 tcp/50, 10.0.0.5 tcp/50, 10.0.0.6 tcp/50, 10.0.0.7 tcp/50 }
drop not from sides to sides
pass from numbers ttl 3
count not to numbers len > 40
drop from { 10.0.0.0/8 tcp/47, 10.0.0.0/8 gre, 10.0.0.9 udp/47, 10.0.0.8 gre } not from 10.0.0.0/9 not from 10.128.0.0/16
default pass
`)
	for _, records := range []bool{false, true} {
		agree(t, "lists", ir.Build(p), codegen.Target{CPUs: 1, Bytecode: records, Trace: true}, 1,
			20000)
	}
}
