package main

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// more remembers in the other ways. The connections are so few that one host can fill the memory.
// Its agent opens for who knocks with a key.
const more = `
set guests = dynamic(max 100000, lease 10m)
source "ops" knock ":7000" key "` + keyFile + `" add src_ip to guests lease 10m
connections max 16384
prove "echo" udp port 1013 reply payload at 0 41 echo 4 bytes at 1 in request at 1
fragments track as "fragments"
count tcp port 2222 stream contains "line" as "lines"
count tcp port 2222 stream contains "forged" as "searched"
pass established as "known"
pass from guests as "guests"
pass udp port 7000 as "knocks"
cookie tcp port 80 as "cookie"
pass tcp syn port { 80, 2222 } as "new"
cookie dns udp port 55 as "ask again"
pass udp port 55 as "dns"
limit udp port 53 rate 50/s burst 50 as "queries"
pass udp port 53 as "open"
pass udp port 1013 proven flow as "again"
limit udp port 1013 rate 100/s as "strangers"
pass udp port 1013 as "asks"
pass udp inner( tcp port 81 ) as "inner"
default drop
`

// keyFile is with what knocks.
const keyFile = "knock.key"

// moreKinds returns the kinds of the policy more.
func moreKinds(world, _ map[string]int) []kind {
	var all []kind
	for _, ip := range []family{
		{"ipv4", "192.0.2.1", "192.0.2.2", "192.0.2.255", "127.0.0.1", "16.0.0.0/4", "203.0.113.7",
			"28", "88"},
		{"ipv6", "2001:db8::1", "2001:db8::2", "ff02::1", "::1", "2a00::/12", "2a01:db8::7", "56",
			"108"},
	} {
		from := "from " + ip.anybody + " random"
		wild := from + " from port 1024-65535 random"
		k := &familyKinds{ip, from, wild, nil}
		k.neighbours()
		k.headers()
		k.tunnels()
		k.proofs()
		k.streams(world[ip.name+" 2222"])
		all = append(all, k.all...)
	}
	return append(all, lateKinds()...)
}

// family holds the addresses of one IP family that kinds name, and lengths of packets in bytes.
type family struct {
	name, here, there, net, loop, anybody, victim string
	tiny, knock                                   string
}

// familyKinds collects the kinds of one family.
type familyKinds struct {
	family
	from, wild string // terms of a template: anybody's address, and with a port
	all        []kind
}

// add adds a kind of these packets, which go to the server unless they say where. What it returns
// is valid until the next kind is added.
func (ip *familyKinds) add(name string, part int, judge func(result) []string,
	packets ...string) *kind {
	for i, p := range packets {
		if strings.HasPrefix(p, "hex ") {
			continue
		}
		packets[i] = ip.name + " " + p
		if !strings.Contains(strings.ReplaceAll(p, "ether to", ""), " to ") {
			packets[i] += " to " + ip.here
		}
	}
	ip.all = append(ip.all, kind{name: ip.name + " " + name, packet: lines(packets...), part: part,
		judge: judge})
	return &ip.all[len(ip.all)-1]
}

// neighbours adds fragments, and SYNs that nobody may answer.
func (ip *familyKinds) neighbours() {
	k := ip.add("later fragments behind few firsts", 1, func(r result) []string {
		return r.most("fragments", 5*136+r.paid(32, 512))
	}, "udp from "+ip.victim+" frag 1 mf 1 id 1-5 random frag-offset 5-8000 random len "+ip.tiny)
	k.prepare = func(f *field) error {
		_, err := f.gen(lines(ip.name+" udp frag 0 id 1-5 from "+ip.victim+
			" from port 4000 port 53 len 88 to "+ip.here), 5)
		return err
	}
	ip.add("syn in frames of others", 1, unanswered,
		"tcp syn "+ip.wild+" port 80 ether to 02:00:00:00:00:77")
	ip.add("syn to a network", 1, unanswered, "tcp syn "+ip.wild+" port 80 to "+ip.net)
	ip.add("syn of nobody", 1, unanswered, "tcp syn from "+ip.loop+" port 80",
		"tcp syn from "+ip.net+" port 80")
}

