package latency

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"levee/internal/bench/flood"
	"levee/internal/lab/echo"
)

// patience is the wait for the last probes, or twice the window; what has not returned
// by then is lost.
const patience = 500 * time.Millisecond

// prober is an echo service on the server, and probes from the world.
type prober struct {
	*flood.Lab
	echo *echo.Service
	rate float64
	rng  *rand.Rand
}

// newProber starts the echo service on the receiver's core, as one program of many.
func newProber(l *flood.Lab, rate float64) (p *prober, err error) {
	p = &prober{Lab: l, rate: rate, rng: rand.New(rand.NewPCG(l.Seed, 0x70726f6265))}
	p.echo, err = echo.Serve(l.Server, l.In().IPv4.Addr(), l.ReceiverCPU)
	return p, err
}

// round sends probes for a time and returns the round trip of each in ns, echo.Lost for those that
// did not return.
func (p *prober) round(ctx context.Context, length time.Duration) ([]int64, error) {
	took, err := p.Probe(ctx, echo.Probes{
		At: poisson(p.rng, p.rate, length), ID: p.rng.Uint64(), Patience: min(patience, 2*length),
	})
	return took, errors.Join(err, p.echo.Err())
}

// poisson draws the times of a Poisson process, in ns from its start: probes at equal distances
// could fall into step with the generator's batches.
func poisson(rng *rand.Rand, rate float64, length time.Duration) []int64 {
	var at []int64
	for t := 0.0; ; {
		t += rng.ExpFloat64() / rate * float64(time.Second)
		if t >= float64(length) {
			return at
		}
		at = append(at, int64(t))
	}
}
