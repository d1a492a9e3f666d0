package defend

import (
	"context"
	"errors"
	"time"

	"levee/internal/agent/episode"
	"levee/internal/agent/sent"
	"levee/internal/dataplane"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/tap"
	"levee/internal/packet"
)

// kernel is a watcher's access to the interface that it watches. Tests have one that needs no
// rights and no clock.
type kernel interface {
	sample(ctx context.Context, dev string) (sampler, error)
	put(ctx context.Context, o dataplane.LiveOptions, c dataplane.CompileFunc) error
	down(ctx context.Context, dev string) error
	renew(ctx context.Context, dev string, lease time.Duration) error
	// live is nil if there are no live rules; counts are by label.
	live(ctx context.Context, dev string) (*inspect.LiveRules, map[string]episode.Count, error)
	ready(ctx context.Context, dev string) error
	// sent is the number of packets that the interface has sent, by its own counter; false: nobody
	// says.
	sent(dev string) (packets uint64, ok bool)
	// refused returns the kernel's counts of refused packets in this network namespace.
	refused() sent.Refusals
	// elsewhere is the traffic of all other interfaces of this network namespace; false: nobody
	// says.
	elsewhere(dev string) (sent.Traffic, bool)
}

// sampler gives samples of what the policy on an interface judges.
type sampler interface {
	Follow(ctx context.Context) error
	Program() uint32
	Link() packet.Link
	SetRate(each int) error
	Read(tell func(tap.Sampled)) error
	Close()
}

// namespace is the kernel of this network namespace.
type namespace struct{}

func (namespace) sample(ctx context.Context, dev string) (sampler, error) {
	s, err := tap.NewSampler(ctx, dev, snap)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (namespace) put(ctx context.Context, o dataplane.LiveOptions, c dataplane.CompileFunc) error {
	_, err := dataplane.Live(ctx, o, c)
	return err
}

func (namespace) down(ctx context.Context, dev string) error {
	err := dataplane.LiveDown(ctx, dev)
	if errors.Is(err, dataplane.ErrNotLive) {
		return nil
	}
	return err
}

func (namespace) renew(ctx context.Context, dev string, lease time.Duration) error {
	return dataplane.LiveRenew(ctx, dev, lease)
}

func (namespace) live(ctx context.Context, dev string) (*inspect.LiveRules,
	map[string]episode.Count, error) {
	rules, counts, err := dataplane.LiveOf(ctx, dev)
	out := map[string]episode.Count{}
	for label, n := range counts {
		out[label] = episode.Count{Packets: n.Packets, Bytes: n.Bytes}
	}
	return rules, out, err
}

func (namespace) sent(dev string) (uint64, bool) { return sent.Packets(dev) }

func (namespace) refused() sent.Refusals { return sent.Here() }

func (namespace) elsewhere(dev string) (sent.Traffic, bool) { return sent.Elsewhere(dev) }

func (namespace) ready(ctx context.Context, dev string) error {
	return dataplane.LiveReady(ctx, dev)
}
