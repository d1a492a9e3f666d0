package generators

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"levee/internal/bench"
	"levee/internal/lab"
	"levee/internal/lab/gen"
	"levee/internal/packet"
	"levee/internal/packet/template"
)

// generator is one of those that are compared.
type generator struct {
	name string
	what string
	// run sends at a rate, 0 for as fast as it goes, until ctx ends, which is no error.
	run    func(ctx context.Context, c *comparison, rate float64) error
	path   gen.Path // of levee
	text   string   // its template
	burst  int      // of a sweep; 0 in no sweep
	copies int
	// needs is the program that must be installed, "" for levee's own.
	needs string
}

// What all send: the shortest UDP packet that fills the least Ethernet frame, from one address.
// masscan sends bare SYNs, and none of the peers but masscan varies what costs it something.
const packetText = "ipv4 udp len 46"

var generators = []generator{
	levee("levee live", gen.Live, packetText+
		" from 16.0.0.0/4 permuted from port 1024-65535 port 1024-65535",
		"an XDP program writes each packet into a live frame; sources permuted, ports vary"),
	levee("levee afxdp", gen.AFXDP, packetText+
		" from 16.0.0.0/4 permuted from port 1024-65535 port 1024-65535",
		"AF_XDP socket, copy mode on veth; sources permuted, ports vary"),
	levee("levee packet", gen.Packet,
		packetText+" from 16.0.0.0/4 permuted from port 1024-65535 port 1024-65535",
		"packet socket past the qdisc, sendmmsg; sources permuted, ports vary"),
	levee("levee qdisc", gen.Qdisc,
		packetText+" from 16.0.0.0/4 permuted from port 1024-65535 port 1024-65535",
		"packet socket through the qdisc, sendmmsg; sources permuted, ports vary"),
	levee("levee sendmmsg", gen.Sendmmsg, packetText+" port 1024-65535",
		"UDP socket, sendmmsg: the kernel makes the headers; ports vary"),
	{name: "trafgen", needs: "trafgen", run: runTrafgen,
		what: "PACKET_TX_RING past the qdisc, one process; one packet again and again"},
	{name: "masscan", needs: "masscan", run: runMasscan,
		what: "libpcap's packet socket; bare SYNs, destinations permuted"},
	{name: "tcpreplay", needs: "tcpreplay", run: runTcpreplay,
		what: "packet socket; a capture of 1,000 packets preloaded and looped"},
}

func nameOf(g generator) string { return g.name }

// Names returns the generators, as they can be chosen.
func Names() []string { return bench.Names(generators, nameOf) }

func levee(name string, path gen.Path, text, what string) generator {
	return leveeWith(generator{name: name, what: what, path: path}, text)
}

// swept returns those of levee's paths with each burst, or with each number of copies, ascending.
func (o *Options) swept(of []generator) (out []generator) {
	bursts := slices.Compact(slices.Sorted(slices.Values(o.Bursts)))
	copies := slices.Compact(slices.Sorted(slices.Values(o.Copies)))
	for _, g := range of {
		name := g.name
		if g.path == gen.Live {
			for _, n := range bursts {
				g.name, g.burst = fmt.Sprintf("%s, bursts of %d", name, n), n
				out = append(out, leveeWith(g, g.text))
			}
		} else if g.path != "" {
			for _, n := range copies {
				g.name, g.copies = fmt.Sprintf("%s, each frame %d times", name, n), n
				out = append(out, leveeWith(g, g.text))
			}
		}
	}
	return out
}

// leveeWith is levee as a generator says, with a template.
func leveeWith(g generator, text string) generator {
	g.text = text
	g.run = func(ctx context.Context, c *comparison, rate float64) error {
		packets, ds := template.Parse(g.name, []byte(text))
		if err := ds.Err(); err != nil {
			return err
		}
		d := c.lab.Host(lab.World)
		config := gen.Config{
			Namespace: d.Namespace, Device: d.Devices[0].Name, CPU: c.cpu, Template: packets,
			Path: g.path, Rate: rate, Duration: time.Hour, Seed: c.Seed, Dropped: true,
			Copies: g.copies,
		}
		if rate > 0 {
			config.Burst = g.burst
		}
		r, err := gen.Run(ctx, config)
		c.told = &r
		return err
	}
	return g
}

