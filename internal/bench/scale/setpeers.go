package scale

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"

	"github.com/google/nftables"

	"levee/internal/bench"
	"levee/internal/bench/workload"
	"levee/internal/lab/contender"
	"levee/internal/packet"
)

// mostXDPFilter is how many entries are given to a tool that takes each with a process of its own.
const mostXDPFilter = 1000

// floodSets measures packets a second of all tools that can hold the set.
func (o *SetOptions) floodSets(ctx context.Context, c *SetCase, w *work) error {
	trace, err := hitTrace(w, o.Seed)
	if err != nil {
		return err
	}
	c.Lab, err = o.flood(ctx, w.family()+" "+w.entries, w.String(), len(w.prefixes), setTools(w), trace)
	return err
}

// setTools are the tools that can hold the set.
func setTools(w *work) []*tool {
	outer, fresh := workload.Outermost(w.prefixes), w.fresh()
	tools := []*tool{emptyXDP(), leveeStatic(w.prefixes), leveeDynamic(w.prefixes, fresh)}
	if w.hosts {
		tools = append(tools, xdpFilter(w.prefixes, w.width), nftSet(w, nftHash, w.prefixes, fresh))
	}
	return append(tools, nftSet(w, nftInterval, outer, fresh), nftSet(w, nftConcat, outer, fresh), ipset(w, fresh))
}

// fresh is the address that a single change adds, the same for all tools: one that is not in the set already, nor
// within a prefix of it, which nftables would refuse.
func (w *work) fresh() netip.Addr {
	if found, err := workload.Addresses(w.prefixes, 1, workload.Misses, workload.Uniform, 1); err == nil {
		return found[0]
	}
	// No prefixes, or they hold all addresses.
	if w.width == 128 {
		return netip.MustParseAddr("2001:db8:ffff::1")
	}
	return netip.MustParseAddr("198.18.255.1")
}

// traceFrames is how many different packets a flood has.
const traceFrames = 1 << 16

// hitTrace is UDP from addresses in the set.
func hitTrace(w *work, seed uint64) (bench.Trace, error) {
	addrs, err := workload.Addresses(w.prefixes, traceFrames, workload.Hits, workload.Uniform, seed)
	if err != nil {
		return bench.Trace{}, err
	}
	to := netip.MustParseAddr("198.18.0.1")
	if w.width == 128 {
		to = netip.MustParseAddr("2001:db8::1")
	}
	t := bench.Trace{Name: "hits", What: fmt.Sprintf("UDP to port 9 from %d addresses of the set", traceFrames)}
	sport, dport := uint16(40000), uint16(9)
	for _, a := range addrs {
		f, err := packet.Build(packet.Spec{From: a, To: to, FromPort: &sport, ToPort: &dport})
		if err != nil {
			return t, fmt.Errorf("making packets: %w", err)
		}
		t.Frames = append(t.Frames, f)
	}
	return t, nil
}

// emptyXDP drops all packets by the empty program of package contender: the fastest that can be.
func emptyXDP() *tool {
	drop := contender.XDPDrop()
	return &tool{
		name: drop.Name(), what: drop.Describe(), hook: contender.XDP,
		install: drop.Install,
		dropped: func(ctx context.Context, _ contender.Site) (uint64, error) { return drop.Dropped(ctx) },
		remove:  func(ctx context.Context, _ contender.Site) error { return drop.Remove(ctx) },
	}
}

// nftKind is how nftables holds a set.
type nftKind struct{ name, what, key, flags, match string }

var (
	nftHash     = nftKind{"nft hash set", "nftables at netdev ingress, a set of single addresses", "%s", "", "%s saddr @s"}
	nftInterval = nftKind{"nft interval set", "nftables at netdev ingress, a set of intervals", "%s", "flags interval; ", "%s saddr @s"}
	nftConcat   = nftKind{"nft concatenated set", "nftables at netdev ingress, a set of intervals and ports (pipapo)", "%s . inet_service",
		"flags interval; ", "%s saddr . udp dport @s"}
)

// nftTable is the name of a tool's table. Each has its own: a table that took long to load stays, dormant, while the
// others are measured.
func nftTable(tool string) string { return "levee_" + strings.ReplaceAll(tool, " ", "_") }

