package dataplane

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/divert"
	"levee/internal/filter/state"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// stateful is a rule that remembers something. Its label, or the name of its set, is NAME.
type stateful struct {
	name  string
	rule  string           // with NAME in it
	holds codegen.Contents // of the map that only this state is in, if there is one
	make  func(*stateTest) // something to remember
	// look says what is remembered, "" if there is no such rule.
	look func(*inspect.Attachment, string) string
}

var states = []stateful{
	{"counter", `count udp port 1001 as "NAME"`, "", judges(udpTo(1001)), counter},
	{"limit", `limit udp port 1002 rate 1/d burst 9 as "NAME"`, state.HoldsLimit,
		judges(udpTo(1002)), budgets},
	{"source", `limit udp port 1003 rate 1/d burst 9 by source as "NAME"`, state.HoldsLimit,
		judges(udpTo(1003)), budgets},
	{"prefix", `limit udp port 1004 rate 1/d burst 9 by source/24,56, source/16 x32 as "NAME"`,
		state.HoldsLimit, judges(udpTo(1004)), budgets},
	{"destination", `limit udp port 1005 rate 1/d burst 9 by destination as "NAME"`, state.HoldsLimit,
		judges(udpTo(1005)), budgets},
	{"flow", `limit udp port 1006 rate 1/d burst 9 by flow as "NAME"`, state.HoldsLimit,
		judges(udpTo(1006)), budgets},
	{"port", `limit udp port 1007-1008 rate 1/d burst 9 by port as "NAME"`, state.HoldsLimit,
		judges(udpTo(1007), udpTo(1008)), budgets},
	{"log", `log udp port 1009 sample 1/2 as "NAME"`, state.HoldsEvents, judges(udpTo(1009)), counter},
	{"stream", `count tcp port 1010 stream contains "evil" as "NAME"`, state.HoldsStreams,
		(*stateTest).stream,
		func(a *inspect.Attachment, _ string) string {
			if a.Streams == nil {
				return ""
			}
			return fmt.Sprint(a.Streams.Flows, " streams")
		}},
	{"connection", `pass established as "NAME"`, state.HoldsFlows, (*stateTest).connect,
		func(a *inspect.Attachment, _ string) string { return told(a.Connections) }},
	{"cookie", `cookie tcp port 443 as "NAME"`, state.HoldsCookies, (*stateTest).prove,
		func(a *inspect.Attachment, _ string) string {
			if a.Cookies == nil {
				return ""
			}
			return told(&a.Cookies.Stats)
		}},
	{"fragments", `fragments track as "NAME"`, state.HoldsFragments,
		judges(datagramPart(1, 9000, 0)),
		func(a *inspect.Attachment, _ string) string { return told(a.Fragments) }},
	{"diverted", `divert tcp port 22 as "NAME"`, state.HoldsDiverted, (*stateTest).divert,
		func(a *inspect.Attachment, _ string) string {
			if a.Diverted == nil {
				return ""
			}
			return fmt.Sprint(a.Diverted.Alone, " refused") // what is noted ends after 10 s
		}},
	{"echo", `prove "NAME" udp port 27015 reply payload at 4 41 echo 4 bytes at 5 in request at 5
pass udp port 27015 proven flow as "NAME"`, state.HoldsEchoes, (*stateTest).echo,
		func(a *inspect.Attachment, _ string) string {
			if a.Echoes == nil {
				return ""
			}
			return fmt.Sprint(a.Echoes.Flows, " flows")
		}},
	{"greylist", `greylist udp port 1012 after 100ms within 10s as "NAME"`, state.HoldsGreylist,
		judges(udpTo(1012)),
		func(a *inspect.Attachment, _ string) string {
			if a.Greylists == nil {
				return ""
			}
			return fmt.Sprint(a.Greylists.Clients, " clients")
		}},
	{"addresses", "set NAME = dynamic(max 100, lease 10m)\ndrop from NAME", "",
		leasedTo(policy.Element{Prefix: netip.MustParsePrefix("203.0.113.0/24")}), entries},
	{"services", "set NAME = dynamic(of services, max 100)\ndrop to NAME", "",
		leasedTo(policy.Element{Service: policy.Service{Proto: packet.ProtoUDP, Lo: 2000,
			Hi: 2007}}), entries},
	{"endpoints", "set NAME = dynamic(of endpoints, max 100)\ndrop to NAME", "",
		leasedTo(policy.Element{Prefix: netip.MustParsePrefix("203.0.113.9/32"),
			Service: policy.Service{Proto: packet.ProtoTCP, Lo: 22, Hi: 22}}), entries},
}

