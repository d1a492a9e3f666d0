package detect

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"levee/internal/bench"
	"levee/internal/lab/demo"
	"levee/internal/lab/gen"
	"levee/internal/lang/spec"
	"levee/internal/packet/template"
)

// wave is the traffic of a flood for a span of time.
type wave struct {
	what    string
	at      time.Duration // from the flood's beginning, at the earliest
	lasts   time.Duration
	share   float64 // of the rate of the measurement; 0: as fast as it goes
	rate    float64 // packets a second instead, where the flood is about its rate
	floods  []gen.Flood
	replay  *gen.Replay
	packets []spec.Packet
	// replaced is the number of times that the policy is replaced by another meanwhile, evenly.
	replaced int
}

// kind is a flood: one row of the table.
type kind struct {
	name, what string
	waves      func(o *Options, to netip.Addr) ([]wave, error)
	ramp       bool   // it rises slowly: what counts is the share of the line that it takes
	pulses     bool   // its waves are one flood, with pauses
	mimics     bool   // it looks like clients: what counts is that they are no worse off
	forges     bool   // it comes in the names of clients, from which tallies cannot tell it
	behind     []byte // rules that stand in front of those of the policy; nil: none
}

// plain returns a flood of one kind of packets.
func plain(name, what, of string) kind {
	return kind{name: name, what: what, waves: func(o *Options, to netip.Addr) ([]wave, error) {
		return []wave{{what: what, lasts: o.During, share: 1, floods: forged(of, to)}}, nil
	}}
}

// kinds are all floods, in the order of the table.
var kinds = []kind{
	plain("syn", "SYN without options, to the service", "syn"),
	plain("syn-options", "SYN with the options of Linux", "syn-options"),
	{name: "syn-linux", what: "SYN that nothing but its source tells from those of Linux",
		waves: func(o *Options, to netip.Addr) ([]wave, error) {
			floods := forged("syn", to)
			for i := range floods {
				floods[i].Linux = true
			}
			return []wave{{what: "SYN", lasts: o.During, share: 1, floods: floods}}, nil
		}},
	plain("udp", "UDP to all ports", "udp"),
	{name: "udp-random", what: "UDP of all lengths, ports and contents",
		waves: drawnBy(anything)},
	{name: "reflection", what: "answers of open resolvers, whole and in fragments",
		waves: func(o *Options, to netip.Addr) ([]wave, error) {
			text, err := reflection(o.Seed, to, reflectors)
			return replayed(o, text), err
		}},
	{name: "capture", what: "a captured DNS reflection (--data)",
		waves: func(o *Options, to netip.Addr) ([]wave, error) {
			text, err := captured(filepath.Join(o.Data, CaptureName), to)
			return replayed(o, text), err
		}},
	plain("icmp", "ICMP echo requests", "icmp"),
	plain("fragment", "IP fragments that are not the first", "fragment"),
	plain("ack", "TCP ACK to the service", "ack"),
	{name: "pulse", what: "UDP to an open port, 20 s on and 40 s off", pulses: true, waves: pulses},
	{name: "ramp", what: "UDP that rises from nothing in a minute", ramp: true, waves: ramp},
	{name: "mixture", what: "another pattern every 5 s", waves: mixture},
	{name: "most", what: "UDP, as fast as the generator goes",
		waves: func(o *Options, to netip.Addr) ([]wave, error) {
			return []wave{{what: "UDP", lasts: o.During, floods: forged("udp", to)}}, nil
		}},
	words("gre", "GRE from all over", 0, "ipv4 proto 47 from 16.0.0.0/4 random to TO len 90"),
	words("esp", "ESP from all over", 0, "ipv4 proto 50 from 16.0.0.0/4 random to TO len 90"),
	words("syn-ack", "SYN-ACKs of servers that forged SYNs asked", 0,
		"ipv4 tcp flags syn,ack from 16.0.0.0/4 random to TO from port 443 "+
			"port 1024-65535 random seq random"),
	words("fat", "UDP of 1,024 flows from 64 sources", 60_000, "ipv4 udp from 16.1.0.1-16.1.0.64 "+
		"counting to TO ttl 50 from port 2000-2015 counting every 64 port 27015 len 1400"),
	words("fat-fragments", "fragments of 64 reflectors", 60_000, "ipv4 udp from "+
		"16.1.0.1-16.1.0.64 counting to TO ttl 50 frag-offset 185 len 1400"),
	words("counting-udp", "UDP whose source ports count", 12_000, "ipv4 udp from 16.0.0.0/4 "+
		"random to TO from port 1024-65535 counting port 27015 len 60"),
	words("counting-syn", "SYNs whose source ports count", 8000, "ipv4 tcp syn from 16.0.0.0/4 "+
		"random to TO from port 1024-65535 counting port 80 seq random"),
	words("syn-clients", "SYNs in the names of clients", 20_000, "ipv4 tcp syn from "+
		"198.18.0.2-198.18.0.17 counting to TO from port 1024-65535 random port 80 seq random").
		inNames(),
	{name: "rise", what: "UDP that rises for 30 s and stays", ramp: true, waves: rise},
	{name: "below", what: "8 minutes below what is too much, then UDP", waves: below},
	{name: "passed", what: "UDP that a rule behind limits passes", behind: servicePolicy,
		waves: wordsOf("UDP", 0, "ipv4 udp from 16.0.0.0/4 random to TO from port 1024-65535 "+
			"random port 443 len 90")},
	{name: "hold", what: "UDP for 4 s, and a fiftieth of it for a minute", mimics: true,
		waves: hold},
}

