package gen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/lab"
	"levee/internal/lab/labtest"
	"levee/internal/lang/spec"
	"levee/internal/packet"
	"levee/internal/packet/template"
)

// packets parses a template.
func packets(t testing.TB, src string) []spec.Packet {
	t.Helper()
	p, ds := template.Parse("test", []byte(src))
	if err := ds.Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestTheProgramMakesTheFramesOfTheTemplate compares the two back ends of package template over its
// samples.
func TestTheProgramMakesTheFramesOfTheTemplate(t *testing.T) {
	labtest.NeedRoot(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "packet", "template", "testdata",
		"samples.txt"))
	if err != nil {
		t.Fatal(err)
	}
	sources := strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
	sources = append(sources,
		"ipv4 udp port 1-3 len 100 payload counting\nipv6 tcp syn from 2001:db8::/64 "+
			"permuted\nipv4 icmp len 40 payload hex \"ff\"",
		"ipv4 udp port 1-3 len 1000 payload hex \"0506\"\n"+
			"ipv4 udp port 4 len 900 payload hex \"01\"",
		"ipv4 udp port 1-3 len 28-90\nipv6 udp from 2001:db8::/64 permuted len 60",
		"ipv4 udp from { "+strings.Join(manyAddresses(40), ", ")+" }",          // by comparing
		"ipv4 udp from { "+strings.Join(manyAddresses(200), ", ")+" } every 2", // by a table
	)
	made := 0
	for _, src := range sources {
		for _, returned := range []bool{false, true} {
			if makesFrames(t, src, returned) {
				made++
			}
		}
	}
	t.Logf("%d templates", made)
}

// makesFrames compares both back ends for one template, and tells whether it has a program. Where
// memory comes back, the receiver has written over all that was in it.
func makesFrames(t *testing.T, src string, returned bool) bool {
	t.Helper()
	tmpl, err := template.Compile(packets(t, src), template.Defaults{}, 5)
	if err != nil {
		t.Fatal(err)
	}
	prog, err := tmpl.Program(0, returned)
	if err != nil {
		if !strings.Contains(src, "sctp") {
			t.Errorf("%s: %v", src, err)
		}
		return false
	}
	l := &live{prog: prog, pace: livePace{Ifindex: 1}}
	if err := l.load(nil); err != nil {
		t.Fatalf("%s: %+v", src, err)
	}
	defer l.objs.Close()
	if len(prog.First) < 14 {
		t.Fatalf("%s: %d bytes", src, len(prog.First))
	}
	memory := slices.Clone(prog.First)
	for i, b := range memory {
		if returned && b != 0 {
			memory[i] = ^b
		}
	}
	want := make([]byte, tmpl.Longest())
	for i := range uint64(60) {
		n := i
		if i >= 40 {
			n = i * 0x9e3779b97
		}
		if err := l.objs.State.Set(liveRun{Sent: n, Limit: math.MaxUint64,
			Deadline: math.MaxUint64}); err != nil {
			t.Fatal(err)
		}
		opts := &ebpf.RunOptions{Data: memory, DataOut: make([]byte, len(memory)+256)}
		if verdict, err := l.objs.Gen.Run(opts); err != nil || verdict != 4 { // XDP_REDIRECT
			t.Fatalf("%s: packet %d: verdict %d, %v", src, n, verdict, err)
		}
		if w := tmpl.Frame(want, n); !bytes.Equal(opts.DataOut, w) {
			t.Fatalf("%s, returned %v: packet %d: program and template differ:\n%x\n%x", src,
				returned, n, opts.DataOut, w)
		}
	}
	return true
}

// manyAddresses lists addresses no two of which follow each other.
func manyAddresses(n int) []string {
	var out []string
	for i := range n {
		out = append(out, netip.AddrFrom4([4]byte{10, byte(i * 7), byte(i),
			byte(255 - i)}).String())
	}
	return out
}

