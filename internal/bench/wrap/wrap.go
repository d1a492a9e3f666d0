package wrap

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/load"
	"levee/internal/bench/rules"
	"levee/internal/bench/workload"
	"levee/internal/dataplane"
	"levee/internal/dataplane/service"
	"levee/internal/lab"
	"levee/internal/usage"
)

// Options of a measurement. Self is required.
type Options struct {
	bench.Options
	// Self is the command line of the service, to which arguments of Sink are added.
	Self  []string
	Rules []int    // numbers of rules; nil: 22, 100, 10,000
	MTUs  []int    // bytes; nil: 1280, 1500, 9000, 65536
	Ways  []string // of Ways; nil: all
}

// Ways in which a service has a policy.
const (
	None    = "none"
	Unit    = "cgroup"
	Sockets = "sockets"
)

// Ways are those that can be chosen. What has no policy is always measured.
var Ways = []string{Unit, Sockets}

var usual = bench.Usual{Rounds: bench.MinRounds + 1, QuickRounds: bench.MinRounds,
	Window: 400 * time.Millisecond, QuickWindow: 100 * time.Millisecond,
	Shortest: 20 * time.Millisecond, Longest: 10 * time.Second}

// Bounds of MTUs: that of IPv6, which all links have, and that of the loopback.
const (
	leastMTU = 1280
	mostMTU  = 65536
)

func (o *Options) complete() error {
	if err := o.Options.Complete(usual); err != nil {
		return err
	}
	if o.Rules == nil {
		o.Rules = []int{22, 100, 10_000}
	}
	if o.MTUs == nil {
		o.MTUs = []int{1280, 1500, 9000, 65536}
	}
	for _, mtu := range o.MTUs {
		if mtu < leastMTU || mtu > mostMTU {
			return usage.Wrongf("an MTU of %d: %d to %d bytes", mtu, leastMTU, mostMTU)
		}
	}
	return errors.Join(bench.CheckSizes(o.Rules, workload.MaxRules),
		usage.Known("way to have a policy", o.Ways, Ways))
}

// Run measures. It needs root. When ctx ends early the report has what was measured until then,
// says that it is incomplete, and comes with the error.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if err := bench.Ready("wrap", o.complete()); err != nil {
		return nil, err
	}
	l, err := lab.New(ctx, lab.Topology{Pairs: []lab.Pair{{Inner: host, Outer: "nobody"}},
		ReceiverCPU: -1, GeneratorCPU: -1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	m := &measurement{Options: &o, host: l.Host(host)}
	defer func() { err = errors.Join(err, m.close()) }()
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	r := &Report{Head: o.Head(0, caveats...), WindowSecs: o.Window.Seconds()}
	r.WarnOfQuick()
	for i, mtu := range o.MTUs {
		c := &Case{MTU: mtu}
		r.Cases = append(r.Cases, c)
		if err := m.measure(ctx, c, i); err != nil {
			return bench.Ended(ctx, r, &r.Head, err)
		}
	}
	return r, nil
}

const host = "host" // of the lab, over whose loopback connections go

// peer and first are the addresses of a connection: 127.0.0.1, and the first port of a service.
var peer = netip.AddrFrom4([4]byte{127, 0, 0, 1})

const firstPort = 5201

// textOf returns a policy of n rules, of which the last passes the connection and none before
// matches it.
func textOf(n int, seed uint64, port uint16) ([]byte, error) {
	drawn, err := workload.Rules("fw", min(2*n, workload.MaxRules), seed)
	if err != nil {
		return nil, err
	}
	var others []workload.Rule
	for i := range drawn {
		if len(others) < n-1 && !met(&drawn[i], port) {
			others = append(others, drawn[i])
		}
	}
	if len(others) < n-1 {
		return nil, fmt.Errorf("of %d rules that were drawn only %d do not match the connection",
			len(drawn), len(others))
	}
	return rules.Text(others, fmt.Sprintf("pass tcp port %d\ndefault drop\n", port)), nil
}

// met reports whether a rule may match a packet to the service, from any port of its client.
func met(r *workload.Rule, port uint16) bool {
	return r.Src.Contains(peer) && r.Dst.Contains(peer) && (r.Proto == 0 || r.Proto == 6) &&
		r.DstPort.Lo <= port && port <= r.DstPort.Hi
}

// policyOf compiles a policy where its service is.
func policyOf(n int, seed uint64, port uint16, dir string) (*service.Unkept, error) {
	text, err := textOf(n, seed, port)
	if err != nil {
		return nil, err
	}
	p, err := load.Parse(text, nil)
	if err != nil {
		return nil, err
	}
	return service.PutUnkept(dir, dataplane.Compiler(p))
}
