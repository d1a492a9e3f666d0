// Command attack floods policies that remember with forged packets, and tells what got past them.
//
// It makes two network namespaces joined by a veth pair, puts a policy with connections, a cookie,
// a limit, a greylist and fragments on the server's end at each hook, and opens sessions of both
// sides over TCP, by IPv4 and IPv6. Each kind of forged packet is then sent a given number of
// times. Of those that belong to nothing nothing may pass as established; what a limit guards
// passes within its rate; those that carry the addresses and ports of a session, with random
// numbers, may not end it. A second policy, with streams, proofs by echo, tunnels and a cookie for
// queries, has kinds of its own. With -replaces the policy changes beside one flood of several
// kinds. It knows levee by its commands alone. It exits with 1 where a promise was broken.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// policy remembers in all ways that face forged packets.
const policy = `
fragments track as "fragments"
pass established as "known"
cookie tcp port 80 as "cookie"
pass tcp syn port { 80, 2222 } as "new"
limit udp port 53 rate 50/s burst 50 by source as "queries"
pass udp port 53 as "dns"
greylist udp port 1012 after 100ms within 10s as "first"
pass udp port 1012 as "again"
default drop
`

// mac is the server's Ethernet address.
const mac = "02:00:00:00:00:01"

// beside is on the world's end, which takes the cookie's answers only if a program is there.
const beside = "count tcp flags ack from port 80 as \"answers\"\ndefault pass\n"

func main() {
	if len(os.Args) > 2 && os.Args[1] == "role" {
		if err := role(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	count := flag.Int("count", 5_000_000, "forged packets of each kind")
	levee := flag.String("levee", "bin/levee", "the command")
	hooks := flag.String("hooks", "xdp-native,xdp-generic,tcx,clsact", "where the policy runs")
	only := flag.String("only", "", "only kinds whose name this regular expression matches")
	replaces := flag.Bool("replaces", false, "in place of kinds, change the policy beside a flood")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	chosen, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(2)
	}
	attack := func(f *field) (int, error) { return f.attack(chosen, *count) }
	if *replaces {
		attack = (*field).replaces
	}
	if err := run(ctx, *levee, strings.Split(*hooks, ","), attack); err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, levee string, hooks []string,
	attack func(*field) (int, error)) error {
	levee, err := filepath.Abs(levee)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "levee-attack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	key := exec.Command(levee, "knock", "key", filepath.Join(dir, keyFile))
	if said, err := key.CombinedOutput(); err != nil {
		return fmt.Errorf("make a key: %w: %s", err, said)
	}
	broken := 0
	for _, hook := range hooks {
		f := &field{ctx: ctx, levee: levee, dir: dir, hook: hook}
		n, err := attack(f)
		broken += n
		if err := errors.Join(err, f.close()); err != nil {
			return fmt.Errorf("%s: %w", hook, err)
		}
	}
	if broken > 0 {
		return fmt.Errorf("%d promises were broken", broken)
	}
	return nil
}

// field is two hosts and what runs on them.
type field struct {
	ctx              context.Context
	levee, dir, hook string
	policy           string // its file
	made             bool
	changes          int // of the policy
	agent            *exec.Cmd
	server, world    *peer
}

// names of the namespaces.
func (f *field) names() (server, world string) {
	id := fmt.Sprint("levee-attack-", os.Getpid())
	return id + "-s", id + "-w"
}

// command runs a command and returns what it prints.
func (f *field) command(name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Env = f.env()
	var said, errs strings.Builder
	c.Stdout, c.Stderr = &said, &errs
	if err := c.Run(); err != nil {
		return said.String(), fmt.Errorf("%s %s: %w: %s%s", name, strings.Join(args, " "), err,
			said.String(), errs.String())
	}
	return said.String(), nil
}

func (f *field) env() []string {
	return append(os.Environ(), "LEVEE_RUN="+f.dir+"/run", "LEVEE_LIB="+f.dir+"/lib")
}

// startAgent runs the agent of the server, where the policy has a source, until it takes knocks.
func (f *field) startAgent() error {
	s, _ := f.names()
	f.agent = f.start("agent", "run", "--interval", "100ms")
	f.agent.Args = append([]string{"ip", "netns", "exec", s}, f.agent.Args...)
	f.agent.Path, f.agent.Err = exec.LookPath("ip")
	if err := f.agent.Start(); err != nil {
		return err
	}
	for until := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		said, err := f.command("ip", "netns", "exec", s, f.levee, "agent", "status")
		if strings.Contains(said, "works     source ops") {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("the agent takes no knocks: %s%w", said, err)
		}
	}
}

