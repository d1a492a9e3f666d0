package main

import (
	"fmt"
	"math"
)

// kind is one kind of forged packets.
type kind struct {
	name    string
	packet  string                         // a template, as `levee help templates` has it
	send    func(*field, int) (int, error) // in its place, or nil: says how many were taken
	part    int                            // of the packets asked for one in so many is sent
	judge   func(result) []string          // says which promises were broken
	prepare func(*field) error             // before the counters are read, or nil
	beside  func(*field) error             // while packets are sent: says what was broken, or nil
	finish  func(*field, result) error     // likewise, after the sessions have been heard
}

// kinds are all, over both families. world and server are the local ports of the sessions that each
// has begun.
func kinds(world, server map[string]int) []kind {
	var all []kind
	for _, ip := range []struct{ family, here, there, anybody, victim string }{
		{"ipv4", "192.0.2.1", "192.0.2.2", "16.0.0.0/4", "203.0.113.7"},
		{"ipv6", "2001:db8::1", "2001:db8::2", "2a00::/12", "2a01:db8::7"},
	} {
		add := func(name string, part int, judge func(result) []string,
			format string, args ...any) {
			packet := fmt.Sprintf(ip.family+" "+format+" to "+ip.here+" ether to "+mac, args...)
			all = append(all, kind{name: ip.family + " " + name, packet: packet, part: part,
				judge: judge})
		}
		from := "from " + ip.anybody + " random"
		wild := from + " from port 1024-65535 random"
		numbers := "seq random ack-number random"
		for _, flags := range []string{"syn,fin", "syn,rst", "syn,ack", "ack", "rst", "rst,ack",
			"fin,ack", "fin,psh,urg", "syn,fin,ack"} {
			judge := nothing
			if flags == "rst" {
				judge = guessed
			}
			add(flags+" to the cookie", 1, judge, "tcp flags %s %s port 80 %s", flags, wild,
				numbers)
			add(flags+" to any port", 1, nothing, "tcp flags %s %s port random %s", flags, wild,
				numbers)
		}
		add("syn to the cookie", 1, nothing, "tcp syn %s port 80 seq random", wild)
		add("syn, tagged", 1, nothing, "tcp syn vlan 7 %s port 9 seq random", wild)
		add("ack, tagged", 1, nothing, "tcp flags ack vlan 7 %s port 80 %s", wild, numbers)
		add("half-open connections", 5, opened, "tcp syn %s port 2222 seq random", wild)
		add("ack to half-open connections", 1, nothing, "tcp flags ack %s port 2222 %s", wild,
			numbers)
		add("later fragments of udp", 1, ahead, "udp frag 185 id random %s len 100", from)
		add("later fragments of tcp", 1, ahead, "tcp frag 1 id random %s len 100", from)
		add("answers that nobody asked for", 1, nothing,
			"udp from %s from port 53 port 1024-65535 random len 300", ip.victim)
		add("answers from anybody", 1, nothing,
			"udp %s from port 53 port 1024-65535 random len 300", from)
		add("queries in a victim's name", 1, limited,
			"udp from %s from port 1024-65535 random port 53", ip.victim)
		add("queries from one port of a victim", 1, limited, "udp from %s from port 4000 port 53",
			ip.victim)
		add("first packets to a greylist", 1, again, "udp %s port 1012", wild)
		errors := "icmp type 3/4"
		if ip.family == "ipv6" {
			errors = "icmp6 type 1/4"
		}
		add("errors about nothing known", 1, nothing, "%s %s payload counting len 76", errors, from)
		// These have the addresses and ports of a session, in both of its directions.
		for _, s := range []struct {
			name     string
			from, to int
		}{
			{"a client's session", world[ip.family+" 2222"], 2222},
			{"a session behind the cookie", world[ip.family+" 80"], 80},
			{"the server's own session", 7777, server[ip.family+" 7777"]},
		} {
			for _, flags := range []string{"rst", "rst,ack", "syn", "syn,ack", "fin,ack", "ack"} {
				add(flags+" into "+s.name, 20, anything,
					"tcp flags %s from %s from port %d port %d %s", flags, ip.there, s.from, s.to,
					numbers)
			}
		}
	}
	return all
}

// nothing passes, and nobody is proven.
func nothing(r result) []string { return passes(r, 0) }

// guessed is for resets that guess the number of a cookie, of which 31 bits are secret. By chance
// one of 5 million is right in 1 of 430 runs, and two in 1 of 370,000: one may be.
func guessed(r result) []string {
	by := float64(r.sent) / (1 << 31)
	return passes(r, int(by+6*math.Sqrt(by)+1))
}

// passes says so where anything has passed, or more have proven themselves than may.
func passes(r result, most int) (told []string) {
	for _, label := range []string{"known", "new", "dns", "again", "proven", "open", "asks",
		"inner", "searched"} {
		if n := r.more(label); n > 0 && (label != "proven" || n > most) {
			told = append(told, fmt.Sprintf("%d %s", n, label))
		}
	}
	return told
}

// most says so where more than so many have passed.
func (r result) most(label string, most int) (told []string) {
	if n := r.more(label); n > most {
		told = append(told, fmt.Sprintf("%d of %s passed, %d may", n, label, most))
	}
	return told
}

// paid returns the number of packets that a rate and a burst as large let pass.
func (r result) paid(rate, burst int) int {
	return int(float64(rate)*r.span.Seconds()) + burst + 1
}

// ahead are fragments whose first does not come: 512 at once pass, and 32 a second.
func ahead(r result) []string { return append(nothing(r), r.most("fragments", r.paid(32, 512))...) }

// opened is for what a rule passes that is meant to: it makes nothing established.
func opened(r result) []string { return r.most("known", 0) }

// limited is 50 a second and as many at once, whatever the server has answered.
func limited(r result) []string { return append(opened(r), r.most("dns", r.paid(50, 50))...) }

// again is by chance: a line of the greylist has up to 15 tags of 18 bits.
func again(r result) []string {
	by := float64(r.sent) * 15 / (1 << 18)
	return append(opened(r), r.most("again", int(by+6*math.Sqrt(by)+6))...)
}

// anything may pass: only the sessions say whether a promise was broken.
func anything(result) []string { return nil }