func init() { kinds = append(kinds, vectors...) }

// inNames returns a kind that comes in the names of clients.
func (k kind) inNames() kind {
	k.forges = true
	return k
}

// words returns a flood of packets in the words of the language, TO and TO6 for the service.
func words(name, what string, rate float64, text string) kind {
	return kind{name: name, what: what, waves: wordsOf(what, rate, text)}
}

func wordsOf(what string, rate float64, text string) func(*Options, netip.Addr) ([]wave, error) {
	return func(o *Options, to netip.Addr) ([]wave, error) {
		w, err := wordy(text, to, o.six)
		w.what, w.lasts, w.share, w.rate = what, o.During, 1, rate
		return []wave{w}, err
	}
}

func wordy(text string, to, six netip.Addr) (wave, error) {
	text = strings.NewReplacer("TO6", six.String(), "TO", to.String()).Replace(text)
	packets, ds := template.Parse("flood", []byte(text+"\n"))
	if ds.HasErrors() {
		return wave{}, fmt.Errorf("the flood %q: %v", text, ds)
	}
	return wave{packets: packets}, nil
}

// CaptureName is the capture within the directory that Options.Data names.
const CaptureName = "pcap/dns-amplification-fragmented.pcap"

// forged returns the packets of a flood of the demo, from all over the Internet. Ports come in no
// order: of those in a row a moment has seen a part only, by which a rule could tell it.
func forged(name string, to netip.Addr) []gen.Flood {
	for _, k := range demo.Kinds {
		if k.Name == name {
			floods := make([]gen.Flood, len(k.Floods))
			for i, f := range k.Floods {
				floods[i] = demo.Spoofed(f, to)
				floods[i].Sources = internet
				floods[i].FromPorts = gen.Shuffled(floods[i].FromPorts, 1)
				floods[i].Ports = gen.Shuffled(floods[i].Ports, 2)
			}
			return floods
		}
	}
	panic("no flood " + name)
}

// internet is the prefixes of forged sources: all of IPv4 that hosts may have, without the
// lab. A flood from fewer networks could be told from clients by its sources.
var internet = without(netip.MustParsePrefix("0.0.0.0/0"),
	"0.0.0.0/8", "10.0.0.0/8", "127.0.0.0/8", "198.18.0.0/15", "224.0.0.0/3")

