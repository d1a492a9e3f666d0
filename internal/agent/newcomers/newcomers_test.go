package newcomers

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// TestNewcomersAreToldFromBots by when they came, where hosts that come again send a flood. Of bots
// that come rarely some seemed to be late, by few samples: these were more than newcomers may be,
// and nobody was spared. Where other bots come all the time, a few of them are.
func TestNewcomersAreToldFromBots(t *testing.T) {
	for what, c := range map[string]struct {
		bot          func(r *rand.Rand, at float64) int
		clients, few int // spared clients at least, bots at most
		lasts        float64
	}{
		"6000 bots":   {func(r *rand.Rand, _ float64) int { return r.IntN(6000) }, 70, 40, 14},
		"60,000 bots": {func(r *rand.Rand, _ float64) int { return r.IntN(60_000) }, 30, 100, 14},
		"300 bots, and five that come later": {func(r *rand.Rand, at float64) int {
			if at > 7 && r.IntN(100) == 0 {
				return 300 + r.IntN(5)
			}
			return r.IntN(300)
		}, 90, 0, 14},
		"other bots each second, of 3 s": {func(r *rand.Rand, at float64) int {
			return int(at)*2000 + r.IntN(6000)
		}, 0, 60, 14},
		"the same for minutes": {func(r *rand.Rand, at float64) int {
			return int(at)*2000 + r.IntN(6000)
		}, 0, 60, 240},
	} {
		r, begun := rand.New(rand.NewPCG(3, 39)), time.Now()
		var n Sources
		spared := map[byte]int{}
		for at := 0.0; at < c.lasts; at += 1 / 20_400.0 { // samples, of which each stands for three
			var from [4]byte
			if at > 6 && r.IntN(20_400) < 134 {
				binary.BigEndian.PutUint32(from[:], 78<<24|uint32(r.IntN(100)))
			} else {
				binary.BigEndian.PutUint32(from[:], 16<<24|uint32(c.bot(r, at)))
			}
			now := begun.Add(time.Duration(at * float64(time.Second)))
			n.Came(now, netip.AddrFrom4(from), 3)
		}
		for _, a := range n.Clients(begun.Add(time.Duration(c.lasts*float64(time.Second))), 20, 0) {
			spared[a.Addr().As4()[0]]++
		}
		if spared[78] < c.clients || spared[16] > c.few {
			t.Errorf("%s: %d clients and %d bots are spared", what, spared[78], spared[16])
		}
	}
}

// TestWhoIsGoneLeavesRoom: as many as are noted came twice and no more, as of a flood that sends
// each packet twice. Nobody who came later was noted, and each of his packets had all of these
// looked at.
func TestWhoIsGoneLeavesRoom(t *testing.T) {
	var n Sources
	begun := time.Now()
	came := func(at float64, net byte, host int) {
		from := [4]byte{net}
		binary.BigEndian.PutUint32(from[:], uint32(net)<<24|uint32(host))
		n.Came(begun.Add(time.Duration(at*float64(time.Second))), netip.AddrFrom4(from), 3)
	}
	for i := range 2 * mostComing {
		came(float64(i)/2/mostComing, 16, i/2)
	}
	at := 2.0
	for ; at < 30; at += 1.0 / 20_000 {
		came(at, 17, int(at*20_000))
		if i := int(at * 20_000); i%10_000 == 0 {
			came(at, 78, 1) // twice a second
		}
	}
	got := n.Clients(begun.Add(30*time.Second), 20, 0)
	if len(got) != 1 || got[0].Addr().As4()[0] != 78 {
		t.Errorf("%d are spared: %v", len(got), got[:min(len(got), 3)])
	}
}

