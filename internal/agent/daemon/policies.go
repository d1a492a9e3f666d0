package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"levee/internal/agent"
	"levee/internal/agent/client"
	"levee/internal/agent/enforce"
	"levee/internal/agent/inforce"
	"levee/internal/agent/ledger"
	"levee/internal/agent/part"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/lockout"
	"levee/internal/host/local"
	"levee/internal/host/session"
	"levee/internal/host/upstream"
	"levee/internal/lang/policy"
)

// policies holds the files that an agent follows, and the policies that it took from them.
type policies struct {
	files    []string
	readFile func(string) (*policy.Policy, error)
	watcher  *inforce.Watcher
	devs     []string
	// why something else is in force on some interfaces than the policy that should be
	instead error
}

// undeliveredWait is for how long the agent waits for a command that changes policies.
const undeliveredWait = time.Second

// isInstead returns an error where something else is in force than should be, or what a policy
// takes for this machine's own has not been for a while what the kernel delivers.
func (p *policies) isInstead() error {
	ctx, stop := context.WithTimeout(context.Background(), undeliveredWait)
	defer stop()
	err := p.instead
	for _, dev := range p.devs {
		all, failed := inspect.Undelivered(ctx, dev)
		if failed != nil {
			continue // it is looked at again, and the policies are read elsewhere
		}
		for _, why := range all {
			err = errors.Join(err, part.Do(fmt.Errorf("on %s: %s", dev, why),
				"levee up FILE --dev "+dev))
		}
	}
	return err
}

// inForce tells one state of what is in force from another.
func (p *policies) inForce(ctx context.Context) (string, error) {
	all, err := p.watcher.Here(ctx, inforce.Recent)
	p.devs = devsOf(all)
	return fmt.Sprint(all), err
}

// interfaces returns the interfaces that have a policy.
func (p *policies) interfaces(ctx context.Context) ([]string, error) {
	all, err := p.watcher.Here(ctx, inforce.Recent)
	return devsOf(all), err
}

func devsOf(all []inforce.State) (devs []string) {
	for _, s := range all {
		devs = append(devs, s.Dev)
	}
	return devs
}

// read reads the policies of files and of interfaces. Those that cannot be read are left out, and
// are an error beside the others.
func (p *policies) read(ctx context.Context) (out []*policy.Policy, err error) {
	for _, file := range p.files {
		pol, failed := p.readFile(file)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		out = append(out, pol)
	}
	p.instead = nil
	for _, dev := range p.devs { // also beside files: whom they protect is kept
		p.instead = errors.Join(p.instead, insteadOn(ctx, dev))
		pol, failed := lockout.InForce(ctx, dev)
		if generation.IsGone(failed) {
			continue // the next look at what is in force has that
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", dev, failed))
			continue
		}
		if len(p.files) > 0 {
			pol.Sources, pol.Lists = nil, nil
		}
		out = append(out, pol)
	}
	return out, err
}

// insteadOn returns an error where something else is in force on an interface than the policy that
// should be.
func insteadOn(ctx context.Context, dev string) error {
	shown, _, err := inspect.Show(ctx, dev)
	switch {
	case err != nil: // which is told when the policy is read
		return nil
	case shown.OnError != "":
		err = fmt.Errorf("on %s only what \"on error\" says is in force: %s", dev, shown.OnError)
	case shown.Instead != "":
		err = fmt.Errorf("on %s a policy that was in force before stands in for another: %s", dev,
			shown.Instead)
	default:
		return nil
	}
	return part.Do(err, "mend what it says, then levee up "+shown.Path+" --dev "+dev)
}

// others returns the destinations of this machine, and the addresses of sessions.
func (p *policies) others(context.Context) (map[netip.Prefix]string, error) {
	out := map[netip.Prefix]string{}
	self, err := local.Prefixes()
	for _, to := range self {
		if to.Bits() > 0 { // a route for everybody, as of a proxy, keeps nobody
			out[to] = "an address of this machine"
		}
	}
	in, lerr := session.LoggedIn()
	for a, what := range in {
		out[netip.PrefixFrom(a, a.BitLen())] = what + " comes from there"
	}
	return out, errors.Join(err, lerr)
}

// LeaseOnce leases entries where no agent runs, by the policies in force.
func LeaseOnce(ctx context.Context, in *agent.AddInput,
	say func(format string, args ...any)) (n int, err error) {
	l, err := ledger.Open(client.Ledger(), 100*time.Millisecond)
	if err != nil {
		return 0, err
	}
	watcher := &inforce.Watcher{}
	k := &enforce.Kernel{Counted: watcher.Counted}
	defer k.Close()
	p := &policies{watcher: watcher}
	n, err = agent.LeaseOnce(ctx, l, agent.Options{Policies: p.read, InForce: p.inForce,
		Others: p.others, Upstream: upstream.Read, Kernel: k, Log: say}, in)
	return n, errors.Join(err, l.Close())
}