// without returns a prefix without others, as prefixes.
func without(p netip.Prefix, others ...string) []netip.Prefix {
	for _, s := range others {
		o := netip.MustParsePrefix(s)
		switch {
		case o.Bits() <= p.Bits() && o.Contains(p.Addr()):
			return nil
		case p.Overlaps(o):
			low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
			a := p.Addr().As4()
			a[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
			high := netip.PrefixFrom(netip.AddrFrom4(a), p.Bits()+1)
			return append(without(low, others...), without(high, others...)...)
		}
	}
	return []netip.Prefix{p}
}

// replayed sends a capture again and again, for the time of a flood.
func replayed(o *Options, capture []byte) []wave {
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(capture)), nil }
	return []wave{{what: "UDP", lasts: o.During, share: 1,
		replay: &gen.Replay{Open: open, Repeat: true, Rewrite: true}}}
}

// captured reads a capture of UDP and aims it at an address.
func captured(path string, to netip.Addr) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the capture: %w", err)
	}
	defer f.Close()
	text, err := demo.AimUDP(f, to)
	if err != nil {
		return nil, fmt.Errorf("reading the capture %s: %w", path, err)
	}
	return text, nil
}

// Times of the floods that change.
const (
	pulseOn, pulseOff = 20 * time.Second, 40 * time.Second
	pulseCount        = 3
	rampSteps         = 60
	rampStep          = time.Second
	patternLasts      = 5 * time.Second
)

func pulses(_ *Options, to netip.Addr) (w []wave, _ error) {
	floods := forged("udp-open", to)
	for i := range floods {
		floods[i].Lengths = []int{200}
	}
	for i := range pulseCount {
		w = append(w, wave{what: fmt.Sprintf("pulse %d", i+1),
			at: time.Duration(i) * (pulseOn + pulseOff), lasts: pulseOn, share: 1, floods: floods})
	}
	return w, nil
}

func ramp(_ *Options, to netip.Addr) (w []wave, _ error) {
	for i := range rampSteps {
		w = append(w, wave{what: fmt.Sprintf("step %d", i+1), at: time.Duration(i) * rampStep,
			lasts: rampStep, share: float64(i+1) / rampSteps, floods: forged("udp", to)})
	}
	return w, nil
}

func mixture(_ *Options, to netip.Addr) (w []wave, _ error) {
	for i, name := range []string{"udp", "syn", "ack", "icmp", "fragment", "syn-options"} {
		w = append(w, wave{what: name, at: time.Duration(i) * patternLasts, lasts: patternLasts,
			share: 1, floods: forged(name, to)})
	}
	return w, nil
}

func nameOf(k kind) string { return k.name }

// FloodNames returns the names of the floods.
func FloodNames() []string { return bench.Names(kinds, nameOf) }

// steering is UDP to one port that nothing but its TTL tells from a client's.
const steering = "ipv4 udp from 16.0.0.0/4 random to TO ttl 50 from port 1024-65535 random " +
	"port 27015 len 60"

// steered are waves of steering, each of its time and rate, one behind the other.
func steered(to netip.Addr, of ...wave) ([]wave, error) {
	at := time.Duration(0)
	for i := range of {
		w, err := wordy(steering, to, netip.Addr{})
		if err != nil {
			return nil, err
		}
		w.what, w.at, w.lasts, w.rate = of[i].what, at, of[i].lasts, of[i].rate
		of[i], at = w, at+w.lasts
	}
	return of, nil
}

// rise multiplies by 60 in half a minute, by less in each moment than what is too much.
func rise(o *Options, to netip.Addr) ([]wave, error) {
	var w []wave
	for k := range 15 {
		w = append(w, wave{what: fmt.Sprintf("step %d", k+1), lasts: 2 * time.Second,
			rate: 1000 * math.Pow(60, float64(k)/14)})
	}
	return steered(to, append(w, wave{what: "all of it", lasts: o.During, rate: 60_000})...)
}

func below(o *Options, to netip.Addr) ([]wave, error) {
	return steered(to, wave{what: "below", lasts: 8 * time.Minute, rate: 9000},
		wave{what: "above", lasts: o.During, rate: 60_000})
}

func hold(_ *Options, to netip.Addr) ([]wave, error) {
	return steered(to, wave{what: "flood", lasts: 4 * time.Second, rate: 30_000},
		wave{what: "held", lasts: time.Minute, rate: 600})
}