// headers adds segments with options of IPv4, or extension headers of IPv6.
func (ip *familyKinds) headers() {
	headers := []string{"options", `ip-options hex "83 07 04 10 00 00 01 00"`}
	if ip.name == "ipv6" {
		headers = []string{"options", "hop-options", "routing"}
	}
	for _, h := range headers {
		ip.add("syn with "+h, 1, nothing, "tcp syn "+ip.wild+" port 80 "+h)
		ip.add("rst with "+h, 1, guessed, "tcp flags rst "+ip.wild+" port 80 seq random "+h)
		ip.add("ack with "+h, 1, nothing, "tcp flags ack "+ip.wild+
			" port random ack-number random "+h)
	}
}

// tunnels adds packets behind a tunnel that have no tunnel themselves.
func (ip *familyKinds) tunnels() {
	tunnel := `hex "` + hex.EncodeToString(vxlan(ip.name)) + `"`
	ip.add("what is no tunnel behind one", 5, func(r result) []string {
		if r.more("inner") == 0 {
			return []string{"no tunnel passed"}
		}
		return append(r.most("inner", (r.sent+1)/2), r.most("known", 0)...)
	}, tunnel, "udp vlan 7 "+ip.wild+" port 54", tunnel, "proto 50 "+ip.from, tunnel,
		"proto 47 "+ip.from+" len 80", tunnel, "udp frag 185 id random "+ip.from+" len 100",
		tunnel, "tcp flags ack "+ip.wild+" port 81", tunnel, "udp "+ip.wild+" port 4789 len 90")
}

// proofs adds datagrams that guess what proves a flow, a knock, or a query.
func (ip *familyKinds) proofs() {
	// Of a session and a victim alike: nobody has been given these.
	echoed := func(r result) []string {
		return append(r.most("again", 0), r.most("asks", r.paid(100, 100))...)
	}
	ip.add("values of nobody", 1, echoed, "udp "+ip.wild+" port 1013 payload random len 64")
	ip.add("values of one flow", 1, echoed, "udp from "+ip.victim+
		" from port 4000 port 1013 payload random len 64")
	closed := func(r result) []string {
		return append(r.most("entries", 0), r.most("guests", 0)...)
	}
	ip.add("knocks of noise", 1, closed, "udp "+ip.wild+" port 7000 payload random len "+ip.knock)
	k := ip.add("knocks without the key", 1, closed)
	k.send = func(f *field, count int) (int, error) {
		return f.gen(lines(ip.name+" udp "+ip.wild+" port 7000 to "+ip.here+" payload hex \""+
			hex.EncodeToString(knock())+`"`), count)
	}
	const query = `payload hex "123401000001000000000000` + // of www.example.com
		`03777777076578616d706c6503636f6d0000010001"`
	ip.add("queries of anybody", 1, nothing, "udp "+ip.wild+" port 55 "+query)
	ip.add("queries of a victim", 1, nothing, "udp from "+ip.victim+
		" from port 1024-65535 random port 55 "+query)
}

// streams adds segments into the session from a port of the world, whose stream is searched.
func (ip *familyKinds) streams(port int) {
	for _, flags := range []string{"psh,ack", "syn", "fin,ack"} {
		k := ip.add(flags+" into a stream", 1, func(r result) []string {
			return r.most("searched", 0)
		}, fmt.Sprintf("tcp flags %s from %s from port %d port 2222 seq random "+
			`ack-number random payload "forged"`, flags, ip.there, port))
		k.finish = searched
	}
}

// lateKinds returns kinds of which some have the policy come anew: streams are not known to the
// next one.
func lateKinds() (all []kind) {
	add := func(name string, judge func(result) []string, packets ...string) *kind {
		all = append(all, kind{name: name, packet: lines(packets...), part: 1, judge: judge})
		return &all[len(all)-1]
	}
	const noise = "random from port 1024-65535 random port 2222 seq random ack-number random to "
	k := add("resets of connections that ended", anything,
		"ipv4 tcp flags rst from 192.0.2.2 from port 1024-65535 random port 2222 to 192.0.2.1")
	k.prepare = func(f *field) error { return f.world.do("reset 40000") }
	k.finish = newcomers
	k = add("requests that are older than the policy", opened, older...)
	k.prepare = halfOpen
	k = add("ack while the policy comes into force", anything,
		"ipv4 tcp flags ack from 16.0.0.0/4 "+noise+"192.0.2.1",
		"ipv6 tcp flags ack from 2a00::/12 "+noise+"2001:db8::1")
	k.beside = comesIntoForce
	k = add("merged datagrams at a limit", func(r result) []string {
		if r.hook == "xdp-generic" { // which is not told what was merged
			return r.most("served", mergedEach*r.paid(50, 50))
		}
		return r.most("served", r.paid(50, 50))
	})
	k.send = func(f *field, count int) (int, error) {
		return count, f.world.do(fmt.Sprint("merge ", count))
	}
	return all
}