// open makes the hosts, their policies and their sessions.
func (f *field) open(policy string) error {
	s, w := f.names()
	write := func(name, text string) string {
		path := filepath.Join(f.dir, name)
		_ = os.WriteFile(path, []byte(text), 0o600) // levee says what it cannot read
		return path
	}
	policy = strings.ReplaceAll(policy, keyFile, filepath.Join(f.dir, keyFile))
	f.made, f.policy = true, write("attack.levee", policy)
	for _, line := range []string{
		"ip netns add " + s, "ip netns add " + w,
		"ip link add eth0 netns " + s + " address " + mac + " type veth peer name w0 netns " + w,
		"ip -n " + s + " addr add 192.0.2.1/24 dev eth0",
		"ip -n " + s + " addr add 2001:db8::1/64 dev eth0 nodad",
		"ip -n " + w + " addr add 192.0.2.2/24 dev w0",
		"ip -n " + w + " addr add 2001:db8::2/64 dev w0 nodad",
		"ip -n " + s + " link set lo up", "ip -n " + w + " link set lo up",
		"ip -n " + s + " link set eth0 up", "ip -n " + w + " link set w0 up",
		// Answers to forged addresses leave, and end at the world's host without an error.
		"ip -n " + s + " route add default via 192.0.2.2",
		"ip -n " + s + " route add default via 2001:db8::2",
		"ip -n " + w + " route add blackhole default",
		"ip -n " + w + " -6 route add blackhole default",
		// Live frames are taken by an end that receives by NAPI.
		"ip netns exec " + s + " ethtool -K eth0 gro on",
		"ip netns exec " + w + " " + f.levee + " up " + write("beside.levee", beside) +
			" --dev w0 --mode xdp-native",
		"ip netns exec " + s + " " + f.levee + " up " + f.policy +
			" --dev eth0 --force --mode " + f.hook,
	} {
		a := strings.Fields(line)
		if _, err := f.command(a[0], a[1:]...); err != nil {
			return err
		}
	}
	var err error
	if strings.Contains(policy, `source "ops"`) {
		if err = f.startAgent(); err != nil {
			return err
		}
	}
	if f.server, err = newPeer(f.ctx, s, "server"); err != nil {
		return err
	}
	if f.world, err = newPeer(f.ctx, w, "world"); err != nil {
		return err
	}
	return f.sessions()
}

// sessions says whether both sides' sessions live.
func (f *field) sessions() error {
	return errors.Join(f.world.check(), f.server.check())
}

// close removes the hosts and what runs there.
func (f *field) close() error {
	for _, p := range []*peer{f.server, f.world} {
		if p != nil {
			p.stop()
		}
	}
	if !f.made {
		return nil
	}
	s, w := f.names()
	if f.agent != nil {
		_ = f.agent.Process.Signal(os.Interrupt)
		_ = f.agent.Wait() // it was interrupted
		f.agent = nil
	}
	f.command("ip", "netns", "exec", s, f.levee, "down", "--dev", "eth0")
	f.command("ip", "netns", "exec", w, f.levee, "down", "--dev", "w0")
	_, err := f.command("ip", "netns", "del", s)
	_, err2 := f.command("ip", "netns", "del", w)
	f.made, f.server, f.world = false, nil, nil
	return errors.Join(err, err2)
}

// status holds the fields that are read of `levee status --json`.
type status struct {
	Interfaces []struct {
		Rules []struct {
			Label   string
			Packets int
		}
		Cookies      struct{ Proven int }
		Connections  struct{ Refused int }
		Sets         []struct{ Entries int }
		TrialSeconds float64 `json:"trial_seconds"`
	}
}

func (f *field) status() (status, error) {
	server, _ := f.names()
	return f.statusOf(server, "eth0")
}

func (f *field) statusOf(netns, dev string) (s status, err error) {
	text, err := f.command("ip", "netns", "exec", netns, f.levee, "status", "--dev", dev, "--json")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(text), &s)
}

// counts are packets by label, and "proven": the clients that are.
type counts map[string]int

// counts are those of both ends, of which only the world's has "answers"; "refused" is how many
// connections found no place, "served" how many datagrams the server has got at ports that limits
// guard.
func (f *field) counts() (counts, error) {
	c := counts{}
	server, world := f.names()
	for netns, dev := range map[string]string{server: "eth0", world: "w0"} {
		s, err := f.statusOf(netns, dev)
		if err != nil {
			return nil, err
		}
		for _, i := range s.Interfaces {
			c["proven"] += i.Cookies.Proven
			c["refused"] += i.Connections.Refused
			for _, r := range i.Rules {
				c[r.Label] += r.Packets
			}
			for _, s := range i.Sets {
				c["entries"] += s.Entries
			}
		}
	}
	served, err := f.server.count()
	c["served"] = served.Paid
	return c, err
}

