package gen

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"levee/internal/usage"
)

// severalCores are the paths that may be taken from more than one core: each has a socket. Live
// frames are counted at the device, and an AF_XDP socket has a queue for itself.
var severalCores = []Path{Packet, Qdisc, Sendmmsg}

// maxCores bounds the cores of a run.
const maxCores = 256

// share says which packets a core sends: those whose numbers leave a rest in a division by the
// number of cores.
type share struct{ rest, of uint64 }

// number returns the number of the n-th packet of a share.
func (s share) number(n uint64) uint64 {
	if s.of == 0 {
		return n
	}
	return s.rest + n*s.of
}

// count returns how many of so many packets are of the share.
func (s share) count(all uint64) uint64 {
	if s.of == 0 || all == noLimit {
		return all
	}
	return (all + s.of - 1 - s.rest) / s.of
}

// shared sends from several cores at once. Together they send the packets that one would; which of
// two that are due at the same time goes first is by chance.
func (c *Config) shared(ctx context.Context) (r Report, dev device, err error) {
	cores := append([]int{c.CPU}, c.More...)
	if sorted := slices.Sorted(slices.Values(cores)); sorted[0] < 0 ||
		len(slices.Compact(sorted)) < len(cores) || len(cores) > maxCores {
		return r, dev, usage.Wrongf("cores %d: each is named once, at most %d", cores, maxCores)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reports, errs := make([]Report, len(cores)), make([]error, len(cores))
	shown := newProgress(c.Progress, len(cores))
	var running sync.WaitGroup
	for i, cpu := range cores {
		own := *c
		own.CPU, own.More, own.Progress = cpu, nil, shown(i)
		own.share = share{uint64(i), uint64(len(cores))}
		if own.Count = own.share.count(c.Count); own.Count == 0 {
			continue
		}
		running.Go(func() {
			var at device
			if reports[i], at, errs[i] = own.run(ctx); errs[i] != nil {
				stop() // a part of a flood is none
			}
			if i == 0 {
				dev = at
			}
		})
	}
	running.Wait()
	r = reports[0]
	for i := range reports[1:] {
		r.add(&reports[1+i])
	}
	r.How += fmt.Sprintf(", from %d cores", len(cores))
	return r, dev, errors.Join(errs...)
}

// add adds what another core did in the same time.
func (r *Report) add(o *Report) {
	r.Sent, r.Bytes, r.Refused = r.Sent+o.Sent, r.Bytes+o.Bytes, r.Refused+o.Refused
	r.Errors, r.TooShort, r.TooLong = r.Errors+o.Errors, r.TooShort+o.TooShort, r.TooLong+o.TooLong
	r.Duration = max(r.Duration, o.Duration)
	r.Achieved += o.Achieved
	r.Gaps.add(&o.Gaps)
}

// newProgress makes what each core tells of its own one that is told of all; nil is told of
// nothing.
func newProgress(tell func(Progress), cores int) func(core int) func(Progress) {
	var mu sync.Mutex
	sent := make([]uint64, cores)
	return func(core int) func(Progress) {
		if tell == nil {
			return nil
		}
		return func(p Progress) {
			mu.Lock()
			defer mu.Unlock()
			sent[core] = p.Sent
			all := Progress{Elapsed: p.Elapsed}
			for _, n := range sent {
				all.Sent += n
			}
			tell(all)
		}
	}
}

// behind is by how much the share's first packet comes later than that of a run that has all.
func (s share) behind(rate float64) time.Duration {
	if s.of == 0 || rate == 0 {
		return 0
	}
	return time.Duration(float64(s.rest) / rate * float64(time.Second))
}
