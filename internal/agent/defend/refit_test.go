package defend

import (
	"fmt"
	"testing"
	"time"

	"levee/internal/agent/episode"
	"levee/internal/agent/incident"
	"levee/internal/packet"
)

// TestAnswersGoOnInAnotherPolicy: what limits and cookies cost does not follow from a sample of an
// hour that is judged at once. Each was taken for a drop of all that its budget did not pay in that
// moment, and ended with the next policy; the flood came in, and the answer counted as tried.
func TestAnswersGoOnInAnotherPolicy(t *testing.T) {
	now := time.Now()
	w := &Watcher{link: packet.Ethernet, good: newGood()}
	w.base = parsed(t, "prove \"a\" udp port 27015 reply echo 4 bytes at 5 in request at 25\n"+
		"count udp proven flow\npass fragments\ndefault pass\ndetect \"floods\" enforce\n")
	add := func(i int, b []byte) {
		f := frame{at: now.Add(-time.Hour/2 + time.Duration(i)*100*time.Millisecond),
			length: len(b), n: uint8(min(len(b), snap))}
		copy(f.head[:], b)
		w.good.add(&f)
	}
	for i := range 9000 {
		from := fmt.Sprintf("198.51.100.%d", i%100)
		add(i, datagramTo(t, from, 4000, 27015, []byte("hello")))
		if i%10 == 0 {
			add(i, segmentOf(t, from, 40000, packet.SYN))
		}
	}
	for text, action := range map[string]string{
		"limit udp port { 27015 } not proven flow rate 5000/s": episode.Limit,
		"limit udp rate 20/s by source":                        episode.Limit,
		"cookie tcp port { 80 }":                               episode.Cookie,
	} {
		l := episode.Live{Of: w.base.Detects[0], Rule: incident.Rule{Rule: text + ` as "flood-1-1"`,
			Label: "flood-1-1", Action: action, State: incident.Live}}
		if err := w.fitsNow(now, l); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
