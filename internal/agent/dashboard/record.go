package dashboard

import (
	"context"
	"time"

	"levee/internal/agent/history"
	"levee/internal/dataplane"
)

// Recording says what is kept each second.
type Recording struct {
	History *history.Store
	// Estimates are what samples of the last second say, by protocol and source; nil: none.
	Estimates func() []history.Amount
	Log       func(format string, args ...any)
}

// sayEvery is how often the same trouble is told.
const sayEvery = time.Minute

// Record reads the counters of the policies in force each second, until ctx ends.
func Record(ctx context.Context, o Recording) {
	var counters dataplane.Reader
	defer counters.Close()
	var counts history.Counts
	var told time.Time
	say := func(err error) {
		if err != nil && ctx.Err() == nil && time.Since(told) > sayEvery {
			told = time.Now()
			o.Log("keep the history: %v", err)
		}
	}
	for {
		now := time.Now()
		// in the middle of a second, so that none is missed or named twice
		next := now.Truncate(time.Second).Add(1500 * time.Millisecond)
		select {
		case <-ctx.Done():
			return
		case <-time.After(next.Sub(now)):
		}
		all, err := counters.Read(ctx)
		if err != nil {
			say(err)
			continue
		}
		var estimates []history.Amount
		if o.Estimates != nil {
			estimates = o.Estimates()
		}
		seconds := counts.Read(time.Now(), readings(all))
		history.Spread(seconds, estimates)
		for _, s := range seconds {
			say(o.History.Add(s))
		}
	}
}

// readings are counters as the history takes them.
func readings(all []dataplane.DeviceCounters) (out []history.Reading) {
	for _, d := range all {
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
					Label: label, Verdict: VerdictOf(c.Action), Text: c.Text, Line: c.Line},
				Packets: c.Packets, Bytes: c.Bytes})
		}
	}
	return out
}
