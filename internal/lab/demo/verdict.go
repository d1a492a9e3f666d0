package demo

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"levee/internal/report"
)

// The service is held if this share of the requests was answered within a time that is this much
// above the p99 of the quiet beginning: a page that takes longer feels slow.
const (
	heldShare   = 0.95
	heldExtraMS = 200
)

// busyLoad is the load average from which other programs take so much of two cores that a failure
// says little.
const busyLoad = 1.0

// loadAverage is the machine's, of the last minute; 0 where it does not tell (proc_loadavg(5)).
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	v, _ := strconv.ParseFloat(first, 64)
	return v
}

// held judges the last column against the first, and says so in a sentence.
func (s *screen) held() (bool, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	quiet, levee := s.columns[0], s.columns[len(s.columns)-1]
	base, failed, ok := quiet.percentile(99)
	if !ok || failed {
		return false, "Even without a flood the service did not answer 99 % of the requests in " +
			"time: this machine is too busy for the demo."
	}
	bound := base + heldExtraMS
	within := levee.within(bound)
	verb := "held"
	if within < heldShare {
		verb = "did not hold"
	}
	sentence := fmt.Sprintf("levee %s the service: %.1f %% of the requests were answered within "+
		"%.0f ms (asked for: %.0f %%, %d ms above the quiet p99).",
		verb, within*100, bound, heldShare*100, heldExtraMS)
	if within < heldShare && s.load >= busyLoad {
		sentence += fmt.Sprintf(" But other programs kept this machine busy from the start (load "+
			"%.1f), and the demo wants both cores: try again when it is idle.", s.load)
	}
	return within >= heldShare, sentence
}

// within is the share of the requests that were answered within so many milliseconds.
func (c *column) within(ms float64) float64 {
	n := 0
	for _, l := range c.latency {
		if l <= ms {
			n++
		}
	}
	return float64(n) / float64(max(len(c.latency)+c.failed, 1))
}

// end prints the table for the last time, the sentence, and the picture.
func (s *play) end() error {
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
		if err := os.WriteFile(s.Picture, report.Terminal(all), 0o644); err != nil {
			return fmt.Errorf("writing the picture: %w", err)
		}
	}
	if !held {
		return ErrNotHeld
	}
	return nil
}
