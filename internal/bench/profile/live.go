package profile

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"levee/internal/bench"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/inspect"
	"levee/internal/kernel"
	"levee/internal/lang/diag"
	"levee/internal/usage"
)

// LiveOptions are those of a profile of an interface in service.
type LiveOptions struct {
	bench.Options
	Dev  string // an interface of this network namespace
	CPUs []int  // cores to look at; empty for all
	// Marks, if given, bounds the profile: it begins with the first line and ends with the second,
	// or with the end of the lines. Else it has Rounds windows from now on.
	Marks     io.Reader
	Frequency int // samples a second of each core, 0 for 997
}

const (
	// drainEvery is how often samples are taken out: so the memory for them is small.
	drainEvery = 100 * time.Millisecond
	// longestLive is how long a profile between marks may last.
	longestLive = 10 * time.Minute
	// fewestOfProgram are the samples of a program that say what it takes for a packet.
	fewestOfProgram = 100
	longestMark     = 80 // letters of a mark's name
)

// usualLive are the windows of a profile in service.
var usualLive = bench.Usual{
	Rounds: 10, FewestRounds: 1, MostRounds: 600,
	Window: time.Second, QuickWindow: 250 * time.Millisecond, Shortest: 100 * time.Millisecond,
	Longest: 2 * time.Second,
}

func (o *LiveOptions) complete() error {
	if err := o.Options.Complete(usualLive); err != nil {
		return err
	}
	return completeFrequency(&o.Frequency)
}

// RunLive profiles the cores of the machine while an interface is in service. It sends nothing and
// attaches nothing but samplers, which end with the process. It needs root. When ctx ends early the
// report has what was seen until then, says that it is incomplete, and comes with the error.
func RunLive(ctx context.Context, o LiveOptions) (*Report, error) {
	if err := bench.Ready("profile", o.complete()); err != nil {
		return nil, err
	}
	dev, err := attach.FindDevice(o.Dev)
	if err != nil {
		return nil, err
	}
	o.Dev = dev.Name
	all, err := o.chooseCPUs()
	if err != nil {
		return nil, err
	}
	names, err := readKernel()
	if err != nil {
		return nil, err
	}
	l := &liveRun{LiveOptions: &o, dev: dev, all: all, classifier: classifier{symbols: names,
		drivers: driversOf(dev), live: true}}
	defer l.close()
	if err := l.open(); err != nil {
		return nil, err
	}
	r := &Report{Head: o.Head(o.CPUs[0]), Rung: o.Dev, Event: l.samplers[0].event,
		Frequency: o.Frequency, WindowMS: o.Window.Milliseconds(),
		Live: &Live{Dev: o.Dev, CPUs: o.CPUs, Driver: strings.Join(l.drivers, ", ")}}
	r.begin()
	err = l.run(ctx, r)
	if err != nil && (r.sampled == 0 || ctx.Err() == nil) {
		return nil, err
	}
	if err != nil {
		r.Incomplete = "interrupted; these are the windows until then"
	}
	for _, s := range l.samplers {
		r.Lost += s.lost
	}
	r.end()
	r.Live.end(l)
	r.What = r.Live.what()
	r.Caveats = r.liveCaveats()
	if r.sampled == 0 {
		r.Why = append(r.Why, "no core was seen at work: the time was too short, or all slept")
	}
	return r, err
}

// chooseCPUs takes all cores that are online, or refuses one that is not. It tells whether it took
// all.
func (o *LiveOptions) chooseCPUs() (whole bool, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return false, kernel.Refuse(err, "read which cores there are")
	}
	all, err := coresIn(string(text))
	if err != nil {
		return false, err
	}
	for _, c := range o.CPUs {
		if !slices.Contains(all, c) {
			return false, usage.Wrongf("there is no core %d: online are %s", c,
				usage.Numbers(all))
		}
	}
	if len(o.CPUs) == 0 {
		o.CPUs = all
	}
	slices.Sort(o.CPUs)
	o.CPUs = slices.Compact(o.CPUs)
	return len(o.CPUs) == len(all), nil
}

// driversOf returns the driver of an interface and, of a bond, those of its ports.
func driversOf(d *attach.Device) (all []string) {
	c := d.Card()
	for _, each := range append(c.Ports, c) {
		if each.Driver != "" && !slices.Contains(all, each.Driver) {
			all = append(all, each.Driver)
		}
	}
	return all
}

// liveRun is a profile in service while it is made.
type liveRun struct {
	*LiveOptions
	dev *attach.Device
	all bool // cores that are online are profiled
	classifier
	samplers []*sampler // one for each core
	reader   inspect.Reader
	marks    <-chan string

	first, before reading // at the beginning of the profile, and of the window
}

// reading is what is counted at a moment.
type reading struct {
	at    time.Time
	times []times // of each core
	// Of the interface: what its policy has judged of what arrived, or what the kernel was given
	// where there is none.
	packets    uint64
	policy     string // "" for none
	hook       string
	generation int
	programs   []ebpf.ProgramID // of the policy, and of its trial
}

func (l *liveRun) open() error {
	for _, cpu := range l.CPUs {
		s, err := newSampler(cpu, l.Frequency, 3*drainEvery)
		if err != nil {
			return err
		}
		l.samplers = append(l.samplers, s)
	}
	return nil
}

