package defend

import (
	"context"
	"time"

	"levee/internal/agent/episode"
	"levee/internal/agent/newcomers"
	"levee/internal/packet"
)

// stranger takes a packet that came while a limit on strangers, or a flood before it, was there.
func (w *Watcher) stranger(now time.Time, p *packet.Packet, weight float64) {
	if p.IsIP() && !w.regulars.isRegular(p.Src) {
		w.newcomers.Came(now, p.Src, weight)
	}
}

// welcome has limits on strangers spare newcomers, as long as these hold a flood.
func (w *Watcher) welcome(ctx context.Context, now time.Time) {
	limits, hold := w.floods.Strangers(now)
	if w.welcomes = hold; !hold {
		if !w.floods.Busy() || len(limits) > 0 { // it is over
			w.newcomers = newcomers.Sources{}
		}
		return
	}
	all := w.newcomers.Clients(now, max(minOfSource, mostStrange*w.regulars.typical))
	for _, l := range limits {
		if text, n := newcomers.Sparing(l.Rule.Rule, all); n > 0 {
			w.step(ctx, episode.Event{Spared: &episode.Spared{Label: l.Rule.Label, Rule: text,
				Sources: n}})
		}
	}
	w.newcomers.Spared(all)
}