// shadowed are rules of a shadow, which is one for as long as its text is.
var shadowed = []stateful{
	{"pair", `drop udp port 1001 as "NAME"`, "", judges(udpTo(1001)), pairs},
	{"budget", `limit udp port 1011 rate 1/d burst 1 as "NAME"`, state.HoldsLimit,
		judges(udpTo(1011), udpTo(1011)), pairs},
}

func told[T any](state *T) string {
	if state == nil {
		return ""
	}
	return fmt.Sprintf("%+v", *state)
}

func counter(a *inspect.Attachment, label string) string { return countOf(a.Counters, label) }

func countOf(all []generation.SlotCounter, label string) string {
	i := slices.IndexFunc(all, func(c generation.SlotCounter) bool { return c.Label == label })
	if i < 0 {
		return ""
	}
	return fmt.Sprint(all[i].Packets, " packets")
}

func budgets(a *inspect.Attachment, label string) string {
	i := slices.IndexFunc(a.Limits, func(l state.Budgets) bool { return l.ID == "label:"+label })
	if i < 0 {
		return ""
	}
	return told(&a.Limits[i].Stats)
}

// entries are those of a set, with how many hours their leases have left.
func entries(a *inspect.Attachment, name string) string {
	if !slices.ContainsFunc(a.Sets, func(s store.SetInfo) bool { return s.Name == name }) {
		return ""
	}
	all, err := sets.Entries(context.Background(), "lv0", name)
	out := []string{fmt.Sprint(len(all), " entries")}
	for _, e := range all {
		out = append(out, fmt.Sprint(e.Element(), math.Ceil(e.Lease.Hours()), err))
	}
	return strings.Join(out, ", ")
}

func pairs(a *inspect.Attachment, label string) string {
	if a.Shadow == nil || countOf(a.Shadow.Rules, label) == "" {
		return ""
	}
	n := uint64(0)
	for _, p := range a.Shadow.Pairs {
		if p.Would.Label == label {
			n += p.Packets
		}
	}
	return fmt.Sprint(countOf(a.Shadow.Rules, label), ", ", n, " judged so")
}

// stateTest is one policy with all rules, and a shadow beside it.
type stateTest struct {
	*testing.T
	out  int    // packet socket of lv0
	name string // of the state that is made
}

func (s *stateTest) up(rules []stateful) {
	s.Helper()
	upText(s, "lv0", store.XDPNative, textOf(rules))
}

func textOf(rules []stateful) string {
	b := strings.Builder{}
	b.WriteString("connections max 4194304\n") // else as many as the other memories leave room for
	for _, r := range rules {
		b.WriteString(strings.ReplaceAll(r.rule, "NAME", r.name) + "\n")
	}
	return b.String() + "default pass\n"
}

// onGeneration runs fn with the policy in force, or its shadow.
func (s *stateTest) onGeneration(beside bool,
	fn func(st *store.Store, key string, g *store.Description) error) {
	s.Helper()
	err := generation.TransactOn(s.Context(), "lv0",
		func(st *store.Store, a *attach.Attachment) error {
			if beside {
				return fn(st, a.Key, a.Shadow())
			}
			return fn(st, a.Key, a.Current())
		})
	if err != nil {
		s.Fatal(err)
	}
}

// memory tells the map that a rule alone has, and its contents, "" if there is none.
func (s *stateTest) memory(r stateful, beside bool) (out string) {
	s.Helper()
	s.onGeneration(beside, func(st *store.Store, key string, g *store.Description) error {
		for _, use := range g.Maps {
			if r.holds == "" || use.Holds.What != r.holds ||
				r.holds == state.HoldsLimit && use.Holds.Name != "label:"+r.name {
				continue
			}
			m, err := st.OpenPinned(key, g.Generation, use.Name)
			if err != nil {
				return err
			}
			defer m.Close()
			info, err := m.Info()
			if err != nil {
				return err
			}
			id, _ := info.ID()
			out = fmt.Sprint("map ", id)
			if m.Flags()&unix.BPF_F_MMAPABLE == 0 {
				return nil
			}
			return st.WithMemory(m, func(b []byte) {
				sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
				out += fmt.Sprintf(" sum %08x", sum)
			})
		}
		return nil
	})
	return out
}

