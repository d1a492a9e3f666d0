package newcomers

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// TestNewcomersAreToldFromBots by when they came, where hosts that come again send a flood. Where
// these change all the time, nobody is spared.
func TestNewcomersAreToldFromBots(t *testing.T) {
	for what, c := range map[string]struct {
		bot          func(r *rand.Rand, at float64) int
		clients, few int // spared clients at least, bots at most
	}{
		"6000 bots": {func(r *rand.Rand, _ float64) int { return r.IntN(6000) }, 90, 60},
		"300 bots, and five that come later": {func(r *rand.Rand, at float64) int {
			if at > 7 && r.IntN(100) == 0 {
				return 300 + r.IntN(5)
			}
			return r.IntN(300)
		}, 90, 0},
		"other bots each second, of 3 s": {func(r *rand.Rand, at float64) int {
			return int(at)*2000 + r.IntN(6000)
		}, 0, 0},
	} {
		r, begun := rand.New(rand.NewPCG(3, 39)), time.Now()
		var n Sources
		spared := map[byte]int{}
		for at := 0.0; at < 14; at += 1 / 20_400.0 { // samples, of which each stands for three
			var from [4]byte
			if at > 6 && r.IntN(20_400) < 134 {
				binary.BigEndian.PutUint32(from[:], 78<<24|uint32(r.IntN(100)))
			} else {
				binary.BigEndian.PutUint32(from[:], 16<<24|uint32(c.bot(r, at)))
			}
			now := begun.Add(time.Duration(at * float64(time.Second)))
			n.Came(now, netip.AddrFrom4(from), 3)
		}
		for _, a := range n.Clients(begun.Add(14*time.Second), 20) {
			spared[a.As4()[0]]++
		}
		if spared[78] < c.clients || spared[16] > c.few {
			t.Errorf("%s: %d clients and %d bots are spared", what, spared[78], spared[16])
		}
	}
}
