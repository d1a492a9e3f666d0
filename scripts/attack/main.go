// Command attack floods policies that remember with forged packets, and tells what got past them.
//
// It makes two network namespaces joined by a veth pair, puts a policy with connections, a cookie,
// a limit, a greylist and fragments on the server's end at each hook, and opens sessions of both
// sides over TCP, by IPv4 and IPv6. Each kind of forged packet is then sent a given number of
// times. Of those that belong to nothing nothing may pass as established; what a limit guards
// passes within its rate; those that carry the addresses and ports of a session, with random
// numbers, may not end it. With -replaces the policy changes beside one flood of several kinds.
// It knows levee by its commands alone. It exits with 1 where a promise was broken.
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
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// policy remembers in all ways that face forged packets.
const policy = `
fragments track
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
const beside = "default pass\n"

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
	only := flag.String("only", "", "only kinds with this in their name")
	replaces := flag.Bool("replaces", false, "in place of kinds, change the policy beside a flood")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	attack := func(f *field) (int, error) { return f.attack(*only, *count) }
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
	made             bool
	changes          int // of the policy
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
	c.Env = append(os.Environ(), "LEVEE_RUN="+f.dir)
	var said, errs strings.Builder
	c.Stdout, c.Stderr = &said, &errs
	if err := c.Run(); err != nil {
		return said.String(), fmt.Errorf("%s %s: %w: %s%s", name, strings.Join(args, " "), err,
			said.String(), errs.String())
	}
	return said.String(), nil
}

// open makes the hosts, their policies and their sessions.
func (f *field) open(policy string) error {
	s, w := f.names()
	write := func(name, text string) string {
		path := filepath.Join(f.dir, name)
		_ = os.WriteFile(path, []byte(text), 0o600) // levee says what it cannot read
		return path
	}
	f.made = true
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
		"ip netns exec " + s + " " + f.levee + " up " + write("attack.levee", policy) +
			" --dev eth0 --force --mode " + f.hook,
	} {
		a := strings.Fields(line)
		if _, err := f.command(a[0], a[1:]...); err != nil {
			return err
		}
	}
	var err error
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
	f.command("ip", "netns", "exec", s, f.levee, "down", "--dev", "eth0")
	f.command("ip", "netns", "exec", w, f.levee, "down", "--dev", "w0")
	_, err := f.command("ip", "netns", "del", s)
	_, err2 := f.command("ip", "netns", "del", w)
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
		TrialSeconds float64 `json:"trial_seconds"`
	}
}

func (f *field) status() (s status, err error) {
	server, _ := f.names()
	text, err := f.command("ip", "netns", "exec", server, f.levee, "status", "--dev", "eth0",
		"--json")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(text), &s)
}

// counts are packets by label, and "proven": the clients that are.
type counts map[string]int

func (f *field) counts() (counts, error) {
	s, err := f.status()
	if err != nil {
		return nil, err
	}
	c := counts{}
	for _, i := range s.Interfaces {
		c["proven"] += i.Cookies.Proven
		for _, r := range i.Rules {
			c[r.Label] += r.Packets
		}
	}
	return c, nil
}

// attack sends the kinds that are asked for and returns how many promises were broken.
func (f *field) attack(only string, count int) (broken int, err error) {
	if err := f.open(policy); err != nil {
		return 0, err
	}
	for _, k := range kinds(f.world.ports, f.server.ports) {
		if f.ctx.Err() != nil {
			return broken, f.ctx.Err()
		}
		if !strings.Contains(k.name, only) {
			continue
		}
		sent, span, before, after, err := f.flood(k, count)
		if err != nil {
			return broken, err
		}
		told := k.judge(before, after, sent, span)
		if err := f.sessions(); err != nil {
			told = append(told, "a session ended: "+err.Error())
		}
		verdict := "held"
		if len(told) > 0 {
			broken++
			verdict = "BROKEN: " + strings.Join(told, "; ")
		}
		fmt.Printf("%-11s  %-44s %9d sent  known %7d  new %8d  dns %4d  %s\n", f.hook, k.name, sent,
			after["known"]-before["known"], after["new"]-before["new"],
			after["dns"]-before["dns"], verdict)
	}
	return broken, nil
}

// flood sends one kind and returns how many the server's end took, in which time, and the counters
// around it.
func (f *field) flood(k kind, count int) (sent int, span time.Duration, before, after counts,
	err error) {
	if before, err = f.counts(); err != nil {
		return 0, 0, nil, nil, err
	}
	_, w := f.names()
	n := max(count/k.part, 1)
	begun := time.Now()
	text, err := f.command(f.levee, "gen", "--netns", w, "--dev", "w0", "--own-network",
		"--packet", k.packet, "--count", fmt.Sprint(n), "--duration", "120s", "--json",
		"--seed", fmt.Sprint(begun.UnixNano()%1e9))
	span = time.Since(begun)
	if err != nil {
		return 0, 0, nil, nil, err
	}
	var told struct{ Sent, Refused int }
	if err := json.Unmarshal([]byte(text), &told); err != nil {
		return 0, 0, nil, nil, err
	}
	time.Sleep(100 * time.Millisecond) // what is in the ring is judged
	after, err = f.counts()
	return told.Sent - told.Refused, span, before, after, err
}
