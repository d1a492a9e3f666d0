package scale

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"levee/internal/bench"
	"levee/internal/lab"
	"levee/internal/lab/contender"
)

// Tool is one tool with the set or the rules, under a flood of which it drops everything.
type Tool struct {
	Name string `json:"name"`
	What string `json:"what"`
	// MedianPPS is packets a second of one core, NsPerPacket that core's run time for each; both with
	// 95 % intervals, null where there is no figure, and then Missing or Why says why.
	MedianPPS   *float64       `json:"median_pps"`
	Interval    *[2]float64    `json:"interval"`
	AtLeast     bool           `json:"at_least"` // the generator was the limit
	NsPerPacket *float64       `json:"ns_per_packet"`
	NsInterval  *[2]float64    `json:"ns_interval"`
	LoadNs      *Figure        `json:"load_ns"`   // from nothing to everything in force
	Loads       int            `json:"loads"`     // that LoadNs comes from; in other visits it was switched on and off
	UpdateNs    *Figure        `json:"update_ns"` // one change: by the tool's own command, of levee by its library
	AddsPerSec  *Figure        `json:"adds_per_second,omitempty"`
	Bytes       int64          `json:"bytes"` // growth of kernel memory while loading, median; below 100 KB it is noise
	Missing     string         `json:"missing,omitempty"`
	Why         []string       `json:"why,omitempty"`
	Windows     []bench.Window `json:"windows"`
}

// tool is a contender.Defence that says how long it took.
type tool struct {
	name, what string
	hook       contender.Hook // where what was let through is seen next: contender.LocalIn for the first hook of iptables, behind IP's own count
	needs      [][2]string    // programs, and the Debian packages that have them
	most       int            // entries or rules beyond which it is not tried, 0 for any
	mostWhy    string
	prepare    func(s contender.Site) // writes what install hands to the tool, which is not part of loading; nil for nothing
	install    func(ctx context.Context, s contender.Site) error
	// off and on take what is loaded out of force and put it back: both, or none if each visit loads anew.
	off, on func(ctx context.Context, s contender.Site) error
	change  func(ctx context.Context, s contender.Site) error // one single change; nil for none
	rate    func(ctx context.Context, s contender.Site) (perSecond float64, err error)
	dropped func(ctx context.Context, s contender.Site) (uint64, error)
	remove  func(ctx context.Context, s contender.Site) error

	site                 contender.Site
	installed            bool          // there is something to remove
	kept                 bool          // it is loaded, but off
	spent, last          time.Duration // on loading and changing: in all, and last
	loads, changes, adds []float64
	memory               []int64
	before               uint64 // of the counter, at Install
}

func (t *tool) Name() string         { return t.name }
func (t *tool) Describe() string     { return t.what }
func (t *tool) Hook() contender.Hook { return t.hook }
func (t *tool) Rules() string        { return "" }

// withTools appends the names of tools that are not among the names.
func withTools(names []string, tools []*tool) []string {
	for _, t := range tools {
		if !slices.Contains(names, t.name) {
			names = append(names, t.name)
		}
	}
	return names
}

// loadCaveat says what times to load and to change are made of.
const loadCaveat = "loading in the lab begins with the text in memory, and reading it is part of it; other tools are programs that are started for a load or a change " +
	"(some ms each), levee's library is called within this program"

// loadBudget is how long a tool may load, and change, over all visits: what is loaded when it would take longer
// than that stays, and is only switched off and on.
const loadBudget = 10 * time.Second

// Install puts the rules into force: loads them, times it, and makes one change; or switches on what is there.
func (t *tool) Install(ctx context.Context, s contender.Site) error {
	for _, n := range t.needs {
		if _, err := exec.LookPath(n[0]); err != nil {
			return fmt.Errorf("%s is %w: apt-get install %s", n[0], contender.ErrMissing, n[1])
		}
	}
	t.site = s
	put := t.load
	if t.kept {
		put = t.on
	}
	t.installed, t.kept, t.before = true, false, 0
	if err := put(ctx, s); err != nil {
		return err
	}
	n, err := t.Dropped(ctx)
	t.before = n
	return err
}

// load puts everything into force from nothing.
func (t *tool) load(ctx context.Context, s contender.Site) error {
	if t.prepare != nil {
		t.prepare(s)
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, sane)
	defer cancel()
	memory, err := kernelMemory()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := t.install(ctx, s); err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("%w within %v", errNotLoaded, sane)
		}
		return err
	}
	t.loads = append(t.loads, float64(time.Since(start)))
	after, err := kernelMemory()
	if err != nil {
		return err
	}
	t.memory = append(t.memory, after-memory)
	if err := t.alter(ctx, s); err != nil {
		return err
	}
	t.last = time.Since(begin)
	t.spent += t.last
	return nil
}

