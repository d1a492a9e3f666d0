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
	if p.IsIP() && (w.newcomers.Spares(p.Src) || !w.regulars.isRegular(p.Src)) {
		w.newcomers.Came(now, p.Src, weight)
	}
}

// mostOfNewcomer is the rate above which a source is no client.
func (w *Watcher) mostOfNewcomer() float64 {
	return max(minOfSource, mostStrange*w.regulars.typical)
}

// recall takes over the newcomers whom limits of an agent before this one spare.
func (w *Watcher) recall(now time.Time) {
	limits, _, _ := w.floods.Strangers(now)
	for _, l := range limits {
		w.newcomers.Spared(now, newcomers.Last(l.Rule.Rule, l.Rule.Spared))
	}
}

// dismiss has limits on strangers spare those no more that send more than clients do, or are gone.
func (w *Watcher) dismiss(ctx context.Context, now time.Time) {
	out := w.newcomers.Leaves(now, w.mostOfNewcomer())
	if len(out) == 0 {
		return
	}
	limits, _, _ := w.floods.Strangers(now)
	for _, l := range limits {
		if text, n := newcomers.Without(l.Rule.Rule, out); n > 0 {
			w.step(ctx, episode.Event{Spared: &episode.Spared{Label: l.Rule.Label, Rule: text,
				Sources: -n}})
		}
	}
}

// welcome has limits on strangers spare newcomers, as long as these hold a flood.
func (w *Watcher) welcome(ctx context.Context, now time.Time) {
	limits, hold, drops := w.floods.Strangers(now)
	if w.welcomes = hold; !hold {
		switch {
		case !w.floods.Busy():
			w.newcomers = newcomers.Sources{}
		case len(limits) > 0:
			w.newcomers.Rest()
		}
		return
	}
	all := append(w.newcomers.All(), w.newcomers.Clients(now, w.mostOfNewcomer(), drops)...)
	for _, l := range limits {
		if text, added := newcomers.Sparing(l.Rule.Rule, all); len(added) > 0 {
			w.newcomers.Spared(now, added)
			w.step(ctx, episode.Event{Spared: &episode.Spared{Label: l.Rule.Label, Rule: text,
				Sources: len(added)}})
		}
	}
}