// scenes are the policies, each with its kinds, which need the local ports of sessions.
var scenes = []struct {
	policy string
	kinds  func(world, server map[string]int) []kind
}{{policy, kinds}, {more, moreKinds}}

// attack sends the kinds that are asked for and returns how many promises were broken.
func (f *field) attack(only *regexp.Regexp, count int) (broken int, err error) {
	for _, s := range scenes {
		asked := func(k kind) bool { return only.MatchString(k.name) }
		if !slices.ContainsFunc(s.kinds(nil, nil), asked) {
			continue
		}
		n, err := f.scene(s.policy, s.kinds, asked, count)
		broken += n
		if err := errors.Join(err, f.close()); err != nil {
			return broken, err
		}
	}
	return broken, nil
}

// scene sends the kinds of a policy.
func (f *field) scene(policy string, kinds func(world, server map[string]int) []kind,
	asked func(kind) bool, count int) (broken int, err error) {
	if err := f.open(policy); err != nil {
		return 0, err
	}
	for _, k := range kinds(f.world.ports, f.server.ports) {
		if f.ctx.Err() != nil {
			return broken, f.ctx.Err()
		}
		if !asked(k) {
			continue
		}
		r, err := f.flood(k, count)
		if err != nil {
			return broken, fmt.Errorf("%s: %w", k.name, err)
		}
		told := k.judge(r)
		if r.beside != nil {
			told = append(told, r.beside.Error())
		}
		if err := f.sessions(); err != nil {
			told = append(told, "a session ended: "+err.Error())
		}
		if k.finish != nil {
			if err := k.finish(f, r); err != nil {
				told = append(told, err.Error())
			}
		}
		verdict := "held"
		if len(told) > 0 {
			broken++
			verdict = "BROKEN: " + strings.Join(told, "; ")
		}
		fmt.Printf("%-11s  %-44s %9d sent  known %7d  new %8d  dns %4d  %s\n", f.hook, k.name,
			r.sent, r.more("known"), r.more("new"), r.more("dns"), verdict)
	}
	return broken, nil
}

// result holds the counts before and after the packets of one kind.
type result struct {
	hook          string
	sent          int // that the server's end took
	span          time.Duration
	before, after counts
	beside        error // of what was done meanwhile
}

// more returns the increase of a counter.
func (r result) more(name string) int { return r.after[name] - r.before[name] }

// flood sends one kind.
func (f *field) flood(k kind, count int) (r result, err error) {
	r.hook = f.hook
	if k.prepare != nil {
		if err := k.prepare(f); err != nil {
			return r, err
		}
	}
	if r.before, err = f.counts(); err != nil {
		return r, err
	}
	beside := make(chan error, 1)
	if k.beside == nil {
		beside <- nil
	} else {
		go func() { beside <- k.beside(f) }()
	}
	send := k.send
	if send == nil {
		send = func(f *field, count int) (int, error) { return f.gen(k.packet, count) }
	}
	begun := time.Now()
	for done := false; !done; { // for as long as what is beside it
		n, err := send(f, max(count/k.part, 1))
		if r.sent += n; err != nil {
			<-beside
			return r, err
		}
		select {
		case r.beside = <-beside:
			done = true
		default:
		}
	}
	r.span = time.Since(begun)
	time.Sleep(100 * time.Millisecond) // what is in the ring is judged
	r.after, err = f.counts()
	return r, err
}

// gen sends packets of a template from the world's end, and returns how many the server's took.
func (f *field) gen(template string, count int) (int, error) {
	path := filepath.Join(f.dir, "template")
	if err := os.WriteFile(path, []byte(template), 0o600); err != nil {
		return 0, err
	}
	_, w := f.names()
	text, err := f.command(f.levee, "gen", "--netns", w, "--dev", "w0", "--own-network",
		"--template", path, "--count", fmt.Sprint(count), "--duration", "120s", "--json",
		"--seed", fmt.Sprint(time.Now().UnixNano()%1e9))
	if err != nil {
		return 0, err
	}
	var told struct{ Sent, Refused int }
	err = json.Unmarshal([]byte(text), &told)
	return told.Sent - told.Refused, err
}
