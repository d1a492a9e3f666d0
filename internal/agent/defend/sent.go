package defend

import "time"

// sent is how many packets an interface has sent, by its own counter.
type sent struct {
	at      time.Time
	packets uint64
}

// second is how many there were a second, since the last time. It is false the first time, and
// where the kernel does not say.
func (s *sent) second(now time.Time, packets uint64, ok bool) (rate float64, is bool) {
	was := *s
	if *s = (sent{}); ok {
		*s = sent{now, packets}
	}
	if !ok || was.at.IsZero() || packets < was.packets || !now.After(was.at) {
		return 0, false
	}
	return float64(packets-was.packets) / now.Sub(was.at).Seconds(), true
}