func (l *liveRun) close() {
	for _, s := range l.samplers {
		s.close()
	}
	l.reader.Close()
}

// run makes the windows of the report.
func (l *liveRun) run(ctx context.Context, r *Report) error {
	if l.Marks != nil {
		from, err := l.firstMark(ctx)
		if err != nil {
			return err
		}
		r.Live.From = from
	}
	var err error
	if l.first, err = l.read(ctx); err != nil {
		return err
	}
	l.before = l.first
	defer func() { r.Live.Took = l.before.at.Sub(l.first.at) }()
	for _, s := range l.samplers {
		if err := s.on(); err != nil {
			return err
		}
	}
	for done := 0; l.Marks != nil || done < l.Rounds; done++ {
		to, ended, err := l.window(ctx, r)
		if err != nil {
			return err
		}
		if ended {
			r.Live.To = to
			return nil
		}
	}
	return nil
}

// firstMark waits for the line with which the profile begins.
func (l *liveRun) firstMark(ctx context.Context) (string, error) {
	l.marks = linesOf(ctx, l.Marks)
	l.Tell("a line of standard input begins the profile of "+l.Dev, 0, 2)
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case name, is := <-l.marks:
		if !is {
			return "", usage.Wrongf("standard input has no mark: a line begins the profile, and " +
				"the next one ends it")
		}
		return name, nil
	}
}

// linesOf sends each line of a text, shortened, until it ends.
func linesOf(ctx context.Context, of io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(of); s.Scan(); {
			name := []rune(strings.TrimSpace(s.Text()))
			select {
			case lines <- string(name[:min(len(name), longestMark)]):
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines
}

// window takes the samples of one, and says whether a mark has ended it.
func (l *liveRun) window(ctx context.Context, r *Report) (to string, ended bool, err error) {
	if err := l.readPrograms(); err != nil { // a policy may have been replaced
		return "", false, err
	}
	cores := make([]*window, len(l.CPUs))
	for i := range cores {
		cores[i] = newWindow(0)
	}
	over := time.After(l.Window)
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for running := true; running && !ended; {
		select {
		case <-ctx.Done():
			return "", false, ctx.Err()
		case to = <-l.marks: // nil without marks; closed at the end of the lines
			ended = true
		case <-over:
			running = false
		case <-tick.C:
		}
		l.tell()
		if err := l.drain(cores); err != nil {
			return "", false, err
		}
	}
	now, err := l.read(ctx)
	if err != nil {
		return "", false, err
	}
	took := now.at.Sub(l.before.at)
	for i, c := range cores {
		c.idle = now.times[i].idleSince(l.before.times[i])
		r.Live.core(i, c)
	}
	x := together(cores)
	r.add(x)
	r.Live.packets(x, &l.before, &now, took, len(l.CPUs))
	if took > 0 && now.packets >= l.before.packets {
		r.PPS = append(r.PPS, float64(now.packets-l.before.packets)/took.Seconds())
	}
	l.before = now
	if l.Marks != nil && !ended && now.at.Sub(l.first.at) > longestLive {
		r.Live.Ended = fmt.Sprintf("no second mark came within %v", longestLive)
		ended = true
	}
	return to, ended, nil
}

func (l *liveRun) tell() {
	if l.Marks != nil {
		l.Tell("a line of standard input ends the profile of "+l.Dev, 1, 2)
		return
	}
	whole := time.Duration(l.Rounds) * l.Window
	l.Tell("profile of "+l.Dev, int(min(time.Since(l.first.at), whole)/l.Window), l.Rounds)
}

// drain counts the samples since the last time.
func (l *liveRun) drain(cores []*window) error {
	for i, s := range l.samplers {
		samples, err := s.take()
		if err != nil {
			return err
		}
		for j := range samples {
			l.count(&samples[j], cores[i])
		}
	}
	return nil
}

// read reads what is counted now.
func (l *liveRun) read(ctx context.Context) (reading, error) {
	now := reading{at: time.Now()}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return now, err
	}
	for _, cpu := range l.CPUs {
		t, err := parseTimes(string(text), cpu)
		if err != nil {
			return now, kernel.Refuse(err, "profile core %d, which has gone", cpu)
		}
		now.times = append(now.times, t)
	}
	link, err := netlink.LinkByIndex(l.dev.Index)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return now, kernel.Refuse(err, "profile %s, which has gone from this network namespace",
			l.Dev)
	}
	if err != nil {
		return now, kernel.Refuse(err, "read the counters of %s", l.Dev)
	}
	all, err := l.reader.Read(ctx)
	if err != nil {
		return now, err
	}
	for i := range all {
		if d := &all[i]; d.Index() == l.dev.Index {
			in := d.InForce()
			now.packets, now.policy, now.hook = d.Arrived(), diag.Base(in.Policy), string(in.Mode)
			now.generation = in.Generation
			now.programs = []ebpf.ProgramID{ebpf.ProgramID(in.Program), ebpf.ProgramID(in.Trial)}
			return now, nil
		}
	}
	now.packets = inspect.ReadReceived(link)
	return now, nil
}
