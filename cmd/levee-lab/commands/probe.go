package commands

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"levee/internal/cli"
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
	"levee/internal/packet"
	"levee/internal/probe"
)

const probeLong = `Ask your own network, from outside, which ports answer, and whether its levee decides what its
policy says. FILE says which prefixes are whose, and how to run a command on the machine whose levee
is in front of each:

  198.51.100.0/24 of "Example Ltd" by "ssh root@edge.example.net" on eth0
  exclude 198.51.100.13

There "levee witness" is started, which tells what the policy decided about packets from here. An
address is probed only when the witness has seen a challenge that was sent to it; nothing answers
the challenge on the network. What is excluded is sent nothing at all.

Without --tcp and --udp a packet is sent for each kind that the policy tells apart and that may come
from here. What the policy predicts, what was counted there and what was observed here are held
beside each other; where they differ, the report says what that means: NAT, another firewall, a
filter on the way, a stale policy. With --policy it is that file that predicts, else the policy in
force. Exit status 1: something differs, or nothing was confirmed.

Ports are open, closed, filtered or unknown, which says why. Probes are without memory and in an
order without pattern; each has up to --tries; loss is measured by them and counts in what silence
means. Ports on which nothing should listen show firewalls that answer for all, and one connection
to each port that accepts shows proxies that answer for closed ports. It ends for an
address or a prefix when that says that it is administratively prohibited.`

const probeExample = `  sudo levee probe mine.probe
  sudo levee probe mine.probe --policy edge.levee --tcp 22,80,443 --udp 53
  sudo levee probe mine.probe --tcp 1-1024 --classes --banners --json`

type probeFlags struct {
	tcp, udp, seenAs             []string
	policy, wait                 string
	classes, banners, halfOpen   bool
	despite, all, dryRun, asJSON bool
	rate, tries                  int
}

// mostProbesASecond bounds --rate: faster is a flood.
const mostProbesASecond = 10_000

func newProbe(e *env) *cobra.Command {
	var f probeFlags
	cmd := &cobra.Command{
		Use:     "probe FILE",
		Short:   "Ask your own network from outside whether it does what its policy says",
		Long:    probeLong,
		Example: probeExample,
		Args:    cli.WantArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := e.probeOptions(cmd, args[0], &f)
			if err != nil {
				return err
			}
			if f.dryRun {
				e.printPlan(o)
				return nil
			}
			return e.probe(o, &f)
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.tcp, "tcp", nil, "TCP `PORTS` to ask for: 22,80,8000-8099")
	fl.StringSliceVar(&f.udp, "udp", nil, "UDP `PORTS` to ask for")
	fl.BoolVar(&f.classes, "classes", false,
		"a packet for each kind of the policy, also with --tcp or --udp")
	fl.StringVar(&f.policy, "policy", "", "the policy that should be in force")
	fl.BoolVar(&f.banners, "banners", false, "show what open ports say")
	fl.BoolVar(&f.halfOpen, "half-open", false,
		"leave it at SYNs: connect to no port that accepts one, to see whether that lasts")
	fl.IntVar(&f.rate, "rate", 100, "packets a second")
	fl.IntVar(&f.tries, "tries", 3, "packets for one question, 1 to 4")
	fl.StringVar(&f.wait, "wait", "1s", "the `TIME` that answers to the last of a try may take")
	fl.BoolVar(&f.despite, "despite-prohibited", false,
		"go on where an answer says that it is administratively prohibited")
	fl.StringSliceVar(&f.seenAs, "seen-as", nil,
		"the `ADDRESS` as which this machine arrives there, where NAT is between")
	fl.BoolVar(&f.all, "all", false, "show each port and kind")
	fl.BoolVar(&f.dryRun, "dry-run", false, "only tell what would be asked, and how long it takes")
	cli.JsonFlag(cmd, &f.asJSON)
	return cmd
}