func nftSet(w *work, k nftKind, prefixes []netip.Prefix, fresh netip.Addr) *tool {
	typ, proto := "ipv4_addr", "ip"
	if w.width == 128 {
		typ, proto = "ipv6_addr", "ip6"
	}
	element := func(p netip.Prefix) string {
		s := p.String()
		if p.IsSingleIP() {
			s = p.Addr().String()
		}
		if k.name == nftConcat.name {
			s += " . 0-65535"
		}
		return s
	}
	table := nftTable(k.name)
	input := func(device string) []byte {
		var b bytes.Buffer
		fmt.Fprintf(&b, "table netdev %s {\n set s { type %s; %selements = {", table, fmt.Sprintf(k.key, typ), k.flags)
		for i, p := range prefixes {
			if i > 0 {
				b.WriteString(",\n")
			}
			b.WriteString(element(p))
		}
		fmt.Fprintf(&b, "} }\n counter c { }\n chain ingress { type filter hook ingress device \"%s\" priority 0; policy accept;\n", device)
		fmt.Fprintf(&b, "  %s counter name c drop\n }\n}\n", fmt.Sprintf(k.match, proto))
		return b.Bytes()
	}
	one := element(netip.PrefixFrom(fresh, fresh.BitLen()))
	return nftTool(netdevIngress, k.name, k.what, input, "add element netdev "+table+" s { "+one+" }")
}

// nftPlace is where a table of nftables is.
type nftPlace struct {
	family string // as the command nft names it
	code   nftables.TableFamily
	hook   contender.Hook
}

var (
	netdevIngress = nftPlace{"netdev", nftables.TableFamilyNetdev, contender.NetdevIn}
	ipPrerouting  = nftPlace{"ip", nftables.TableFamilyIPv4, contender.LocalIn}
)

// nftTool is a table, nftTable(name), with one named counter c of what is dropped. A dormant table keeps its rules and sets
// and sees no packet.
func nftTool(at nftPlace, name, what string, input func(device string) []byte, change string) *tool {
	table := nftTable(name)
	nft := func(command string) func(context.Context, contender.Site) error {
		return func(ctx context.Context, s contender.Site) error {
			_, err := run(ctx, s.Host, []byte(command+"\n"), "nft", "-f", "-")
			return err
		}
	}
	var text []byte
	return &tool{
		name: name, what: what, hook: at.hook, needs: [][2]string{{"nft", "nftables"}},
		prepare: func(s contender.Site) { text = input(s.Device) },
		install: func(ctx context.Context, s contender.Site) error {
			_, err := run(ctx, s.Host, text, "nft", "-f", "-")
			return err
		},
		off: nft("add table " + at.family + " " + table + " { flags dormant; }"),
		on:  nft("add table " + at.family + " " + table),
		change: func(ctx context.Context, s contender.Site) error {
			_, err := run(ctx, s.Host, nil, "nft", change)
			return err
		},
		dropped: func(_ context.Context, s contender.Site) (uint64, error) { return nftCounter(s, at.code, table) },
		// Declared first, so that deleting what is not there is no error.
		remove: nft("table " + at.family + " " + table + " {}\ndelete table " + at.family + " " + table),
	}
}

// nftCounter asks the kernel for the packets of a table's counter. The command nft would list all sets and rules first,
// which for a million entries takes longer than everything else here.
func nftCounter(s contender.Site, family nftables.TableFamily, name string) (packets uint64, err error) {
	err = s.Host.Do(func() error {
		conn, err := nftables.New()
		if err != nil {
			return fmt.Errorf("ask nftables for its counter: %w", err)
		}
		table := &nftables.Table{Name: name, Family: family}
		got, err := conn.GetObject(&nftables.CounterObj{Table: table, Name: "c"})
		if err != nil {
			return fmt.Errorf("ask nftables for its counter: %w", err)
		}
		c, ok := got.(*nftables.CounterObj)
		if !ok {
			return fmt.Errorf("ask nftables for its counter: it answers with a %T", got)
		}
		packets = c.Packets
		return nil
	})
	return packets, err
}

// ipset is a set of ipset that a rule of iptables asks at its first hook.
func ipset(w *work, fresh netip.Addr) *tool {
	typ, family, iptables := "hash:net", "inet", "iptables"
	if w.hosts {
		typ = "hash:ip"
	}
	if w.width == 128 {
		family, iptables = "inet6", "ip6tables"
	}
	input := func() []byte {
		var b bytes.Buffer
		fmt.Fprintf(&b, "create levee_scale %s family %s hashsize %d maxelem %d\n", typ, family, max(1024, len(w.prefixes)/4), len(w.prefixes)+1)
		for _, p := range w.prefixes {
			b.WriteString("add levee_scale ")
			if w.hosts {
				b.WriteString(p.Addr().String())
			} else {
				b.WriteString(p.String())
			}
			b.WriteByte('\n')
		}
		return b.Bytes()
	}
	var text []byte
	ask := func(ctx context.Context, s contender.Site) error {
		_, err := run(ctx, s.Host, nil, iptables, "-w", "-t", "raw", "-A", "PREROUTING", "-m", "set", "--match-set", "levee_scale", "src", "-j", "DROP")
		return err
	}
	return &tool{
		name: "ipset", what: "ipset (" + typ + ") with " + iptables + ", table raw, chain PREROUTING: its first hook", hook: contender.LocalIn,
		needs:   [][2]string{{"ipset", "ipset"}, {iptables, "iptables"}},
		prepare: func(contender.Site) { text = input() },
		install: func(ctx context.Context, s contender.Site) error {
			if _, err := run(ctx, s.Host, text, "ipset", "restore"); err != nil {
				return err
			}
			return ask(ctx, s)
		},
		off: func(ctx context.Context, s contender.Site) error { return flushFirst(ctx, s, iptables) },
		on:  ask,
		change: func(ctx context.Context, s contender.Site) error {
			_, err := run(ctx, s.Host, nil, "ipset", "add", "levee_scale", fresh.String())
			return err
		},
		dropped: func(ctx context.Context, s contender.Site) (uint64, error) { return iptablesFirst(ctx, s, iptables) },
		remove: func(ctx context.Context, s contender.Site) error {
			err := flushFirst(ctx, s, iptables)
			_, err2 := run(ctx, s.Host, nil, "ipset", "destroy")
			return errors.Join(err, err2)
		},
	}
}

