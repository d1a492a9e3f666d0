package difftest

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"levee/internal/filter/oracle"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// BenchmarkStreams: what a segment over TCP costs by which a search goes on, by its bytes, and one
// of the same length of which nothing is new. Each is another packet, so each is a run of the
// program by itself: what caches lose between two runs is in the figures. The difference between
// two lengths is what a byte costs.
func BenchmarkStreams(b *testing.B) {
	for _, find := range []string{"", `"/wp-login.php"`, `{ "/wp-login.php", "/cgi-bin/luci" }`,
		`/\x00{16}/`} {
		text := "drop tcp port 80 stream contains " + find + "\npass tcp port 80\ndefault pass\n"
		if find == "" {
			find, text = "no search", "pass tcp port 80\ndefault pass\n"
		}
		pol, ds := resolve.Parse("stream.levee", []byte(text), nil)
		if ds.HasErrors() {
			b.Fatal(ds.Err())
		}
		c := Case{Policy: pol, Link: packet.Ethernet, Text: []byte(text), Seed: 1}
		e, err := compileCase(c, false)
		if err != nil {
			b.Skip(err)
		}
		defer e.Close()
		o, clock := oracle.New(pol), newClock(1, []Engine{e})
		o.SetClock(clock.now)
		r := &comparison{c: c, oracle: o, clock: clock, engines: []Engine{e}}
		first := newSender(clock.rand)
		e.Eval(r.segment(first.client, first.server, 1, 1, packet.SYN, nil))
		for _, size := range []int{48, 448, 1448} {
			data := bytes.Repeat([]byte("/index.html?x=y&"), size/16+1)[:size]
			for _, again := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/bytes=%d/again=%v", find, size, again), func(b *testing.B) {
					var ns, segments int64
					var s *sender
					at := uint32(resolve.MaxStream)
					for range b.N {
						if at+uint32(size) > resolve.MaxStream {
							s, at = newSender(clock.rand), 0
							s.server = netip.AddrPortFrom(s.server.Addr(), 80)
							if text[0] == 'd' {
								f := r.segment(s.server, s.client, s.proof-1, s.first,
									packet.SYN|packet.ACK, nil)
								if err := e.Leave(f); err != nil {
									b.Fatal(err)
								}
							}
						}
						f := r.segment(s.client, s.server, s.first+at, s.proof,
							packet.ACK|packet.PSH, data)
						at += uint32(size)
						for i := range 2 {
							_, each, err := e.Loaded.Prog.Benchmark(f, 1, nil)
							if err != nil {
								b.Fatal(err)
							}
							if (i == 1) == again {
								ns += each.Nanoseconds()
							}
						}
						segments++
					}
					b.ReportMetric(float64(ns)/float64(segments), "ns/packet")
				})
			}
		}
	}
}
