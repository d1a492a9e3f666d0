package difftest

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"levee/internal/kernel"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

var sequences = flag.Int("sequences", 10_000,
	"TestSequencesAgreeWithTheOracle: how many sequences in all")

// talks are policies that remember, each with rules that must be met often enough.
var talks = []struct {
	name, text string
	met        []string
	dialogue   bool
}{
	{"connections", `count tcp established as "tcp"
count udp established as "udp"
count icmp established as "icmp"
count icmp6 established as "icmp6"
limit not established rate 2/s burst 2 by source/8 memory 256kB as "limit"
pass established as "known"
pass from { 192.0.2.0/30, 2001:db8::/126 } port { 80, 443 }
default drop
`, []string{"tcp", "udp", "icmp", "icmp6", "limit", "known"}, false},
	{"dialogues", `count tcp established as "tcp"
count udp established as "udp"
count icmp established as "icmp"
count icmp6 established as "icmp6"
count proven as "proven"
pass established as "known"
pass tcp syn port 443 as "new"
limit udp rate 1/s burst 3 by source memory 256kB as "limit"
pass udp port 443 as "stranger"
default drop
`, []string{"tcp", "udp", "icmp", "icmp6", "proven", "known", "new", "limit", "stranger"}, true},
	{"handshakes", `pass established as "known"
cookie tcp port { 1-60000 } as "cookie"
limit tcp rate 1/s burst 2 by source/12,16 memory 256kB as "limit"
default pass
`, []string{"known", "cookie", "limit"}, false},
	{"proven", `count tcp proven as "tcp"
count not tcp proven as "others"
count fragments proven
drop udp established
cookie tcp port { 1-60000 } as "cookie"
limit not proven rate 2/s burst 2 by source/8 memory 256kB as "limit"
pass proven as "proven"
default drop
`, []string{"tcp", "others", "cookie", "limit", "proven"}, false},
	{"echoes", `prove "a2s" udp port 27015 reply payload at 4 41 echo 4 bytes at 5 in request at 25, 5
prove "long" udp port { 500, 4500-4510 } reply payload at 1 00ff/f0ff payload at 30 0102030405060708090a echo 20 bytes at 8 in request at 0
prove "any" udp port > 60000 reply echo 9 bytes at 0 in request at 100, 50, 1, 0
count udp proven flow port 27015 as "a2s"
count ipv6 proven flow as "ipv6"
count udp not proven flow as "not"
count fragments proven flow
limit udp not proven flow rate 2/s burst 2 by source/8 memory 256kB as "limit"
pass proven flow as "proven"
default drop
`, []string{"a2s", "ipv6", "limit", "proven"}, false},
	{"queries", `prove "query" udp port 27015 reply payload at 0 ffffffff41 echo 4 bytes at 5 in request at 25, 5
count udp proven flow as "proven"
cookie a2s ipv4 udp port 27015 as "always"
cookie a2s ipv6 udp from 2001:db8::/32 port 27015-27016 above 1/s as "above"
limit udp not proven flow rate 2/s burst 2 by source/8 memory 256kB as "limit"
pass udp proven flow as "known"
default drop
`, []string{"proven", "always", "above", "limit", "known"}, false},
	{"greylists", `greylist udp port < 1024 after 20ms within 1s as "quick"
greylist ipv6 tcp after 1s within 60s above 1/s as "six"
greylist port { 443, 4500-65535 } after 500ms within 20s above 2/s as "most"
count ipv6 as "ipv6"
limit udp rate 2/s burst 2 by source/8 memory 256kB as "limit"
pass udp port < 1024 as "again"
pass tcp as "tcp"
default drop
`, []string{"quick", "six", "most", "again", "tcp", "ipv6"}, false},
	{"streams", `count tcp port 80 stream contains "abba" as "text"
count tcp not stream contains { "cc..", /d[ab]+d/ } any case within 400 bytes as "not"
count ipv6 tcp stream contains /^[a-d]{3}/ or unknown as "six"
drop tcp len > 300 port 81 not stream contains "ddd" within 1000 bytes or unknown as "out"
count fragments tcp stream contains "abba" or unknown as "fragments"
pass tcp port { 80, 81 } as "rest"
default drop
`, []string{"text", "not", "six", "out", "rest"}, false},
	{"fragments", `count fragments as "fragments"
fragments track as "follow"
limit ether { ipv4, ipv6 } rate 2/s burst 1 by source, destination memory 256kB as "limit"
default pass
`, []string{"fragments", "follow", "limit"}, false},
}

// TestSequencesAgreeWithTheOracle: random sequences of packets both ways, with clock steps, by
// policies that remember. Each sequence begins where nothing is known.
func TestSequencesAgreeWithTheOracle(t *testing.T) {
	needRoot(t)
	const mean = 8 // packets of a sequence
	_, hz, err := kernel.Jiffies()
	if err != nil {
		t.Fatal(err)
	}
	// Leases of 32 bits of jiffies come around: a program is loaded anew before half of that.
	most := int(1 << 31 / (uint64(longPause/time.Second) * hz))
	links := []packet.Link{packet.Ethernet, packet.L3}
	each := (*sequences + len(links)*len(talks) - 1) / (len(links) * len(talks))
	for _, p := range talks {
		for i, link := range links {
			t.Run(fmt.Sprintf("%s/%v", p.name, link), func(t *testing.T) {
				pol, ds := resolve.Parse("talk.levee", []byte(p.text), nil)
				if ds.HasErrors() {
					t.Fatal(ds.Err())
				}
				seen, frames, parts := map[string]int{}, 0, 0
				for seed := uint64(1 + i<<20); parts < each; seed++ {
					c := Case{Policy: pol, Link: link, Text: []byte(p.text), Seed: seed,
						Talk: mean, Frames: mean * min(each*11/10, most), Dialogue: p.dialogue}
					engine, err := compileCase(c, i > 0)
					if err != nil {
						t.Fatal(err)
					}
					stats, err := Compare(t.Context(), c, engine)
					if err != nil {
						t.Fatal(err)
					}
					frames, parts = frames+stats.Frames, parts+stats.Sequences
					for i, n := range engine.Packets() {
						if s := engine.Slots()[i]; s.Rule != nil {
							seen[s.Rule.Label] += int(n)
						}
					}
					if err := engine.Close(); err != nil {
						t.Fatal(err)
					}
				}
				words := ""
				for _, label := range p.met {
					if seen[label]*2000 < frames {
						t.Errorf("of %d packets only %d met %q", frames, seen[label], label)
					}
					words += fmt.Sprintf(", %d %s", seen[label], label)
				}
				t.Logf("| %s, %v | %d | %d | 0 | %s |", p.name, link, parts, frames, words[2:])
			})
		}
	}
}
