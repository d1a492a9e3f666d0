package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// shape holds the parts of a policy that change between replaces.
type shape struct {
	rate, burst int // of each limit, in packets a second and packets
	memory      string
	connections int
}

// budgets are so many that the flood of replaces meets: of a source over IPv4, of one over IPv6,
// and of all sources.
const budgets = 3

func (s shape) policy(comment int) string {
	return fmt.Sprintf(`# %d
connections max %d
fragments track
pass established as "known"
pass tcp syn port { 80, 2222 } as "new"
limit udp port 53 rate %d/s burst %d by source memory %s as "queries"
pass udp port 53 as "dns"
limit udp port 54 rate %d/s burst %d as "more"
pass udp port 54 as "all"
default drop
`, comment, s.connections, s.rate, s.burst, s.memory, s.rate, s.burst)
}

// Ways in which the policy in force changes.
type way int

const (
	replaced  way = iota
	runsOut       // on trial until its end
	takenBack     // on trial until an interrupt
	confirmed     // on trial until `levee confirm`
	before        // by `levee rollback`
)

// step is one change of the policy in force.
type step struct {
	way way
	to  shape // not of before
}

// trial is the length of a trial that runs out.
const trial = 2 * time.Second

// phases are the changes, each phase beside a flood of its own.
func phases(s shape) []struct {
	name  string
	steps []step
} {
	of := func(change func(*shape)) shape {
		next := s
		change(&next)
		return next
	}
	burst := func(n int) shape { return of(func(s *shape) { s.burst = n }) }
	rate := func(n int) shape { return of(func(s *shape) { s.rate = n }) }
	room := func(memory string, n int) shape {
		return of(func(s *shape) { s.memory, s.connections = memory, n })
	}
	return []struct {
		name  string
		steps []step
	}{
		{"nothing changes", []step{{replaced, s}, {replaced, s}, {replaced, s}}},
		{"bursts", []step{{replaced, burst(8000)}, {replaced, burst(3000)}, {before, shape{}},
			{replaced, s}}},
		{"rates", []step{{replaced, rate(500)}, {replaced, rate(20_000)}, {before, shape{}},
			{replaced, s}}},
		{"memories", []step{{replaced, room("1MB", 65_536)}, {replaced, room("8kB", 16_384)},
			{replaced, room("64kB", 32_768)}, {replaced, s}}},
		{"trials", []step{{runsOut, s}, {runsOut, room("1MB", 65_536)}, {takenBack, burst(8000)},
			{confirmed, rate(4000)}}},
	}
}

// mixed is the flood of replaces: what limits guard, and what no rule lets pass.
func mixed() string {
	var all strings.Builder
	for _, ip := range []struct{ family, here, anybody, victim string }{
		{"ipv4", "192.0.2.1", "16.0.0.0/4", "203.0.113.7"},
		{"ipv6", "2001:db8::1", "2a00::/12", "2a01:db8::7"},
	} {
		wild := "from port 1024-65535 random port"
		for _, packet := range []string{
			"udp from " + ip.victim + " " + wild + " 53",
			"udp from " + ip.anybody + " random " + wild + " 54",
			"udp from " + ip.anybody + " random " + wild + " 9",
			"udp from " + ip.victim + " from port 53 port 1024-65535 random",
			"tcp flags ack from " + ip.anybody + " random " + wild + " 2222 seq random",
			"tcp flags syn,ack from " + ip.anybody + " random " + wild + " 80 seq random",
		} {
			fmt.Fprintln(&all, ip.family, packet, "to", ip.here, "ether to", mac)
		}
	}
	return all.String()
}

// perCPU is the number of packets of the flood that each of two CPUs sends a second, and judges.
const perCPU = "150k"