// judge has the policy in force judge a frame, and says what came of it.
func (s *stateTest) judge(f []byte) (answer []byte) {
	s.Helper()
	s.onGeneration(false, func(st *store.Store, key string, g *store.Description) error {
		p, err := st.OpenProgram(filepath.Join(st.Pins(key, g.Generation), store.PinProg))
		if err != nil {
			return err
		}
		defer p.Close()
		answer = make([]byte, 256)
		o := &ebpf.RunOptions{Data: f, DataOut: answer}
		_, err = p.Run(o)
		answer = o.DataOut
		return err
	})
	return answer
}

func judges(frames ...[]byte) func(*stateTest) {
	return func(s *stateTest) {
		for _, f := range frames {
			s.judge(f)
		}
	}
}

func udpTo(port uint16) []byte {
	f := from(0xcb007109)
	binary.BigEndian.PutUint16(f[36:], port)
	return f
}

func (s *stateTest) build(spec packet.Spec) []byte {
	s.Helper()
	f, err := packet.Build(spec)
	if err != nil {
		s.Fatal(err)
	}
	return append(f, make([]byte, max(0, 60-len(f)))...)
}

// connect has a client finish a handshake that this machine began.
func (s *stateTest) connect() {
	leaves := segment("198.51.100.7", packet.SYN)
	leaves.To = netip.MustParseAddr("203.0.113.9")
	comes := segment("203.0.113.9", packet.SYN|packet.ACK)
	comes.FromPort, comes.ToPort = leaves.ToPort, leaves.FromPort
	s.leaves(s.build(leaves))
	s.judge(s.build(comes))
}

// leaves sends a frame out of lv0.
func (s *stateTest) leaves(frame []byte) {
	s.Helper()
	lv0, err := netlink.LinkByName("lv0")
	if err != nil {
		s.Fatal(err)
	}
	to := &unix.SockaddrLinklayer{Ifindex: lv0.Attrs().Index}
	if err := unix.Sendto(s.out, frame, 0, to); err != nil {
		s.Fatal(err)
	}
}

// echo has a client send back what a reply of this machine said.
func (s *stateTest) echo() {
	here, there := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("203.0.113.9")
	of := func(from, to netip.Addr, fromPort, toPort uint16, payload string) []byte {
		return s.build(packet.Spec{Proto: new(uint8(packet.ProtoUDP)), From: from, To: to,
			FromPort: &fromPort, ToPort: &toPort, Payload: []byte(payload)})
	}
	s.leaves(of(here, there, 27015, 5000, "\xff\xff\xff\xffA1234"))
	s.judge(of(there, here, 5000, 27015, "\xff\xff\xff\xffU1234"))
}

// stream has a client shake hands, and say something.
func (s *stateTest) stream() {
	here, there := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("203.0.113.9")
	of := func(from, to netip.Addr, fromPort, toPort uint16, seq, ack uint32, flags uint8) []byte {
		f := s.build(packet.Spec{Proto: new(uint8(packet.ProtoTCP)), From: from, To: to,
			FromPort: &fromPort, ToPort: &toPort, Payload: []byte("evil")})
		binary.BigEndian.PutUint32(f[38:], seq)
		binary.BigEndian.PutUint32(f[42:], ack)
		f[47] = flags
		return f
	}
	s.leaves(of(here, there, 1010, 5000, 7, 1, packet.SYN|packet.ACK))
	s.judge(of(there, here, 5000, 1010, 1, 8, packet.ACK))
}

// prove has a source prove itself to the cookie.
func (s *stateTest) prove() {
	syn := segment("203.0.113.9", packet.SYN)
	syn.EtherTo = own(s, "lv0")
	s.judge(s.build(reset(syn, s.judge(s.build(syn)))))
}

// divert has a connection looked up that is diverted, with no trap there.
func (s *stateTest) divert() {
	s.Helper()
	syn := segment("203.0.113.9", packet.SYN)
	syn.ToPort = new(uint16(22))
	frame := s.build(syn)
	s.judge(frame)
	s.onGeneration(false, func(st *store.Store, key string, g *store.Description) error {
		l, err := link.LoadPinnedLink(filepath.Join(st.Pins(key, g.Generation), store.PinLinks,
			divert.Program), nil)
		if err != nil {
			return err
		}
		defer l.Close()
		p, err := ebpf.NewProgramFromID(must2(l.Info()).Program)
		if err != nil {
			return err
		}
		defer p.Close()
		var pkt packet.Packet
		packet.Decode(frame, &pkt)
		if refused, err := loader.LookedUp(p, &pkt); err != nil || !refused {
			return fmt.Errorf("looked up, and refused: %v, %w", refused, err)
		}
		return nil
	})
}