func (e *env) probeOptions(cmd *cobra.Command, file string, f *probeFlags) (*probe.Options, error) {
	o := &probe.Options{Classes: f.classes || len(f.tcp)+len(f.udp) == 0, Rate: f.rate,
		Tries: f.tries, Wait: time.Second, Despite: f.despite, Banners: f.banners,
		HalfOpen: f.halfOpen}
	for _, of := range []struct {
		flag  string
		proto uint8
		words []string
	}{{"tcp", packet.ProtoTCP, f.tcp}, {"udp", packet.ProtoUDP, f.udp}} {
		s, err := probe.ParseServices(of.proto, of.words)
		if err != nil {
			return nil, cli.Usagef(cmd, "--%s: %v", of.flag, err)
		}
		o.Services = append(o.Services, s...)
	}
	switch {
	case f.banners && f.halfOpen:
		return nil, cli.Usagef(cmd, "--banners and --half-open exclude each other")
	case f.rate < 1 || f.rate > mostProbesASecond:
		return nil, cli.Usagef(cmd, "--rate takes 1 to %d packets a second", mostProbesASecond)
	case f.tries < 1 || f.tries > 4:
		return nil, cli.Usagef(cmd, "--tries takes 1 to 4")
	}
	if err := cli.DurationFlag(cmd, "wait", f.wait, &o.Wait); err != nil {
		return nil, err
	}
	for _, w := range f.seenAs {
		a, err := netip.ParseAddr(w)
		if err != nil || a.Zone() != "" || a.Is4In6() {
			return nil, cli.Usagef(cmd, "--seen-as: %q is no address", w)
		}
		o.SeenAs = append(o.SeenAs, a)
	}
	owned, ds, err := probe.ReadOwned(file)
	if err != nil {
		return nil, cli.OpenError(err)
	}
	e.PrintDiagnostics(ds)
	if owned == nil {
		return nil, cli.ErrNo
	}
	o.Owned = owned
	return o, e.expected(o, f.policy)
}

// expected reads the policy that should be in force.
func (e *env) expected(o *probe.Options, file string) error {
	if file == "" {
		return nil
	}
	src, err := e.ReadSource(file)
	if err != nil {
		return err
	}
	open := setfile.In(src.Dir())
	p, ds := resolve.Parse(src.Title(), src.Text, open)
	if p == nil {
		e.PrintDiagnostics(ds)
		return cli.ErrNo
	}
	o.Policy = &probe.Expected{Name: src.Title(), Text: src.Text, Open: open, Policy: p}
	return nil
}

// printPlan tells what would be asked.
func (e *env) printPlan(o *probe.Options) {
	addrs := o.Owned.Addresses()
	n := o.Questions(len(addrs))
	tries := cli.Plural(o.Tries, "packet")
	fmt.Fprintf(e.Stdout, "%s would be challenged, each by up to %s\n",
		cli.Plural(len(addrs), "address"), tries)
	if n > 0 {
		fmt.Fprintf(e.Stdout, "and, as far as a witness sees that, %s asked, each by up to %s\n",
			cli.Plural(n, "question"), tries)
	}
	fmt.Fprintf(e.Stdout, "that takes up to %s at %s a second, and the waiting between tries\n",
		cli.FormatLease(time.Duration(float64((n+len(addrs))*o.Tries)/float64(o.Rate)*
			float64(time.Second))), cli.Plural(o.Rate, "packet"))
	if o.Classes {
		fmt.Fprintln(e.Stdout, "besides, a packet for each kind that the policy tells apart, of "+
			"which a witness tells: these are not counted here")
	}
}

func (e *env) probe(o *probe.Options, f *probeFlags) error {
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // it does not fail
	ctx, stop := e.Signals()
	defer stop()
	o.Say = e.Sayf
	r, err := probe.Run(ctx, *o, probe.NewKey(binary.NativeEndian.Uint64(secret[:]),
		binary.NativeEndian.Uint64(secret[8:])))
	if r == nil {
		if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EPERM) {
			return cli.Refusedf("%v: sending whole packets needs root, or CAP_NET_RAW", err)
		}
		return err
	}
	if f.asJSON {
		err = errors.Join(err, e.PrintJSON(r))
	} else {
		r.Print(e.Stdout, f.all)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted: what was found until then is above")
	case err != nil:
		return err
	case !r.Agrees():
		return cli.ErrNo
	}
	return nil
}
