package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/cli"
)

// watchStatus shows the status again and again, with rates, until a signal ends it.
func (e *env) watchStatus(cmd *cobra.Command, f *statusFlags) error {
	every, err := f.every(cmd)
	if err != nil {
		return err
	}
	ctx, stop := e.Signals()
	defer stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	before := map[ruleKey]reading{}
	for e.Stdout.Err == nil {
		rep, err := e.readStatus(f)
		if err != nil {
			return err
		}
		before = rep.rates(before, e.Now())
		if err := e.redrawStatus(rep, f); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	return nil
}

// every is the time between two readings.
func (f *statusFlags) every(cmd *cobra.Command) (time.Duration, error) {
	every, err := cli.ParseDuration(f.interval)
	if err != nil {
		return 0, cli.Usagef(cmd, "--interval: %v", err)
	}
	if every < 100*time.Millisecond || every > time.Hour {
		return 0, cli.Usagef(cmd, "--interval %s: from 100ms to 1h", f.interval)
	}
	return every, nil
}

// redrawStatus prints one picture at once: in the place of the one before where a terminal is, else
// behind it.
func (e *env) redrawStatus(rep *statusReport, f *statusFlags) error {
	var b bytes.Buffer
	switch {
	case f.json:
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(rep); err != nil {
			return err
		}
	default:
		if e.Stdout.Terminal {
			b.WriteString("\x1b[H\x1b[J") // to the corner, and empty from there
		}
		e.printStatuses(&b, rep, f)
		if !e.Stdout.Terminal {
			b.WriteByte('\n')
		}
	}
	_, err := e.Stdout.Write(b.Bytes())
	return err
}

// ruleKey is a rule across replaces of the policy.
type ruleKey struct {
	netns   uint64
	ifindex int
	rule    string
}

// reading is what a counter said, and when.
type reading struct {
	packets, bytes uint64
	at             time.Time
}

// rates fills the rates of a report from the readings of the one before, and returns its own. A
// counter that begins anew has no rate.
func (rep *statusReport) rates(before map[ruleKey]reading, now time.Time) map[ruleKey]reading {
	after := map[ruleKey]reading{}
	for i := range rep.Interfaces {
		s := &rep.Interfaces[i]
		for j := range s.Rules {
			r := &s.Rules[j]
			key := ruleKey{s.Netns, s.Ifindex, r.id}
			after[key] = reading{r.Packets, r.Bytes, now}
			was, ok := before[key]
			took := now.Sub(was.at).Seconds()
			if !ok || took <= 0 || r.Packets < was.packets || r.Bytes < was.bytes {
				continue
			}
			r.PacketsPerSecond = new(float64(r.Packets-was.packets) / took)
			r.BitsPerSecond = new(float64(r.Bytes-was.bytes) * 8 / took)
		}
	}
	return after
}

// shortRate is a rate in three digits or so: 12, 3.4k, 1.25M; nothing where there is none.
func shortRate(v *float64) string {
	if v == nil {
		return ""
	}
	x, unit := *v, ""
	for _, u := range []string{"k", "M", "G", "T"} {
		if x < 999.5 {
			break
		}
		x, unit = x/1000, u
	}
	if unit == "" {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g%s", x, unit)
}