// TestWhoSendsMoreOnceSparedIsSparedNoMore, also behind a pause of the flood, and never again.
func TestWhoSendsMoreOnceSparedIsSparedNoMore(t *testing.T) {
	var n Sources
	at, client := time.Now(), netip.MustParseAddr("192.0.2.1")
	bot := client.Next()
	n.Spared(at, []netip.Prefix{network(client), network(bot)})
	var out []netip.Prefix
	for range 5 {
		for range 15 {
			n.Came(at, client, 1)
			n.Came(at, bot, 4)
		}
		at = at.Add(time.Second)
		out = append(out, n.Leaves(at, 20)...)
		n.Rest()
	}
	if len(out) != 1 || out[0] != network(bot) || !n.Spares(client) || n.Spares(bot) {
		t.Errorf("of a client and a bot %v send too much", out)
	}
	if n.Came(at, bot, 1); len(n.of) > 0 {
		t.Errorf("a bot may be a newcomer again: %v", n.of)
	}
}

// TestAHostOfIPv6IsOneSource, whichever of its addresses it draws: who came from another one each
// time was not spared, and bots of one network took all places of a limit.
func TestAHostOfIPv6IsOneSource(t *testing.T) {
	var n Sources
	begun := time.Now()
	from := netip.MustParseAddr("2001:db8:7::1").As16()
	for i := range 60 {
		now := begun.Add(time.Duration(i) * 100 * time.Millisecond)
		from[15] = byte(i)
		n.Came(now, netip.AddrFrom16(from), 1)
		for range 100 {
			n.Came(now, netip.AddrFrom4([4]byte{16, byte(i), byte(n.packets), byte(i)}), 1)
		}
	}
	want := netip.MustParsePrefix("2001:db8:7::/64")
	got := n.Clients(begun.Add(6*time.Second), 20, 0)
	if len(got) != 1 || got[0] != want {
		t.Fatalf("%v are spared", got)
	}
	text, added := Sparing(`limit udp not from { 2001:db8::/64 } rate 90/s as "f"`, got)
	if len(added) != 1 || text != `limit udp not from { 2001:db8::/64, `+want.String()+
		` } rate 90/s as "f"` {
		t.Error(text)
	}
	if less, back := Without(text, added); back != 1 || less == text {
		t.Errorf("%d are gone: %s", back, less)
	}
}

// TestWhoIsSilentLeavesHisPlace: a list has 256 of them, and bots that had gone kept theirs.
func TestWhoIsSilentLeavesHisPlace(t *testing.T) {
	var n Sources
	at := time.Now()
	gone, here := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	n.Spared(at, []netip.Prefix{network(gone), network(here)})
	var out []netip.Prefix
	for range 40 {
		at = at.Add(time.Second)
		n.Came(at, here, 1)
		out = append(out, n.Leaves(at, 20)...)
	}
	if len(out) != 1 || out[0] != network(gone) {
		t.Fatalf("%v leave", out)
	}
	if n.Came(at, gone, 1); len(n.of) != 1 {
		t.Error("who was silent is no newcomer any more")
	}
}

// TestTwoLimitsSpareASourceOnce: the second forgot what it sends, and more than a hundredth of the
// flood was spared.
func TestTwoLimitsSpareASourceOnce(t *testing.T) {
	var n Sources
	at := time.Now()
	who := network(netip.MustParseAddr("192.0.2.1"))
	for range 9 {
		n.Came(at, who.Addr(), 2)
		at = at.Add(time.Second / 2)
	}
	n.Spared(at, []netip.Prefix{who})
	n.Spared(at, []netip.Prefix{who})
	if rate := n.spared[who].rate; rate != 4 {
		t.Errorf("it sends %v packets a second", rate)
	}
}

// TestWhoSendsTooMuchIsNotedWithinBounds: beyond them each was noted still, as one who may come
// again.
func TestWhoSendsTooMuchIsNotedWithinBounds(t *testing.T) {
	now := time.Now()
	var n Sources
	for i := range uint32(mostComing + 100) {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], 16<<24|i)
		from := netip.AddrFrom4(a)
		n.Spared(now, []netip.Prefix{network(from)})
		n.Came(now, from, 1000)
		if all := n.Leaves(now, 20); len(all) != 1 || all[0] != network(from) {
			t.Fatalf("%v sends too much, %v is told", from, all)
		}
	}
	if len(n.out) != mostComing {
		t.Errorf("%d are noted, %d may be", len(n.out), mostComing)
	}
}