func leasedTo(e policy.Element) func(*stateTest) {
	return func(s *stateTest) {
		s.Helper()
		_, err := sets.Add(s.Context(), "lv0", s.name, []sets.Entry{{Prefix: e.Prefix,
			Service: e.Service, Lease: 5 * time.Hour}})
		if err != nil {
			s.Fatal(err)
		}
	}
}

// remembered holds the contents of all states of rules, and of the memories in which they are.
type remembered struct{ states, memories []string }

func (s *stateTest) look() (r remembered) {
	s.Helper()
	a := status(s)
	for i, row := range slices.Concat(states, shadowed) {
		r.states = append(r.states, row.look(&a, row.name))
		r.memories = append(r.memories, s.memory(row, i >= len(states)))
	}
	return r
}

// TestEveryStateGoesWithItsRule: what rules remember survives a replace that has the rules
// elsewhere, in the memory it had. It is gone once a policy has been in force without the rule,
// which takes nothing from others.
func TestEveryStateGoesWithItsRule(t *testing.T) {
	newTestNet(t)
	s := &stateTest{T: t}
	var err error
	if s.out, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s.out)
	s.up(states)
	shadowUp(t, textOf(shadowed), "lv0")
	blank := s.look()
	rows := slices.Concat(states, shadowed)
	for _, row := range rows {
		s.name = row.name
		row.make(s)
	}
	made := s.look()
	for i, row := range rows {
		if blank.states[i] == "" || made.states[i] == blank.states[i] ||
			(made.memories[i] == "") != (row.holds == "") {
			t.Fatalf("%s: %q with nothing to remember, %q with something, in %q", row.name,
				blank.states[i], made.states[i], made.memories[i])
		}
	}
	check := func(after string, want func(i int) (state, memory string)) {
		t.Helper()
		now := s.look()
		for i, row := range rows {
			state, memory := want(i)
			if memory == "another" && now.memories[i] != made.memories[i] {
				memory = now.memories[i]
			}
			if now.states[i] != state || row.holds != "" && now.memories[i] != memory {
				t.Errorf("%s: %q in %q after %s, want %q in %q", row.name, now.states[i],
					now.memories[i], after, state, memory)
			}
		}
	}
	kept := func(i int) (state, memory string) { return made.states[i], made.memories[i] }
	turned := slices.Clone(states)
	slices.Reverse(turned)
	s.up(append([]stateful{{rule: "count sctp"}}, turned...))
	check("a replace", kept)

	gone := make([]bool, len(rows))
	for odd := range 2 {
		var left []stateful
		for i, row := range states {
			if i%2 != odd {
				left = append(left, row)
			}
		}
		s.up(left)
		check("a replace by half of the rules", func(i int) (state, memory string) {
			switch {
			case i < len(states) && i%2 == odd:
				return "", ""
			case gone[i]:
				return blank.states[i], "another"
			}
			return kept(i)
		})
		for i := range states {
			gone[i] = gone[i] || i%2 == odd
		}
		s.up(states)
		check("all rules have come again", func(i int) (state, memory string) {
			if gone[i] {
				return blank.states[i], "another"
			}
			return kept(i)
		})
	}
	other := append(shadowed[1:], shadowed[0])
	for i := range rows {
		gone[i] = true
	}
	shadowUp(t, textOf(other), "lv0")
	check("another shadow", func(i int) (state, memory string) {
		return blank.states[i], "another"
	})
}

// TestNoStateIsMissing from that test: each policy of test/policy/valid is looked through.
func TestNoStateIsMissing(t *testing.T) {
	files, err := filepath.Glob("../../test/policy/valid/*.levee")
	if err != nil || len(files) == 0 {
		t.Fatalf("no policies: %v", err)
	}
	for _, file := range files {
		p, ds, err := resolve.Load(file)
		if p == nil {
			t.Fatal(err, ds.Err())
		}
		prog, err := codegen.Compile(p, codegen.Target{CPUs: 1, HZ: testHZ})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range prog.Maps {
			what := m.Holds.What
			if m.Lifetime == codegen.Carried && what != codegen.DynamicSet &&
				!slices.ContainsFunc(states, func(r stateful) bool { return r.holds == what }) {
				t.Errorf("%s: no row of states holds %s", file, what)
			}
		}
	}
}