// lines are a template, for the server's Ethernet address where nothing else is said.
func lines(packets ...string) (text string) {
	for _, p := range packets {
		if !strings.Contains(p, "ether to") && !strings.HasPrefix(p, "hex ") {
			p += " ether to " + mac
		}
		text += p + "\n"
	}
	return text
}

// older are requests of few clients, which have the kernel answer to what does not fit, and guesses
// of what would complete them.
var older = func() (all []string) {
	for _, p := range []string{"syn", "flags ack", "flags psh,ack len 60"} {
		all = append(all, "ipv4 tcp "+p+" from 16.0.0.0/22 random from port 4000-4003 random "+
			"port 2222 to 192.0.2.1 seq random ack-number random")
	}
	return all
}()

// halfOpen has connections be half open when the policy comes into force.
func halfOpen(f *field) error {
	if err := f.policyDown(); err != nil {
		return err
	}
	if _, err := f.gen(lines(older[0]), 100_000); err != nil {
		return err
	}
	return f.policyUp()
}

func (f *field) policyDown() error {
	server, _ := f.names()
	_, err := f.command("ip", "netns", "exec", server, f.levee, "down", "--dev", "eth0")
	return err
}

func (f *field) policyUp() error {
	server, _ := f.names()
	_, err := f.command("ip", "netns", "exec", server, f.levee, "up", f.policy, "--dev", "eth0",
		"--force", "--mode", f.hook)
	return err
}

// comesIntoForce has the policy come anew. Sessions are older than it then, and go on.
func comesIntoForce(f *field) error {
	time.Sleep(time.Second)
	if err := errors.Join(f.policyDown(), f.policyUp()); err != nil {
		return err
	}
	if err := f.sessions(); err != nil {
		return fmt.Errorf("beside the flood: %w", err)
	}
	return nil
}

// newcomers find places, whatever has taken them before.
func newcomers(f *field, r result) error {
	if err := f.world.do("fresh 200"); err != nil {
		return fmt.Errorf("who comes after: %w", err)
	}
	now, err := f.counts()
	if n := now["refused"] - r.after["refused"]; n > 0 {
		err = errors.Join(err, fmt.Errorf("%d new connections found no place", n))
	}
	return err
}

// unanswered are SYNs of which a cookie answers none.
func unanswered(r result) []string { return append(opened(r), r.most("answers", 0)...) }

// searched says whether the streams of sessions are known still. Each of two has said a line since
// the flood.
func searched(f *field, r result) error {
	now, err := f.counts()
	if n := now["lines"] - r.after["lines"]; n < 2 {
		err = errors.Join(err, fmt.Errorf("streams were lost: %d lines were seen", n))
	}
	return err
}

// knock is one of now, as it is without the key.
func knock() []byte {
	b := binary.BigEndian.AppendUint64([]byte("lvk1"), uint64(time.Now().UnixMicro()))
	return append(b, make([]byte, 16+32)...)
}

// vxlan is a frame with a SYN to port 81 within.
func vxlan(family string) []byte {
	inner := append([]byte{2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 4, 8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64,
		6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x80, 0, 0, 81}, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0xff,
		0xff, 0, 0, 0, 0)
	n := byte(8 + 8 + len(inner))
	f := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9}
	if family == "ipv4" {
		f = append(f, 8, 0, 0x45, 0, 0, 20+n, 0, 0, 0, 0, 64, 17, 0, 0, 203, 0, 113, 7, 192, 0, 2,
			1)
	} else {
		f = append(f, 0x86, 0xdd, 0x60, 0, 0, 0, 0, n, 17, 64, 0x2a, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0,
			0, 0, 0, 0, 0, 7, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)
	}
	f = append(f, 0x13, 0, 0x12, 0xb5, 0, n, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0)
	return append(f, inner...)
}
