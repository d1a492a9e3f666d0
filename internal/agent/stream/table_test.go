package stream

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/lang/eve"
)

var (
	client = netip.MustParseAddrPort("192.0.2.7:40000")
	server = netip.MustParseAddrPort("198.51.100.1:22")
	begun  = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
)

// protocolTest holds the first bytes of a client of a protocol, and a part of the record.
type protocolTest struct {
	protocol *Protocol
	says     []byte
	want     string
}

// reads is a table with a reader of a protocol, and what it was told.
func reads(k *Protocol) (*Table, *Reader, *[]string) {
	lines := &[]string{}
	r := &Reader{Protocol: k,
		Wants: func(uint8, netip.AddrPort, netip.AddrPort) bool { return true },
		Line:  func(b []byte) { *lines = append(*lines, string(b)) }}
	return &Table{Readers: []*Reader{r}}, r, lines
}

// segment is one of a flow whose first byte has a number that soon begins anew.
func segment(k *Protocol, at int, data []byte) *Segment {
	const first = 0xffff_fff0
	return &Segment{At: begun, Dev: "eth0", Src: client, Dst: server, Proto: TCP, Proven: true,
		Data: data, First: first, Seq: uint32(first + at)}
}

// TestPiecesOfAStreamGiveOneAnswer: whole, byte by byte, and split at random, with pieces that come
// twice and say other things the second time.
func TestPiecesOfAStreamGiveOneAnswer(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, test := range protocolTests(t) {
		var whole string
		for run := range 200 {
			table, _, lines := reads(test.protocol)
			for at := 0; at < len(test.says); {
				n := len(test.says)
				switch {
				case run == 0:
				case run == 1:
					n = 1
				default:
					n = 1 + r.IntN(1+r.IntN(len(test.says)))
				}
				n = min(n, len(test.says)-at)
				table.Segment(segment(test.protocol, at, test.says[at:at+n]))
				if run > 1 && at > 0 {
					again := []byte(strings.Repeat("x", r.IntN(at+1)))
					table.Segment(segment(test.protocol, at-len(again), again))
				}
				at += n
			}
			last := segment(test.protocol, len(test.says), nil)
			last.Ends = true
			table.Segment(last)
			if len(*lines) != 1 {
				t.Fatalf("%s, run %d: %d records", test.protocol.Name, run, len(*lines))
			}
			if whole == "" {
				whole = (*lines)[0]
			}
			if (*lines)[0] != whole {
				t.Fatalf("%s, run %d: %s\nwhole: %s", test.protocol.Name, run, (*lines)[0], whole)
			}
			if table.Expire(begun.Add(Patience)); len(table.flows) > 0 || table.held != 0 {
				t.Fatalf("%s: %d flows and %d bytes are held", test.protocol.Name, len(table.flows),
					table.held)
			}
		}
		if !strings.Contains(whole, test.want) || !json.Valid([]byte(whole)) {
			t.Errorf("%s: %s\nhas no %s", test.protocol.Name, whole, test.want)
		}
	}
}

// TestRecordsHaveTheFieldsOfTheirKind, and no others: check refuses conditions on others.
func TestRecordsHaveTheFieldsOfTheirKind(t *testing.T) {
	for _, test := range protocolTests(t) {
		table, _, lines := reads(test.protocol)
		table.Segment(segment(test.protocol, 0, test.says))
		table.Expire(begun.Add(Patience))
		var all map[string]any
		if len(*lines) != 1 || json.Unmarshal([]byte((*lines)[0]), &all) != nil {
			t.Fatalf("%s: %q", test.protocol.Name, *lines)
		}
		known := map[string]bool{}
		for _, f := range test.protocol.All() {
			known[f] = true
		}
		var walk func(prefix string, m map[string]any)
		walk = func(prefix string, m map[string]any) {
			for name, v := range m {
				if below, is := v.(map[string]any); is {
					walk(prefix+name+".", below)
				} else if !known[prefix+name] {
					t.Errorf("%s has %s", test.protocol.Name, prefix+name)
				}
			}
		}
		walk("", all)
	}
}

// TestTypesOfRecordsAreKnown: check warns of a type that nothing writes.
func TestTypesOfRecordsAreKnown(t *testing.T) {
	f, ok := eve.Named("event_type")
	for _, k := range Protocols {
		if !ok || !slices.Contains(f.Values, k.Name) {
			t.Errorf("%s is no event_type", k.Name)
		}
	}
}

