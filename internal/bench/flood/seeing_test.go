package flood

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/bench"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/oracle"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/gen"
	"levee/internal/lab/labtest"
	"levee/internal/lang/dnsname"
	"levee/internal/packet"
	"levee/internal/packet/dns"
)

// benchLab is a lab to measure in, with windows of half a second.
func benchLab(b *testing.B) *Lab {
	b.Helper()
	labtest.NeedRoot(b)
	o := &Options{Options: bench.Options{Window: 500 * time.Millisecond, Rounds: bench.MinRounds},
		Warmup: 200 * time.Millisecond}
	if err := o.Complete(Few); err != nil {
		b.Fatal(err)
	}
	l, err := Open(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Error(err)
		}
	})
	return l
}

// seen is a watch of all drops while a window is measured.
type seen struct {
	stop  context.CancelFunc
	begun chan struct{}
	done  chan error
	total tap.Decided
	// The thread that reads and prints has run so long, of
	ran, lasted time.Duration
}

// watchDrops begins a watch as `levee watch --verdict drop` does, at a rate. What it prints goes
// nowhere. Its thread may run wherever the kernel puts it.
func (l *Lab) watchDrops(ctx context.Context, rate int) *seen {
	ctx, stop := context.WithCancel(ctx)
	s := &seen{stop: stop, begun: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		s.done <- l.Server.Do(func() (err error) {
			begun, before := time.Now(), threadTime()
			s.total, err = tap.WatchDecisions(ctx, tap.Deciding{Dev: l.device,
				Verdict: "drop", Rate: rate, Snap: 128,
				Begun: func() { close(s.begun) }}, func(c tap.Captured) bool {
				fmt.Fprintf(io.Discard, "%v %s %d bytes: %s\n", c.At, c.Verdict, c.Bytes,
					oracle.Headers(c.Packet, c.Bytes, c.Link))
				return true
			}, func(tap.Losses) {})
			s.ran, s.lasted = threadTime()-before, time.Since(begun)
			return err
		})
	}()
	return s
}

// threadTime returns the time that the calling thread has run.
func threadTime() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &r) // never fails
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkWatch measures the cost of `levee watch --verdict drop` beside a flood that one rule
// drops: a million packets a second, and as many as the generator sends. Windows with and without
// it take turns on the same cores. It fails unless each packet that was dropped was shown or
// counted as lost.
func BenchmarkWatch(b *testing.B) {
	l := benchLab(b)
	d := OneRule()
	if err := d.Install(b.Context(), contender.Site{Host: l.Server, Device: l.device}); err != nil {
		b.Fatal(err)
	}
	defer remove(b, d)
	for _, offered := range []float64{1e6, 0} {
		for _, rate := range []int{1000, 10_000} {
			name := "most"
			if offered > 0 {
				name = Rate(offered)
			}
			b.Run(fmt.Sprintf("offered=%s/rate=%d", name, rate), func(b *testing.B) {
				udp := Floods([]string{"udp"}, IPv4, l.In())[0]
				udp.Rate = offered
				l.benchWatch(b, d, &udp, rate)
			})
		}
	}
}

func (l *Lab) benchWatch(b *testing.B, d contender.Defence, t *Traffic, rate int) {
	var pps, ns [2][]float64 // without a watch, with one
	var reader []float64
	var shown, lost uint64
	for i := range 4 * bench.MinRounds {
		k := (i + 1) / 2 % 2 // 0 1 1 0
		w, s := l.watched(b, d, t, rate, k == 1)
		if len(w.Invalid) > 0 {
			b.Logf("left out: %s", strings.Join(w.Invalid, "; "))
			continue
		}
		if s != nil {
			shown += s.total.Shown
			lost += s.total.Bound + s.total.Ring + s.total.Reader
			reader = append(reader, float64(s.ran)/float64(s.lasted))
		}
		pps[k], ns[k] = append(pps[k], w.PPS), append(ns[k], w.NsPerPacket)
	}
	if min(len(pps[0]), len(pps[1])) < bench.MinRounds {
		b.Skip("too few windows count: the machine is too busy")
	}
	b.ReportMetric(median(pps[0])/1e6, "Mpps-without")
	b.ReportMetric(median(pps[1])/1e6, "Mpps-with")
	b.ReportMetric(100*(1-median(pps[1])/median(pps[0])), "%fewer")
	b.ReportMetric(slices.Min(ns[0]), "least-ns-without")
	b.ReportMetric(slices.Min(ns[1]), "least-ns-with")
	b.ReportMetric(median(ns[0]), "ns-without")
	b.ReportMetric(median(ns[1]), "ns-with")
	b.ReportMetric(100*median(reader), "%core-reader")
	b.ReportMetric(float64(shown), "shown")
	b.ReportMetric(float64(lost), "lost")
	b.ReportMetric(0, "ns/op")
}

func remove(b *testing.B, d contender.Defence) {
	if err := d.Remove(context.WithoutCancel(b.Context())); err != nil {
		b.Error(err)
	}
}

