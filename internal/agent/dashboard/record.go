package dashboard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"levee/internal/agent/history"
	"levee/internal/dataplane/inspect"
)

// Recording says what is kept each second.
type Recording struct {
	History *history.Store
	// Estimates returns the last second's amounts by protocol and source, as samples tell them;
	// nil: none.
	Estimates func() []history.Amount
	// Passed hears each second how many packets the policy on an interface has passed.
	Passed func(dev string, packets uint64)
	// Lost counts the packets that an interface has lost before its policy since somebody looks.
	Lost func(dev string) uint64
	// Told hears each second whether it could be kept.
	Told func(error)
}

// Record reads the counters of the policies in force each second, until ctx ends.
func Record(ctx context.Context, o Recording) error {
	var counters inspect.Reader
	defer counters.Close()
	var counts history.Counts
	for {
		now := time.Now()
		// in the middle of a second, so that none is missed or named twice
		next := now.Truncate(time.Second).Add(1500 * time.Millisecond)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(next.Sub(now)):
		}
		all, err := counters.Read(ctx)
		if err != nil {
			o.Told(fmt.Errorf("read the counters: %w", err))
			continue
		}
		var estimates []history.Amount
		if o.Estimates != nil {
			estimates = o.Estimates()
		}
		seconds := counts.Read(time.Now(), readings(all, o.Lost))
		history.Spread(seconds, estimates)
		err = nil
		for _, s := range seconds {
			err = errors.Join(err, o.History.Add(s))
		}
		for dev, n := range passed(seconds) {
			o.Passed(dev, n)
		}
		o.Told(err)
	}
}

// passed returns how many packets rules have passed, by interface.
func passed(seconds []history.Second) map[string]uint64 {
	out := map[string]uint64{}
	for i := range seconds {
		for j := range seconds[i].Amounts {
			a := &seconds[i].Amounts[j]
			if a.Kind == history.Rule && a.Verdict == "pass" {
				out[a.Dev] += a.Packets
			}
		}
	}
	return out
}

// lostVerdict is of packets that the machine lost before any policy saw them.
const lostVerdict = "lost"

// readings are counters as the history takes them, and what was lost before the policies where
// something was.
func readings(all []inspect.DeviceCounters, lost func(dev string) uint64) (out []history.Reading) {
	for _, d := range all {
		if n := lost(d.Dev); n > 0 {
			out = append(out, history.Reading{Series: history.Series{
				Key:   history.Key{Dev: d.Dev, Kind: history.Rule, ID: "lost before the policy"},
				Label: "lost before the policy", Verdict: lostVerdict}, Packets: n})
		}
		for _, c := range d.Counters {
			label := c.Label
			switch {
			case label == "" && c.Reason == "default":
				label = "default " + c.Action
			case label == "" && c.Text == "":
				label = c.Rule // built in
			}
			out = append(out, history.Reading{
				Series: history.Series{Key: history.Key{Dev: d.Dev, Kind: history.Rule, ID: c.ID},
					Label: label, Verdict: verdictOf(c.Action), Text: c.Text, Line: c.Line},
				Packets: c.Packets, Bytes: c.Bytes})
		}
	}
	return out
}