// TestAGapIsNoAnswer: nobody knows what a flow says of which bytes are missing.
func TestAGapIsNoAnswer(t *testing.T) {
	says := []byte("SSH-2.0-libssh\r\n")
	for at := 1; at < len(says); at++ {
		table, r, lines := reads(&ssh)
		table.Segment(segment(&ssh, 0, says[:at-1]))
		table.Segment(segment(&ssh, at, says[at:]))
		if len(*lines) != 0 || r.Unknown != 1 {
			t.Errorf("without byte %d: %q, %d unknown", at, *lines, r.Unknown)
		}
	}
}

// TestNothingIsSaidOfFlowsThatProveNothing: anybody can write an address into a packet.
func TestNothingIsSaidOfFlowsThatProveNothing(t *testing.T) {
	table, r, lines := reads(&ssh)
	s := segment(&ssh, 0, []byte("SSH-1.5-libssh\r\n"))
	s.Proven = false
	table.Segment(s)
	table.Expire(begun.Add(Patience))
	if len(*lines) != 0 || r.Flows != 1 || len(table.flows) != 0 {
		t.Fatalf("%q, %d flows", *lines, len(table.flows))
	}
	// The proof may come behind what is said.
	table.Segment(s)
	s = segment(&ssh, len(s.Data), nil)
	table.Segment(s)
	if len(*lines) != 1 {
		t.Fatalf("%q", *lines)
	}
}

// TestMemoryOfFlowsIsBounded, whatever they say and never end.
func TestMemoryOfFlowsIsBounded(t *testing.T) {
	table, _, _ := reads(&ssh)
	forgotten := 0
	table.Forget = func(*Key) { forgotten++ }
	long := append([]byte("SSH-2.0-x\n\x00\x00\x3f\x00\x05\x14"), make([]byte, 8000)...)
	const flows = 10 * mostFlows
	for i := range flows {
		s := segment(&ssh, 0, long)
		s.Src = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8),
			byte(i)}), 1)
		table.Segment(s)
		if len(table.flows) > mostFlows || table.held > mostHeld+len(long) ||
			len(table.order) > 2*mostFlows+1 {
			t.Fatalf("%d flows, %d bytes", len(table.flows), table.held)
		}
	}
	table.Expire(begun.Add(Patience))
	if forgotten != flows || table.held != 0 || len(table.flows) != 0 {
		t.Errorf("%d of %d flows are over, %d bytes are held", forgotten, flows, table.held)
	}
}

// TestMemoryOfWhatWaitsForAProofIsBounded: of a flow that is forged, a record that is whole waits
// for the proof. JSON takes six bytes for one that a client may choose, and a line that was read
// stays in the record of which more is to come.
func TestMemoryOfWhatWaitsForAProofIsBounded(t *testing.T) {
	line := "GET /" + strings.Repeat("\x01", 15<<10) + " HTTP/1.1\r\n"
	for _, says := range []string{line + "\r\n", line} {
		table, _, lines := reads(&http)
		for i := range 2000 {
			s := segment(&http, 0, []byte(says))
			s.Proven = false
			s.Src = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1)
			table.Segment(s)
			held := 0
			if i%500 == 499 {
				for _, f := range table.flows {
					for _, r := range f.readings {
						held += len(r.record)
						if r.parser != nil {
							held += len(r.parser.(*httpParser).fields["url"].(string))
						}
					}
				}
			}
			if held > mostHeld {
				t.Fatalf("%d flows that nobody has proven hold %d bytes", len(table.flows), held)
			}
		}
		table.Expire(begun.Add(Patience))
		if table.held != 0 || len(*lines) != 0 {
			t.Errorf("%d bytes are held of flows that are over, %d records", table.held,
				len(*lines))
		}
	}
}

// failing is a parser with a fault in one of its methods.
type failing struct{ in string }

func (p failing) fail(in string) {
	if p.in == in {
		panic("a fault in " + in)
	}
}

func (p failing) Feed([]byte) Answer { p.fail("Feed"); return More }
func (p failing) End() bool          { p.fail("End"); return true }
func (p failing) Held() int          { p.fail("Held"); return 1 }
func (p failing) Record() map[string]any {
	p.fail("Record")
	return map[string]any{}
}