// process runs a peer on the generator's core until ctx ends, and interrupts it then as a user
// would.
func (c *comparison) process(ctx context.Context, name string, args ...string) error {
	program := name
	if path, err := exec.LookPath("taskset"); err == nil {
		args = append([]string{"-c", strconv.Itoa(c.cpu), name}, args...)
		program = path
	}
	// Its own context: the end of ctx is a request to stop, and what does not listen is killed.
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	cmd := c.lab.Host(lab.World).Command(run, program, args...)
	cmd.Dir = c.dir
	runtime.LockOSThread() // it is killed when the thread ends that has started it, not the process
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := os.CreateTemp(c.dir, "output")
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		text, _ := os.ReadFile(out.Name())
		return fmt.Errorf("%s ended by itself (%v): %s", name, err, lastLines(string(text)))
	case <-ctx.Done():
	}
	// It may have forked: the whole group, which is ours.
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		_ = syscall.Kill(-cmd.Process.Pid, sig)
		select {
		case <-done:
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			return nil
		case <-time.After(500 * time.Millisecond):
		}
	}
	return <-done
}

// lastLines returns the end of what a program said, in one line.
func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

func runTrafgen(ctx context.Context, c *comparison, rate float64) error {
	frame, err := c.frame(0)
	if err != nil {
		return err
	}
	var bytes []string
	for _, b := range frame {
		bytes = append(bytes, fmt.Sprintf("0x%02x", b))
	}
	path := filepath.Join(c.dir, "trafgen.cfg")
	if err := os.WriteFile(path, []byte("{ "+strings.Join(bytes, ", ")+" }\n"), 0o600); err != nil {
		return err
	}
	args := []string{"-i", path, "-o", c.device, "-P", "1", "-C", "-Q", "--no-sock-mem"}
	if rate > 0 {
		args = append(args, "-b", strconv.FormatFloat(math.Round(rate), 'f', 0, 64)+"pps")
	}
	return c.process(ctx, "trafgen", args...)
}

func runMasscan(ctx context.Context, c *comparison, rate float64) error {
	d := c.lab.Host(lab.World).Devices[0]
	if rate == 0 {
		rate = 1e8 // it has no other word for it
	}
	return c.process(ctx, "masscan", "10.0.0.0/8", "-p1024-65535", "--adapter", c.device,
		"--adapter-ip", d.IPv4.Addr().String(),
		"--adapter-mac", net.HardwareAddr(d.MAC[:]).String(), "--router-mac",
		net.HardwareAddr(d.Peer.MAC[:]).String(), "--rate", strconv.FormatFloat(rate, 'f', 0, 64),
		"--wait", "0")
}

func runTcpreplay(ctx context.Context, c *comparison, rate float64) error {
	path := filepath.Join(c.dir, "capture.pcap")
	if err := c.capture(path, 1000); err != nil {
		return err
	}
	args := []string{"-q", "-K", "--loop=0", "-i", c.device}
	if rate > 0 {
		args = append(args, "--pps="+strconv.FormatFloat(rate, 'f', 0, 64))
	} else {
		args = append(args, "--topspeed")
	}
	return c.process(ctx, "tcpreplay", append(args, path)...)
}

// compiled returns the packet that all send, into this lab.
func (c *comparison) compiled() (*template.Template, error) {
	packets, ds := template.Parse("packet", []byte(packetText+" port 1024-65535"))
	if err := ds.Err(); err != nil {
		return nil, err
	}
	d := c.lab.Host(lab.World).Devices[0]
	return template.Compile(packets, template.Defaults{EtherFrom: d.MAC, EtherTo: d.Peer.MAC,
		To4: d.Peer.IPv4}, c.Seed)
}

func (c *comparison) frame(n uint64) ([]byte, error) {
	t, err := c.compiled()
	if err != nil {
		return nil, err
	}
	return t.Frame(make([]byte, t.Longest()), n), nil
}

// capture writes a capture of n packets.
func (c *comparison) capture(path string, n int) (err error) {
	t, err := c.compiled()
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w, err := packet.NewWriter(f)
	if err != nil {
		return err
	}
	buf := make([]byte, t.Longest())
	for i := range n {
		frame := t.Frame(buf, uint64(i))
		if err := w.Write(frame, len(frame), time.Unix(1_700_000_000, int64(i)*1000)); err != nil {
			return err
		}
	}
	return nil
}