// flushFirst empties the chain of the first hook of iptables, or ip6tables.
func flushFirst(ctx context.Context, s contender.Site, program string) error {
	_, err := run(ctx, s.Host, nil, program, "-w", "-t", "raw", "-F", "PREROUTING")
	return err
}

// iptablesFirst is the counter of the first rule of raw PREROUTING less that of the second, if there
// is one: what a chain called by the first has decided.
func iptablesFirst(ctx context.Context, s contender.Site, program string) (uint64, error) {
	out, err := run(ctx, s.Host, nil, program, "-w", "-t", "raw", "-nvxL", "PREROUTING")
	if err != nil {
		return 0, err
	}
	return firstLessSecond(string(out))
}

func firstLessSecond(listing string) (uint64, error) {
	var counts []uint64
	for i, line := range strings.Split(strings.TrimSpace(listing), "\n") {
		if f := strings.Fields(line); i >= 2 && len(f) > 2 { // below two lines of headings
			n, err := strconv.ParseUint(f[0], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("reading what iptables lists: %w", err)
			}
			counts = append(counts, n)
		}
	}
	switch {
	case len(counts) == 0:
		return 0, errors.New("iptables lists no rule: somebody removed them")
	case len(counts) > 1:
		return counts[0] - counts[1], nil
	}
	return counts[0], nil
}

// xdpFilterScript keeps what xdp-filter pins in a bpffs of its own, since its tables are one for the
// whole machine; it is in force until the end of the shell's input, which begins with the addresses, or until one is refused.
const xdpFilterScript = `set -e
mount -t bpf bpf /sys/fs/bpf
xdp-filter load %[1]s --mode native --policy allow --features %[2]s
trap 'xdp-filter unload %[1]s' EXIT
while read -r address && [ "$address" != end ]; do xdp-filter ip -m src "$address"; done
echo ready
cat >/dev/null`

// xdpFilter is xdp-filter with a deny list of addresses, each added by a process: it has no other way.
func xdpFilter(prefixes []netip.Prefix, width int) *tool {
	features := "ipv4"
	if width == 128 {
		features = "ipv6"
	}
	var shell *exec.Cmd
	var stdin io.WriteCloser
	var stderr strings.Builder
	end := func() error {
		if shell == nil {
			return nil
		}
		stdin.Close()
		err := shell.Wait()
		shell = nil
		if err != nil {
			said, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
			return fmt.Errorf("xdp-filter: %w: %s", err, said)
		}
		return nil
	}
	return &tool{
		name: "xdp-filter", what: "xdp-filter of xdp-tools, a deny list of single addresses, in the driver", hook: contender.XDP,
		needs: [][2]string{{"xdp-filter", "xdp-tools"}}, most: mostXDPFilter,
		mostWhy: fmt.Sprintf("not tried beyond %d entries: each is a process of its own, and its tables end at 10,000", mostXDPFilter),
		install: func(ctx context.Context, s contender.Site) error {
			stderr.Reset()
			// Not ended with ctx: remove lets it unload.
			sh := s.Host.Command(context.WithoutCancel(ctx), "unshare", "--mount", "sh", "-c", fmt.Sprintf(xdpFilterScript, s.Device, features))
			sh.Stderr = &stderr
			in, err := sh.StdinPipe()
			if err != nil {
				return err
			}
			out, err := sh.StdoutPipe()
			if err != nil {
				return err
			}
			if err := sh.Start(); err != nil {
				return fmt.Errorf("starting xdp-filter: %w", err)
			}
			shell, stdin = sh, in
			for _, p := range prefixes {
				fmt.Fprintln(in, p.Addr())
			}
			fmt.Fprintln(in, "end")
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if lines.Text() == "ready" {
					return nil
				}
			}
			if err := end(); err != nil {
				return err
			}
			return errors.New("xdp-filter ended by itself")
		},
		dropped: driverDrops,
		remove:  func(context.Context, contender.Site) error { return end() },
	}
}