// TestAFaultOfAParserEndsItsFlowAlone: another reader of the flow, and the agent, go on.
func TestAFaultOfAParserEndsItsFlowAlone(t *testing.T) {
	for _, in := range []string{"Feed", "Held", "End", "Record"} {
		table, good, lines := reads(&ssh)
		bad := &Reader{Protocol: &Protocol{Name: "bad", Protos: []uint8{TCP},
			New: func(uint8) Parser { return failing{in} }},
			Wants: good.Wants, Line: good.Line}
		table.Readers = []*Reader{bad, good}
		table.Segment(segment(&ssh, 0, []byte("SSH-1.5-x\r\n")))
		table.Expire(begun.Add(Patience))
		if len(*lines) != 1 || !strings.Contains((*lines)[0], `"software_version":"x"`) {
			t.Errorf("%s: %q", in, *lines)
		}
		if bad.Failed != 1 || bad.Unknown != 1 || table.held != 0 || len(table.flows) != 0 {
			t.Errorf("%s: %d failed, %d unknown, %d bytes held", in, bad.Failed, bad.Unknown,
				table.held)
		}
	}
}

// FuzzTable: whatever packets of a few flows come in whatever order, each flow is told once to who
// reads it, or is unknown, or not proven; and nothing is held in the end.
func FuzzTable(f *testing.F) {
	hello := string(testHello(700))
	f.Add([]byte{0, 0, 255, 0, 0, 3, 255, 1, 7, 0, 255, 8}, hello)
	f.Add([]byte{4, 0, 255, 5, 1, 255, 4, 0, 60, 5, 9, 0, 12, 0, 0}, string(testQuery(0))+hello)
	f.Add([]byte{1, 0, 9, 1, 2, 9, 1, 1, 9, 2, 0, 2, 3, 200, 255, 128, 0, 4}, "SSH-2.0-Go\r\nGET /")
	f.Fuzz(func(t *testing.T, ops []byte, says string) {
		if len(ops) > 3000 || len(says) > Limit {
			return
		}
		type outcome struct{ told, unproven uint64 }
		outcomes := make([]outcome, len(Protocols))
		table := &Table{Proves: func(k *Key, _, n uint32) Proof {
			return Proof((n + uint32(k.Src.Port())) % 3)
		}}
		for i, k := range Protocols {
			table.Readers = append(table.Readers, &Reader{Protocol: k,
				Wants: func(_ uint8, src, _ netip.AddrPort) bool {
					return src.Port() != 1 || i%2 == 0
				},
				Line:     func([]byte) { outcomes[i].told++ },
				Unproven: func([]byte) { outcomes[i].unproven++ }})
		}
		now := begun
		for ; len(ops) >= 3; ops = ops[3:] {
			at, n := int(ops[1]), int(ops[2])*16
			data := says[min(at, len(says)):]
			s := &Segment{At: now, Dev: "eth0", Dst: server, Proto: TCP, First: uint32(ops[0] >> 7),
				Src: netip.AddrPortFrom(client.Addr(), uint16(ops[0]&3)), Cut: ops[0]&8 != 0,
				Ends: ops[0]&16 != 0, Proven: ops[0]&32 != 0,
				Data: []byte(data[:min(n, len(data))])}
			s.Seq = s.First + uint32(at)
			if ops[0]&4 != 0 {
				s.Proto, s.Seq = UDP, uint32(ops[1]%20)
			}
			table.Segment(s)
			if ops[0]&64 != 0 {
				table.Prove()
				now = now.Add(3 * time.Second)
				table.Expire(now)
			}
			held := 0
			for _, f := range table.flows {
				for i := range f.readings {
					held += f.readings[i].held + len(f.readings[i].record)
				}
			}
			if table.held != held {
				t.Fatalf("%d bytes are held, and %d counted", held, table.held)
			}
		}
		table.Expire(now.Add(Patience))
		if len(table.flows) != 0 || table.held != 0 || len(table.order) != 0 {
			t.Fatalf("%d flows and %d bytes are left", len(table.flows), table.held)
		}
		for i, r := range table.Readers {
			if o := outcomes[i]; o.told+o.unproven+r.Unknown != r.Flows || r.Failed != 0 {
				t.Fatalf("%s: %d flows, of which %+v and %d are unknown; %d have failed",
					r.Protocol.Name, r.Flows, o, r.Unknown, r.Failed)
			}
		}
	})
}
