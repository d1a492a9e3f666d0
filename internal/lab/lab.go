// Package lab makes network namespaces joined by veth pairs, for trying levee and for measuring
// it, and removes them again.
//
// In goes a Topology, out comes a Lab whose hosts are network namespaces visible to `ip netns`
// as levee-LAB-HOST. Addresses come from the ranges set aside for benchmarks and documentation,
// neighbours are static, and the receive path is the one that docs of the measurements promise:
// GRO on, NAPI in a kernel thread pinned to one core, one queue, no qdisc, no reverse-path filter.
//
// Everything is removed by Close, when the context of New ends (pass one from
// signal.NotifyContext to survive Ctrl-C), and, when the owner was killed, by the next New, Sweep
// or Down of any process: each lab is recorded, with its owner, before it exists. The package must
// never touch a namespace, device or process outside a recorded lab.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"levee/internal/usage"
)

// Topology describes the lab that New makes. Use Standard for the usual one.
type Topology struct {
	// Name of the lab: lower-case letters, digits, '-', at most 20. Empty picks one that is unique
	// on this machine.
	Name string
	// Pairs are of veth devices; they name the hosts. The n-th of a host is its device eth<n>.
	Pairs []Pair
	// Forward names the hosts that route between their links.
	Forward []string
	// MTU of all devices in bytes, 0 for 1500.
	MTU int
	// ReceiverCPU runs the NAPI threads of the inner ends, GeneratorCPU those of the outer ends.
	// Without a second core both are 0. A negative number leaves them unpinned.
	ReceiverCPU, GeneratorCPU int
	// Offload leaves checksum and segmentation offload on. Off, which is the default, frames look
	// as they would on a wire: right checksums, none longer than the MTU.
	Offload bool
	// Persistent lets the lab outlive this process, until Down.
	Persistent bool
}

// Pair is one veth pair: Inner is nearer to what is protected, Outer nearer to the world. Pair i
// of a topology has 198.18.i.0/24 and 2001:db8:i::/64, host part 1 for Inner and 2 for Outer.
// Inner's default route leads to Outer.
type Pair struct {
	Inner, Outer string
	// Clients is the number of further addresses of Outer, from host part 10 up, at most 200: real
	// clients can be told from a flood by them. In IPv6 each has a network of its own,
	// 2001:db8:i:HOST::/64.
	Clients int
}

// Server and World are the hosts of Standard.
const (
	Server = "server"
	World  = "world"
)

// Standard returns the topology of the demo and the measurements: one protected device (server
// eth0, 198.18.0.1), and one host beyond it that holds the addresses of 16 clients and also
// transmits the flood, so that both come in by the same device and queue.
func Standard() Topology {
	return Topology{
		Pairs:       []Pair{{Inner: Server, Outer: World, Clients: 16}},
		ReceiverCPU: 1,
	}
}

// Lab is a set of hosts that exist. Its methods may be used from several goroutines.
type Lab struct {
	Name  string
	Hosts []*Host // in the order in which the pairs name them

	ctx    context.Context // ends with Close; bounds the commands
	cancel context.CancelFunc
	stop   func() bool // undoes the closing at the end of New's context
	owned  bool
	once   sync.Once
	err    error
}