// alter times changes of what is loaded. One that takes too long is no reason to give up the rest.
func (t *tool) alter(ctx context.Context, s contender.Site) error {
	if t.rate != nil {
		r, err := t.rate(ctx, s)
		if err != nil {
			return err
		}
		t.adds = append(t.adds, r)
	}
	if t.change == nil {
		return nil
	}
	start := time.Now()
	err := t.change(ctx, s)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.change = nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("making a single change: %w", err)
	}
	t.changes = append(t.changes, float64(time.Since(start)))
	return nil
}

// errNotLoaded is wrapped when loading takes too long.
var errNotLoaded = errors.New("not loaded")

func (t *tool) Dropped(ctx context.Context) (uint64, error) {
	n, err := t.dropped(ctx, t.site)
	return n - t.before, err
}

// Remove takes the rules out of force. What is costly to load stays loaded until the lab is gone.
func (t *tool) Remove(ctx context.Context) error {
	if !t.installed {
		return nil
	}
	t.installed = false
	if t.off != nil && t.last > 0 && t.spent+t.last > loadBudget {
		t.kept = true
		return t.off(ctx, t.site)
	}
	return t.remove(ctx, t.site)
}

// result joins what the lab measured with what Install did.
func (t *tool) result(g *bench.Rung) *Tool {
	out := &Tool{
		Name: g.Name, What: g.What, MedianPPS: g.MedianPPS, Interval: g.Interval, AtLeast: g.AtLeast,
		NsPerPacket: g.NsPerPacket, NsInterval: g.NsInterval, Missing: g.Missing, Why: g.Why, Windows: g.Windows,
	}
	out.LoadNs, out.UpdateNs, out.AddsPerSec = figure(t.loads), figure(t.changes), figure(t.adds)
	out.Loads = len(t.loads)
	if n := len(t.memory); n > 0 {
		slices.Sort(t.memory)
		out.Bytes = t.memory[n/2]
	}
	return out
}

// flood measures tools against each other under one trace. group tells sets and rules apart by what they are made
// of: a tool that could not load one in time is not tried with more of the same. With an error there may still be
// results: what was measured before.
func (o *Options) flood(ctx context.Context, group, what string, size int, tools []*tool, trace bench.Trace) ([]*Tool, error) {
	var defences []contender.Defence
	var out []*Tool
	var used []*tool
	for _, t := range tools {
		slow := o.slow[group+", "+t.name]
		switch {
		case !o.wants(t.name):
		case t.most > 0 && size > t.most:
			out = append(out, &Tool{Name: t.name, What: t.what, Missing: t.mostWhy, Windows: []bench.Window{}})
		case slow > 0 && size >= slow:
			out = append(out, &Tool{Name: t.name, What: t.what, Missing: fmt.Sprintf("%v within %v: %d of the same kind took longer", errNotLoaded, sane, slow), Windows: []bench.Window{}})
		default:
			defences, used = append(defences, t), append(used, t)
		}
	}
	if len(used) == 0 {
		return out, nil
	}
	r, err := bench.Measure(ctx, o.ladder(what), defences, []bench.Trace{trace})
	if r == nil {
		return nil, err
	}
	var measured []*Tool
	for i, t := range used {
		x := t.result(r.Rungs[i])
		if strings.HasPrefix(x.Missing, errNotLoaded.Error()) {
			o.slow[group+", "+t.name] = size
		}
		if err != nil && x.MedianPPS == nil && x.Missing == "" {
			x.Why = append(x.Why, "the run ended before there were enough rounds")
		}
		measured = append(measured, x)
	}
	return append(measured, out...), err
}

// run runs a program inside a host of the lab with input, and returns what it wrote.
func run(ctx context.Context, h *lab.Host, input []byte, name string, args ...string) ([]byte, error) {
	cmd := h.Command(ctx, name, args...)
	if input != nil {
		cmd.Stdin = bytes.NewReader(input)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		said, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		if len(said) > 200 {
			said = said[:200] + "..."
		}
		return nil, fmt.Errorf("%s: %w: %s", name, err, said)
	}
	return out, nil
}

// kernelMemory is what the kernel uses for itself, in bytes: unreclaimable slabs, virtual mappings and
// data of each CPU (/proc/meminfo). What maps, sets and rules are made of is in one of them.
func kernelMemory() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	var sum int64
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "SUnreclaim:", "VmallocUsed:", "Percpu:":
			kb, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("reading /proc/meminfo: %w", err)
			}
			sum += kb << 10
		}
	}
	return sum, nil
}

// driverDrops is the driver's count of packets that XDP dropped.
func driverDrops(_ context.Context, s contender.Site) (n uint64, err error) {
	err = s.Host.Do(func() error {
		c, err := lab.Counters(s.Device)
		n = c[contender.XDPDropped]
		return err
	})
	return n, err
}
