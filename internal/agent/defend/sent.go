package defend

import (
	"time"

	"github.com/vishvananda/netlink"
)

// sent is how many packets an interface has sent, by its own counter.
type sent struct {
	at      time.Time
	packets uint64
}

// second is how many there were a second, since the last time. It is false the first time, and
// where the kernel does not say.
func (s *sent) second(dev string, now time.Time) (rate float64, ok bool) {
	l, err := netlink.LinkByName(dev)
	if err != nil || l.Attrs().Statistics == nil {
		*s = sent{}
		return 0, false
	}
	was := *s
	*s = sent{now, l.Attrs().Statistics.TxPackets}
	if was.at.IsZero() || s.packets < was.packets || !now.After(was.at) {
		return 0, false
	}
	return float64(s.packets-was.packets) / now.Sub(was.at).Seconds(), true
}