// replaces changes the policy while a flood comes, phase by phase, and returns how many promises
// were broken: budgets pay what rates and bursts say, nothing else passes, and sessions go on.
func (f *field) replaces() (broken int, err error) {
	s := shape{rate: 5000, burst: 5000, memory: "8kB", connections: 16_384}
	if err := f.open(s.policy(0)); err != nil {
		return 0, err
	}
	b := &bound{is: s, was: s}
	for _, p := range phases(s) {
		told, paid, most, err := f.phase(b, p.steps)
		if err != nil {
			return broken, fmt.Errorf("%s: %w", p.name, err)
		}
		verdict := "held"
		if told != nil {
			broken++
			verdict = "BROKEN: " + told.Error()
		}
		fmt.Printf("%-11s  %-16s %d changes  paid %7d of %7d  %s\n", f.hook, p.name, len(p.steps),
			paid, most, verdict)
	}
	return broken, nil
}

// phase makes some changes beside a flood. It says which promises were broken, and how many packets
// budgets paid and were to pay at most.
func (f *field) phase(b *bound, steps []step) (told error, paid, most int, err error) {
	start, err := f.server.count()
	if err != nil {
		return nil, 0, 0, err
	}
	b.begin()
	stop, err := f.floodOn()
	if err != nil {
		return nil, 0, 0, err
	}
	for _, s := range steps {
		time.Sleep(500 * time.Millisecond) // under a policy that stays
		if err = f.change(b, s); err != nil {
			break
		}
		if bad := f.sessions(); bad != nil {
			told = errors.Join(told, fmt.Errorf("a session ended: %w", bad))
		}
	}
	if err = errors.Join(err, stop()); err != nil {
		return nil, 0, 0, err
	}
	most = b.end()
	end, err := f.server.count()
	if err != nil {
		return nil, 0, 0, err
	}
	for name, n := range end.Stray {
		if n -= start.Stray[name]; n > 0 {
			told = errors.Join(told, fmt.Errorf("%d packets passed that no rule lets pass: %s", n,
				name))
		}
	}
	if paid = end.Paid - start.Paid; paid == 0 {
		return nil, 0, 0, errors.New("no flood came")
	}
	if paid > most {
		told = errors.Join(told, fmt.Errorf("budgets overpaid by %d", paid-most))
	}
	return told, paid, most, nil
}

// floodOn begins a flood that two CPUs send, and returns what ends it.
func (f *field) floodOn() (stop func() error, err error) {
	_, w := f.names()
	path := filepath.Join(f.dir, "flood")
	if err := os.WriteFile(path, []byte(mixed()), 0o600); err != nil {
		return nil, err
	}
	var all []*exec.Cmd
	stop = func() (err error) {
		for _, c := range all {
			err = errors.Join(err, c.Process.Signal(os.Interrupt))
		}
		for _, c := range all {
			_ = c.Wait() // it was interrupted
		}
		return err
	}
	for cpu := range min(2, runtime.NumCPU()) {
		c := f.start("gen", "--netns", w, "--dev", "w0", "--own-network", "--template", path,
			"--cpu", fmt.Sprint(cpu), "--rate", perCPU, "--duration", "5m",
			"--seed", fmt.Sprint(time.Now().UnixNano()%1e9))
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			return nil, errors.Join(err, stop())
		}
		all = append(all, c)
	}
	return stop, nil
}

// start is a command of levee that is not begun yet.
func (f *field) start(args ...string) *exec.Cmd {
	c := exec.CommandContext(f.ctx, f.levee, args...)
	c.Env = f.env()
	return c
}