var (
	nameRule = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$`)
	serial   atomic.Uint32
)

// ErrExists says that a lab of that name is already there.
var ErrExists = errors.New("lab exists already")

// New makes the lab, after sweeping away those whose owners died. On error nothing is left. It
// needs root. The lab is closed when ctx ends, unless it is persistent.
func New(ctx context.Context, t Topology) (*Lab, error) {
	if err := t.complete(); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("lab %s: making network namespaces needs root: %w", t.Name,
			os.ErrPermission)
	}
	unlock, err := lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := sweep(); err != nil {
		return nil, err
	}
	rec, err := claim(t.Name)
	if err != nil {
		return nil, err
	}
	if err := build(ctx, rec, t); err != nil {
		return nil, errors.Join(fmt.Errorf("lab %s: %w", t.Name, err), rec.remove())
	}
	if t.Persistent {
		rec.Persistent = true
		if err := rec.save(); err != nil {
			return nil, errors.Join(err, rec.remove())
		}
	}
	l := open(rec)
	l.owned = !t.Persistent
	if l.owned {
		l.stop = context.AfterFunc(ctx, func() { l.Close() })
	}
	return l, nil
}

func open(rec *record) *Lab {
	l := &Lab{Name: rec.Name, Hosts: rec.Hosts}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	for _, h := range l.Hosts {
		h.ctx = l.ctx
	}
	return l
}

// Host returns a host by name, or nil.
func (l *Lab) Host(name string) *Host {
	for _, h := range l.Hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// Close ends the commands, and removes the namespaces with every process in them. It may be
// called again; each call returns when the lab is gone. A persistent lab stays: Down removes it.
func (l *Lab) Close() error {
	l.once.Do(func() {
		l.cancel()
		if !l.owned {
			return
		}
		l.stop()
		l.err = Down(context.Background(), l.Name)
		if errors.Is(l.err, ErrNoLab) {
			l.err = nil
		}
	})
	return l.err
}

// complete checks a topology and fills what was left out.
func (t *Topology) complete() error {
	if t.Name == "" {
		t.Name = fmt.Sprintf("%d-%d", os.Getpid(), serial.Add(1))
	}
	if !nameRule.MatchString(t.Name) {
		return usage.Wrongf("name %q: use at most 20 lower-case letters, digits and inner hyphens",
			t.Name)
	}
	if t.MTU == 0 {
		t.MTU = 1500
	}
	if t.MTU < 1280 || t.MTU > 9000 {
		return fmt.Errorf("MTU %d: must be 1280 (what IPv6 needs) to 9000", t.MTU)
	}
	if len(t.Pairs) == 0 || len(t.Pairs) > 100 {
		return fmt.Errorf("%d pairs: there must be 1 to 100", len(t.Pairs))
	}
	for i, k := range t.Pairs {
		for _, h := range []string{k.Inner, k.Outer} {
			if !nameRule.MatchString(h) {
				return fmt.Errorf("link %d: host name %q: use at most 20 lower-case letters, "+
					"digits and inner hyphens", i, h)
			}
		}
		if k.Inner == k.Outer {
			return fmt.Errorf("link %d joins %s to itself", i, k.Inner)
		}
		if k.Clients < 0 || k.Clients > 200 {
			return fmt.Errorf("link %d: %d clients: must be 0 to 200", i, k.Clients)
		}
	}
	for _, f := range t.Forward {
		if !slices.Contains(t.hosts(), f) {
			return fmt.Errorf("forwarding host %q is on no link", f)
		}
	}
	cpus, err := AllowedCPUs()
	if err != nil {
		return err
	}
	t.ReceiverCPU = nearest(cpus, t.ReceiverCPU)
	t.GeneratorCPU = nearest(cpus, t.GeneratorCPU)
	return nil
}

// hosts lists the hosts in the order in which the pairs name them.
func (t *Topology) hosts() []string {
	var names []string
	for _, k := range t.Pairs {
		for _, h := range []string{k.Inner, k.Outer} {
			if !slices.Contains(names, h) {
				names = append(names, h)
			}
		}
	}
	return names
}

// AllowedCPUs lists the cores that this process may use, ascending.
func AllowedCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("reading the allowed cores: %w", err)
	}
	var cpus []int
	for i := 0; i < len(set)*64 && len(cpus) < set.Count(); i++ {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus, nil
}

// nearest is cpu itself when it is allowed or negative, else the highest allowed one below it.
func nearest(cpus []int, cpu int) int {
	if cpu < 0 {
		return -1
	}
	best := cpus[0]
	for _, c := range cpus {
		if c <= cpu {
			best = c
		}
	}
	return best
}
