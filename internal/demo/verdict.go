package demo

import (
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
)

// The service is held if so many requests were answered, and the p99 of all of them is at most this
// much above that of the quiet beginning. 50 ms are what people do not notice.
const (
	heldShare   = 0.95
	heldExtraMS = 50
)

// held judges the last column against the first, and says so in a sentence.
func (s *screen) held() (bool, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	quiet, levee := s.columns[0], s.columns[len(s.columns)-1]
	base, baseFailed, ok := quiet.percentile(99)
	if !ok || baseFailed {
		return false, "Even without a flood the service did not answer 99 % of the requests in time: this machine is too busy for the demo."
	}
	share, _ := levee.share()
	p99, failed, _ := levee.percentile(99)
	yes := share >= heldShare && !failed && p99 <= base+heldExtraMS
	verb := "held"
	if !yes {
		verb = "did not hold"
	}
	return yes, fmt.Sprintf("levee %s the service: %s of the requests answered (at least %.0f %% asked for), p99 %s (at most %d ms above the quiet %s asked for).",
		verb, levee.answered(), heldShare*100, levee.p(99), heldExtraMS, quiet.p(99))
}

// end prints the table for the last time, the sentence, and the picture.
func (s *stage) end() error {
	held, sentence := s.screen.held()
	s.screen.mu.Lock()
	lines := s.screen.table()
	s.screen.mu.Unlock()
	lines = append(lines[:len(lines)-1], sentence)
	var b strings.Builder
	if s.screen.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", s.screen.drawn)
	} else {
		b.WriteString("\n")
	}
	if _, err := fmt.Fprint(s.Out, b.String(), strings.Join(lines, "\n"), "\n"); err != nil {
		return err
	}
	for _, c := range s.screen.columns {
		if c.missing != "" {
			fmt.Fprintf(s.Out, "%s: %s\n", c.title, c.missing)
		}
	}
	if s.Picture != "" {
		all := append([]string{"$ sudo make demo"}, s.screen.intro...)
		all = append(append(all, ""), lines...)
		if err := os.WriteFile(s.Picture, picture(all), 0o644); err != nil {
			return fmt.Errorf("writing the picture: %w", err)
		}
	}
	if !held {
		return ErrNotHeld
	}
	return nil
}

// sentButDropped is what the world's end dropped for want of room at the server's end: of live frames
// and of what sockets sent (veth_get_stats64, drivers/net/veth.c).
func sentButDropped(device string) (uint64, error) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return 0, fmt.Errorf("reading the counters of %s: %w", device, err)
	}
	if st := link.Attrs().Statistics; st != nil {
		return st.TxDropped, nil
	}
	return 0, nil
}
