// Package advice measures what `levee doctor` advises, of that what can be tried in a network
// namespace of its own: what a packet takes with what costs, and without it.
//
// In go Options, out comes a Report: for each advice the ns a packet of both sides, and what is
// gained, with its 95 % interval over the differences of rounds in turn. The flood and its
// conditions are those of package flood. What can be tried on a card or the whole machine only is
// not here: the package must never change a setting of the machine, nor touch an interface outside
// its lab.
package advice

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/dataplane/store"
	"levee/internal/lab/contender"
	"levee/internal/usage"
)

// Options of a measurement. The zero value takes about a minute and a half.
type Options struct {
	flood.Options
	Only  []string // advices by name, empty for all
	Rules int      // of netfilter, 0 for 100
}

// mostRules bounds the rules of netfilter that are tried.
const mostRules = 10_000

// kind is an advice that can be tried.
type kind struct {
	name, what string
	// with what costs, and without it
	with, without func(o *Options) contender.Defence
}

var policy = fmt.Appendf(nil, "drop udp port %d as \"flood\"\ndefault pass\n", flood.Port)

// at returns a policy at the hook of a mode.
func at(mode store.Mode) func(*Options) contender.Defence {
	return func(*Options) contender.Defence {
		return contender.LeveeAt(string(mode), "one-rule", policy, mode)
	}
}

// bare returns an application that takes each packet.
func bare(*Options) contender.Defence { return contender.Recvmmsg() }

// Names are those of the findings of package doctor.
var kinds = []kind{
	{"driver", "a packet that a policy drops, in generic XDP and in the driver",
		at(store.XDPGeneric), at(store.XDPNative)},
	{"tc_ingress", "a packet that a policy drops at tc ingress, by a filter (clsact) and by TCX",
		at(store.Clsact), at(store.TCX)},
	{"netfilter", "a packet that an application takes, behind rules of netfilter and without",
		func(o *Options) contender.Defence { return behindRules(o.Rules) }, bare},
	{"conntrack", "a packet of a new flow that an application takes, with its connection " +
		"tracked and not",
		func(*Options) contender.Defence { return contender.RecvmmsgConntrack() }, bare},
	{"packet_sockets", "a packet that an application takes, with a packet socket whose filter " +
		"takes none, and without",
		func(*Options) contender.Defence { return besideSocket() }, bare},
}

// Names returns the advices, as they can be chosen.
func Names() []string { return bench.Names(kinds, func(k kind) string { return k.name }) }

func (o *Options) complete() error {
	if o.Rules == 0 {
		o.Rules = 100
	}
	if o.Rules < 1 || o.Rules > mostRules {
		return usage.Wrongf("%d rules: 1 to %d", o.Rules, mostRules)
	}
	return o.Complete(flood.Usual{
		Usual: bench.Usual{Rounds: 8, QuickRounds: 6, Window: flood.Many.Window,
			QuickWindow: flood.Many.QuickWindow},
		Warmup: flood.Many.Warmup, QuickWarmup: flood.Many.QuickWarmup,
	})
}

// Run measures. It needs root and two cores. An error means that there is no report, except when
// ctx ends: then the report has what was measured until then.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	chosen, wrong := bench.Choose("advice", o.Only, kinds, func(k kind) string { return k.name })
	if err := bench.Ready("advice", o.complete(), wrong); err != nil {
		return nil, err
	}
	l, err := flood.Open(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := l.Listen(flood.Port, true); err != nil {
		return nil, err
	}
	r = &Report{Head: o.Head(l.ReceiverCPU, caveats...), WindowMS: o.Window.Milliseconds(),
		Rules: o.Rules}
	r.WarnOfQuick()
	c := &flood.Comparison{Families: []string{flood.IPv4}, Rounds: o.Rounds,
		Traffic: flood.Floods([]string{"udp"}, flood.IPv4, l.In())}
	for _, k := range chosen {
		a := &Advice{Name: k.name, What: k.what, with: flood.NewRung(k.with(&o)),
			without: flood.NewRung(k.without(&o))}
		c.Rungs = append(c.Rungs, a.with, a.without)
		r.Advices = append(r.Advices, a)
	}
	err = l.Compare(ctx, c)
	r.Rounds = c.Rounds
	for _, a := range r.Advices {
		a.summarise()
	}
	return bench.Ended(ctx, r, &r.Head, err)
}

// laden is a defence with something beside it.
type laden struct {
	contender.Defence
	name, what string
	load       func(ctx context.Context, s contender.Site) (unload func(context.Context) error,
		err error)
	sockets int
	unload  func(context.Context) error
}

func (l *laden) Name() string       { return l.name }
func (l *laden) Describe() string   { return l.what }
func (l *laden) PacketSockets() int { return l.sockets }

func (l *laden) Install(ctx context.Context, s contender.Site) (err error) {
	if err := l.Defence.Install(ctx, s); err != nil {
		return err
	}
	l.unload, err = l.load(ctx, s)
	return err
}

func (l *laden) Remove(ctx context.Context) error {
	var err error
	if l.unload != nil {
		err = l.unload(ctx)
		l.unload = nil
	}
	return errors.Join(err, l.Defence.Remove(ctx))
}

// behindRules returns an application behind n rules of nftables at input that compare an address.
func behindRules(n int) contender.Defence {
	return &laden{Defence: contender.Recvmmsg(),
		name: fmt.Sprintf("recvmmsg behind %d rules", n),
		what: "the application, behind rules of nftables at input that each compare an address",
		load: func(ctx context.Context, s contender.Site) (func(context.Context) error, error) {
			if err := contender.Need("nft", "nftables"); err != nil {
				return nil, err
			}
			var b strings.Builder
			b.WriteString("table inet levee_advice {\n\tchain input {\n" +
				"\t\ttype filter hook input priority 0; policy accept;\n")
			for i := range n { // none of these is a source of the flood
				fmt.Fprintf(&b, "\t\tip saddr 192.%d.%d.%d drop\n", i>>16&255, i>>8&255, i&255)
			}
			b.WriteString("\t}\n}\n")
			_, err := contender.Run(ctx, s.Host, []byte(b.String()), "nft", "-f", "-")
			return func(ctx context.Context) error {
				_, err := contender.Run(ctx, s.Host, nil, "nft", "delete", "table", "inet",
					"levee_advice")
				return err
			}, err
		}}
}

// besideSocket returns an application beside a packet socket whose filter takes no packet, as that
// of a DHCP client.
func besideSocket() contender.Defence {
	return &laden{Defence: contender.Recvmmsg(), name: "recvmmsg beside a packet socket",
		what:    "the application, and a packet socket whose filter takes no packet",
		sockets: 1,
		load: func(_ context.Context, s contender.Site) (func(context.Context) error, error) {
			fd := -1
			err := s.Host.Do(func() (err error) {
				all := uint16(unix.ETH_P_ALL)
				fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
					int(all<<8|all>>8))
				if err != nil {
					return err
				}
				none := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
				return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
					&unix.SockFprog{Len: 1, Filter: &none})
			})
			if err != nil {
				err = fmt.Errorf("opening a packet socket: %w", err)
			}
			return func(context.Context) error {
				if fd < 0 {
					return nil
				}
				return unix.Close(fd)
			}, err
		}}
}