// change makes one change of the policy in force, and waits until it is whole.
func (f *field) change(b *bound, s step) error {
	server, _ := f.names()
	f.changes++
	path := filepath.Join(f.dir, "attack.levee")
	if err := os.WriteFile(path, []byte(s.to.policy(f.changes)), 0o600); err != nil {
		return err
	}
	inServer := func(args ...string) error {
		_, err := f.command("ip", append([]string{"netns", "exec", server, f.levee}, args...)...)
		return err
	}
	up := []string{"up", path, "--dev", "eth0", "--force"}
	switch s.way {
	case replaced:
		b.change()
		err := inServer(up...)
		b.changed(s.to)
		return err
	case before:
		b.change()
		err := inServer("rollback", "--dev", "eth0", "--force")
		b.changed(b.was)
		return err
	}
	length := trial
	if s.way != runsOut {
		length = time.Minute
	}
	b.change()
	ctx, stop := context.WithTimeout(f.ctx, 2*time.Minute)
	defer stop()
	c := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", server, f.levee},
		append(up, "--confirm", length.String())...)...)
	c.Env = f.env()
	if err := c.Start(); err != nil {
		return err
	}
	if s.way != runsOut {
		for on := false; !on; time.Sleep(time.Second) { // it judges a while
			now, err := f.status()
			if err = cmp.Or(err, ctx.Err()); err != nil { // the trial may have failed
				return err
			}
			on = len(now.Interfaces) > 0 && now.Interfaces[0].TrialSeconds > 0
		}
	}
	switch s.way {
	case takenBack:
		if err := c.Process.Signal(os.Interrupt); err != nil {
			return err
		}
	case confirmed:
		if err := inServer("confirm", "--dev", "eth0"); err != nil {
			return err
		}
	}
	err := c.Wait()
	if s.way == confirmed {
		b.changed(s.to)
		return err
	}
	b.returned(s.to)
	if err == nil {
		return errors.New("a trial that nobody confirmed was confirmed")
	}
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		return err
	}
	return nil
}

// bound works out how many packets budgets may pay, from when a flood begins to its end.
type bound struct {
	is, was shape // in force, and before that
	since   time.Time
	most    float64
}

// begin is with budgets that are full.
func (b *bound) begin() { b.since, b.most = time.Now(), float64(b.is.burst) }

// pays has rates pay since when this was last asked. A clock of the kernel has ticks of 10 ms.
func (b *bound) pays(rate int) (span time.Duration) {
	now := time.Now()
	span = now.Sub(b.since) + 10*time.Millisecond
	b.most += float64(rate) * span.Seconds()
	b.since = now
	return span
}

// change is said before one is made.
func (b *bound) change() { b.pays(b.is.rate) }

// changed is said when one has been made: either policy may have been in force since. What was
// spent stays spent, so a larger burst pays no more than what it is larger.
func (b *bound) changed(to shape) {
	b.pays(max(b.is.rate, to.rate))
	b.most += float64(max(0, to.burst-b.is.burst))
	if to != b.is {
		b.was = b.is
	}
	b.is = to
}

// returned is said when a trial has ended that was not confirmed. Budgets are as the policy before
// left them, and have got its rate meanwhile; those of one shape are the same.
func (b *bound) returned(from shape) {
	span := b.pays(max(b.is.rate, from.rate))
	b.most += float64(max(0, from.burst-b.is.burst))
	if from.rate != b.is.rate || from.burst != b.is.burst || from.memory != b.is.memory {
		b.most += min(float64(b.is.burst), float64(b.is.rate)*span.Seconds())
	}
}

// end returns the largest number of packets that all budgets together may have paid.
func (b *bound) end() int {
	b.pays(b.is.rate)
	return budgets * int(b.most+1)
}

// counted holds the packets that a host has got over UDP at ports that limits guard, and those that
// no rule lets pass.
type counted struct {
	Paid  int
	Stray map[string]int // by the kernel's names of its counters
}

// count waits until nothing comes any more.
func (p *peer) count() (c counted, err error) {
	for last := -1; c.Paid != last; time.Sleep(200 * time.Millisecond) {
		last, c = c.Paid, counted{}
		fmt.Fprintln(p.in, "count")
		if !p.out.Scan() {
			return c, errors.New("a host ended")
		}
		if err := json.Unmarshal(p.out.Bytes(), &c); err != nil {
			return c, fmt.Errorf("%s: %w", p.out.Text(), err)
		}
	}
	return c, nil
}