// watched takes a window, with a watch beside it or without.
func (l *Lab) watched(b *testing.B, d contender.Defence, t *Traffic, rate int, on bool) (w *Window,
	s *seen) {
	b.Helper()
	if on {
		s = l.watchDrops(b.Context(), rate)
		select {
		case <-s.begun:
		case err := <-s.done:
			b.Fatal(err)
		}
	}
	before, err := d.Dropped(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Pinned(func() (err error) {
		w, err = l.Window(b.Context(), d, t)
		return err
	}); err != nil {
		b.Fatal(err)
	}
	after, err := d.Dropped(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if on {
		s.stop()
		if err := <-s.done; err != nil {
			b.Fatal(err)
		}
		got := s.total.Shown + s.total.Bound + s.total.Ring + s.total.Reader
		if dropped := after - before; got != dropped {
			b.Errorf("%d packets were dropped, %d shown or counted: %+v", dropped, got, s.total)
		}
	}
	return w, s
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// BenchmarkCookie measures the SYNs, and the DNS queries, that one core answers a second with a
// cookie: a flood with forged sources from one core, levee on the other. The answers go back the
// way that the flood came, where a program drops them on the generator's core; those that find the
// ring full there are made, and not taken.
//
//	go test -run '^$' -bench BenchmarkCookie -benchtime 1x ./internal/bench/flood
func BenchmarkCookie(b *testing.B) {
	for _, c := range []struct {
		what, policy string
		flood        func(b *testing.B, family string, to *lab.Device) Traffic
	}{
		{"SYN", "cookie tcp as \"flood\"\ndefault pass\n",
			func(_ *testing.B, family string, to *lab.Device) Traffic {
				return Floods([]string{"syn"}, family, to)[0]
			}},
		{"query", "cookie dns udp port 53 as \"flood\"\npass established\ndefault pass\n",
			queries},
	} {
		for _, family := range []string{IPv4, IPv6} {
			b.Run(c.what+"/"+family, func(b *testing.B) {
				l := benchLab(b)
				d := contender.Levee("cookie", []byte(c.policy))
				sink := contender.XDPDrop()
				for host, d := range map[*lab.Host]contender.Defence{l.Server: d, l.World: sink} {
					if err := d.Install(b.Context(), contender.Site{Host: host,
						Device: l.device}); err != nil {
						b.Fatal(err)
					}
					defer remove(b, d)
				}
				if err := unix.SchedSetAttr(l.World.Devices[0].NAPI, &unix.SchedAttr{
					Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO,
					Priority: 1}, 0); err != nil {
					b.Fatal(err)
				}
				t := c.flood(b, family, l.In())
				var pps, ns []float64
				before := l.answered(b)
				for range 2 * bench.MinRounds {
					w, _ := l.watched(b, d, &t, 0, false)
					if len(w.Invalid) > 0 {
						b.Logf("left out: %s", strings.Join(w.Invalid, "; "))
						continue
					}
					pps, ns = append(pps, w.PPS), append(ns, w.NsPerPacket)
				}
				if len(pps) < bench.MinRounds {
					b.Skip("too few windows count: the machine is too busy")
				}
				after := l.answered(b)
				taken, refused := after[0]-before[0], after[1]-before[1]
				b.ReportMetric(median(pps)/1e6, "Mpps")
				b.ReportMetric(slices.Max(pps)/1e6, "most-Mpps")
				b.ReportMetric(median(ns), "ns/"+c.what)
				b.ReportMetric(slices.Min(ns), "least-ns/"+c.what)
				b.ReportMetric(100*float64(taken)/float64(taken+refused), "%taken")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// queries are DNS queries for 65,536 names, each from another source.
func queries(b *testing.B, family string, to *lab.Device) Traffic {
	b.Helper()
	const many = 1 << 16
	f := &gen.Frames{}
	for i := range many {
		name, bad := dnsname.Parse(fmt.Sprintf("%07x.example.com", i))
		if bad != nil {
			b.Fatal(bad)
		}
		s := packet.Spec{Proto: new(uint8(packet.ProtoUDP)), FromPort: new(uint16(40000)),
			ToPort: new(uint16(53)), Payload: dns.Query(dns.Message{Question: true,
				Name: name.Name, Type: 1, EDNS: true, Size: 1232})}
		s.To, s.From = to.IPv4.Addr(), netip.AddrFrom4([4]byte{16, byte(i >> 8), byte(i), 1})
		if family == IPv6 {
			s.To, s.From = to.IPv6.Addr(), netip.AddrFrom16([16]byte{0: 0x20, 1: 1, 2: 0xd, 3: 0xb8,
				4: 0x80, 14: byte(i >> 8), 15: byte(i)})
		}
		frame, err := packet.Build(s)
		if err != nil {
			b.Fatal(err)
		}
		f.Frames = append(f.Frames, frame)
	}
	return Traffic{Name: "queries", Family: family, What: "DNS queries", Frames: f}
}

// answered returns the number of frames that went back, and of those that met a full ring at the
// other end.
func (l *Lab) answered(b *testing.B) (n [2]uint64) {
	b.Helper()
	if err := l.Server.Do(func() error {
		c, err := lab.Counters(l.device)
		n = [2]uint64{c["rx_queue_0_xdp_tx"], c["rx_queue_0_xdp_tx_errors"]}
		return err
	}); err != nil {
		b.Fatal(err)
	}
	return n
}