func TestEveryPathAccountsForEveryPacket(t *testing.T) {
	l := labtest.New(t)
	for _, c := range []struct {
		path Path
		src  string
		at   int16
	}{
		{Live, "ipv4 udp from 10.0.0.0/8 permuted port 1024-65535 len 46-90 random", 23},
		{Qdisc, "ipv4 udp from 10.0.0.0/8 permuted port 1024-65535 len 46-90 random", 23},
		{AFXDP, "ipv4 udp from 10.0.0.0/8 permuted port 1024-65535 len 46-90 random", 23},
		{Packet, "ipv4 udp from 10.0.0.0/8 permuted port 1024-65535 len 46-90 random", 23},
		{Packet, "ipv6 udp from 2001:db8:9::/48 permuted port 1024-65535 payload random len 99",
			20},
		{Sendmmsg, "ipv4 udp port 1024-65535 len 46-90 random payload counting", 23},
		{Sendmmsg, "ipv6 udp port 1024-65535 payload \"abc\" ttl 9", 20},
	} {
		for _, rate := range []float64{0, 50000} {
			count := uint64(150001)
			if rate > 0 {
				count = 10001
			}
			rx := receive(t, l, c.at, packet.ProtoUDP, 26, 0)
			r, err := Run(t.Context(), into(l,
				Config{Template: packets(t, c.src), Path: c.path, Count: count, Rate: rate,
					Seed: 1}))
			if err != nil {
				t.Fatalf("%s: %v", c.path, err)
			}
			if r.Path != c.path || r.Sent != count || r.Errors != 0 {
				t.Errorf("%s: by %s: sent %d, errors %d, want %d and 0", c.path, r.Path, r.Sent,
					r.Errors, count)
			}
			if got := rx.received(t, r.Sent-r.Refused); got != r.Sent-r.Refused {
				t.Errorf("%s: sent %d, refused %d, received %d", c.path, r.Sent, r.Refused, got)
			}
			if r.Gaps.Count() == 0 || r.Gaps.Quantile(1) > r.Gaps.Max {
				t.Errorf("%s: %d gaps, %s above the longest, %s", c.path, r.Gaps.Count(),
					r.Gaps.Quantile(1), r.Gaps.Max)
			}
			rx.detach()
		}
	}
}

func TestPathsSendTheFramesOfTheTemplate(t *testing.T) {
	l := labtest.New(t)
	src := "ether 0x88b5 len 46-90 random payload counting ether from " +
		"02:00:00:00:01:00-02:00:00:00:01:7f"
	d := l.Host(lab.World).Devices[0]
	tmpl, err := template.Compile(packets(t, src),
		template.Defaults{EtherFrom: d.MAC, EtherTo: d.Peer.MAC}, 9)
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for i := range uint64(aRing) {
		frames = append(frames, tmpl.Frame(make([]byte, tmpl.Longest()), i))
	}
	for _, path := range []Path{Live, AFXDP, Packet, Qdisc} {
		fd := listen(t, l)
		r, err := Run(t.Context(), into(l,
			Config{Template: packets(t, src), Path: path, Count: aRing, Rate: 2000, Seed: 9}))
		if err != nil || r.Refused > 0 {
			t.Fatalf("%s: refused %d, %v", path, r.Refused, err)
		}
		var order []int
		bad := false
		for i, got := range hear(t, fd, aRing) {
			from := i
			if !bytes.Equal(got, frames[i]) {
				bad, from = true, slices.IndexFunc(frames, func(f []byte) bool {
					return bytes.Equal(got, f)
				})
			}
			order = append(order, from)
		}
		if bad {
			t.Fatalf("%s: frames came as %v", path, order)
		}
	}
}

// TestSignalsDoNotChangeTheCount runs the collector all the time: its signals (SIGURG) interrupt
// test runs, which are then repeated from their beginning.
func TestSignalsDoNotChangeTheCount(t *testing.T) {
	l := labtest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		var keep [][]byte
		for ctx.Err() == nil {
			keep = append(keep[max(0, len(keep)-50):], make([]byte, 1<<16))
			runtime.GC()
		}
	}()
	frame, err := packet.Build(packet.Spec{To: server4, ToPort: new(uint16(9))})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Config{
		"flood": {Floods: []Flood{{To: server4, Sources: prefixes("10.0.0.0/8")}}},
		"trace": {Frames: &Frames{Frames: [][]byte{frame}}},
	} {
		rx := receive(t, l, 23, packet.ProtoUDP, 26, 0)
		c.Count = 777_777
		r, err := Run(t.Context(), into(l, c))
		if err != nil || r.Sent != c.Count || r.Errors != 0 {
			t.Errorf("%s: sent %d of %d, errors %d, %v", name, r.Sent, c.Count, r.Errors, err)
		}
		if got := rx.received(t, r.Sent-r.Refused); got != r.Sent-r.Refused {
			t.Errorf("%s: sent %d, refused %d, received %d", name, r.Sent, r.Refused, got)
		}
		rx.detach()
	}
	cancel()
	<-idle
}

func TestEveryPathEndsWithItsContextAndDuration(t *testing.T) {
	l := labtest.New(t)
	for _, path := range Paths {
		for _, rate := range []float64{0, 1} {
			c := into(l, Config{Template: packets(t, "ipv4 udp port 9"), Path: path, Rate: rate})
			c.Duration = 10 * time.Minute
			ctx, cancel := context.WithCancel(t.Context())
			c.Progress = func(Progress) { cancel() }
			r, err := Run(ctx, c)
			cancel()
			c.Progress = nil
			if err != nil || r.Sent == 0 || r.Duration > c.Duration/2 {
				t.Errorf("%s at %g, context: %d in %s, %v", path, rate, r.Sent, r.Duration, err)
			}
			c.Duration = 50 * time.Millisecond
			// The kernel gives an AF_XDP socket's queue back later, and a busy machine may take all
			// of the time before the first packet.
			await.Until(func() bool {
				r, err = Run(t.Context(), c)
				return !errors.Is(err, unix.EBUSY) && (err != nil || r.Sent > 0)
			})
			if err != nil || r.Sent == 0 || r.Duration > time.Minute || rate > 0 &&
				float64(r.Sent) > rate*0.05+1 {
				t.Errorf("%s at %g, duration: %d in %s, %v", path, rate, r.Sent, r.Duration, err)
			}
		}
	}
}

// TestFramesMeetWhatIsAtEgress: those of an application do, and a flood by the other paths of
// frames goes past it.
func TestFramesMeetWhatIsAtEgress(t *testing.T) {
	l := labtest.New(t)
	drop, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}}) // TC_ACT_SHOT
	if err != nil {
		t.Fatal(err)
	}
	defer drop.Close()
	err = l.Host(lab.World).Do(func() error {
		at, err := link.AttachTCX(link.TCXOptions{Program: drop, Attach: ebpf.AttachTCXEgress,
			Interface: l.Host(lab.World).Devices[0].Index})
		if err == nil {
			t.Cleanup(func() { at.Close() })
		}
		return err
	})
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	const n = 20
	for path, all := range map[Path]bool{Qdisc: true, Packet: false, AFXDP: false} {
		r, err := Run(t.Context(), into(l, Config{Template: packets(t, "ipv4 udp port 9"),
			Path: path, Count: n, Rate: 2000}))
		if err != nil || r.Sent != n || (r.Refused == n) != all {
			t.Errorf("%s: %d sent, %d refused, %v", path, r.Sent, r.Refused, err)
		}
	}
}

func TestADeviceThatVanishesEndsEveryPath(t *testing.T) {
	for _, path := range Paths {
		_, err := vanishing(t, Config{Template: packets(t, "ipv4 udp port 9"), Path: path,
			Rate: 20000})
		if err == nil {
			t.Errorf("%s: no error", path)
		} else {
			t.Logf("%s: %v", path, err)
		}
	}
}

// A kernel without type information of its own, or with a verifier that refuses the program, sends
// by a packet socket, and the report says why.
func TestAutoFallsBackWhereTheKernelRefusesLiveFrames(t *testing.T) {
	l := labtest.New(t)
	c := into(l, Config{Template: packets(t, "ipv4 udp len 60"), Count: 3})
	c.loadLive = func(*ebpf.CollectionSpec, *liveObjects) error {
		return fmt.Errorf("no BTF found for kernel version 6.1: %w", ebpf.ErrNotSupported)
	}
	r, err := Run(t.Context(), c)
	if err != nil || r.Path != Packet || r.Sent != 3 || !strings.Contains(r.Why, "no BTF found") {
		t.Errorf("sent %d by %q because %q, %v", r.Sent, r.Path, r.Why, err)
	}
	c.Path = Live // asked for by name, it is not exchanged
	if r, err := Run(t.Context(), c); err == nil || r.Sent != 0 ||
		!strings.Contains(err.Error(), "no BTF found") {
		t.Errorf("sent %d, %v", r.Sent, err)
	}
}

func TestPathsSayWhatTheyCannotSend(t *testing.T) {
	l := labtest.New(t)
	for _, c := range []struct {
		src  string
		path Path
		want string
	}{
		{"ipv4 udp payload random len 60", Live, "the payload is drawn for each packet"},
		{"ipv4 sctp", Live, "CRC"},
		{"ipv4 udp from 10.0.0.0/8", Sendmmsg, `"from" cannot vary`},
		{"ipv4 tcp syn", Sendmmsg, "no UDP"},
		{"ipv4 udp id 7", Sendmmsg, "id"},
		{"ipv4 udp from 192.0.2.77", Sendmmsg, "must be an address of this host"},
		{"ipv4 udp\nipv4 udp", Sendmmsg, "several packets"},
		{"ipv4 udp len 1600", Auto, "the device takes IP packets of 1500"},
	} {
		r, err := Run(t.Context(), into(l,
			Config{Template: packets(t, c.src), Path: c.path, Count: 1}))
		if err == nil || r.Sent != 0 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s by %s: sent %d, %v", c.src, c.path, r.Sent, err)
		}
	}
	r, err := Run(t.Context(), into(l,
		Config{Template: packets(t, "ipv4 udp payload random len 60"), Count: 3}))
	if err != nil || r.Path != Packet || r.Why == "" {
		t.Errorf("by %s because %q, %v", r.Path, r.Why, err)
	}
	c := into(l, Config{Replay: &Replay{Open: Capture(os.DevNull)}, Path: AFXDP})
	if _, err := Run(t.Context(), c); err == nil ||
		!strings.Contains(err.Error(), "packet socket") {
		t.Error(err)
	}
}
