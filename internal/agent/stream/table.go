package stream

import (
	"encoding/json"
	"net/netip"
	"slices"
	"time"
)

// Segment is a packet of a flow. It is valid until the call that it is given to returns.
type Segment struct {
	At       time.Time
	Dev      string // that it came in on
	Src, Dst netip.AddrPort
	Proto    uint8
	// First is the number of the first byte of the flow; of datagrams it tells the flow from others
	// of the same addresses. Seq is the number of the first byte of Data; of datagrams it is how
	// many came before.
	First, Seq uint32
	Data       []byte
	Cut        bool // bytes behind Data are missing
	Ends       bool // nothing comes behind it
	Proven     bool // whoever sends it has shown that the address is his
}

// Reader reads flows of a protocol.
type Reader struct {
	Protocol *Protocol
	// Wants says which flows are read, of the protocol.
	Wants func(proto uint8, src, dst netip.AddrPort) bool
	// Line is given each record; it keeps it, or not.
	Line func([]byte)
	// Unproven is given those of flows that nobody has proven within their time; nil: nobody is.
	Unproven func([]byte)
	// Flows were read, of which those are Unknown that could not be, or are no such streams. On
	// some of those the parser Failed: that is a fault of it.
	Flows, Unknown, Failed uint64
}

// TimeForm is that of times in EVE.
const TimeForm = "2006-01-02T15:04:05.000000-0700"

// Bounds of a table.
const (
	mostFlows = 8192
	mostHeld  = 16 << 20 // bytes that parsers keep, and records that wait for the proof
	// Patience limits the time in which a flow says what is read.
	Patience = 10 * time.Second
	// MostDatagrams limits those of a flow in front of its proof.
	MostDatagrams = 16
)

// Table is the flows that are being read. It is used by one goroutine.
type Table struct {
	Readers []*Reader
	// Forget is told of each flow of which nothing more is wanted.
	Forget func(*Key)
	// Proves says what is known of a flow of datagrams of which so many were read; nil: nothing
	// ever is.
	Proves func(k *Key, first, datagrams uint32) Proof

	flows map[Key]*flow
	order []*flow // by their age; those that have gone are nil in flows
	held  int
}

// Proof says whether the sender of datagrams has proven its address.
type Proof uint8

const (
	Waits   Proof = iota // he may prove himself yet
	Proven               // the address is his, and nobody has sent others in his name
	NoProof              // nothing there proves anybody
)

// Key identifies a flow.
type Key struct {
	Dev      string
	Src, Dst netip.AddrPort
	Proto    uint8
}

type flow struct {
	key      Key
	since    time.Time
	first    uint32
	next     uint32 // byte, or datagram
	proven   bool
	over     bool // nothing more is wanted; what is under way comes nonetheless
	gone     bool
	readings []reading
}

// reading is a flow as one reader sees it.
type reading struct {
	*Reader
	parser Parser // nil: it has an answer
	held   int    // bytes that it keeps
	record []byte // which waits for the proof; nil: none
	told   bool   // it was handed on
}

// Segment reads a packet.
func (t *Table) Segment(s *Segment) {
	if t.flows == nil {
		t.flows = map[Key]*flow{}
	}
	k := Key{s.Dev, s.Src, s.Dst, s.Proto}
	f := t.flows[k]
	if f != nil && f.first != s.First {
		t.end(f) // the port is used again
		t.remove(f)
		f = nil
	}
	if f == nil {
		if f = t.begin(k, s); f == nil {
			t.forget(&k)
			return
		}
	}
	if f.over {
		return
	}
	if s.Proven && !f.proven {
		f.proven = true
		t.tell(f)
	}
	if s.Proto == UDP {
		t.datagram(f, s)
	} else {
		t.feed(f, s)
	}
	if s.Ends {
		t.end(f)
	}
	if f.finished() {
		f.over = true
		t.forget(&f.key)
	}
	for t.held > mostHeld || len(t.flows) > mostFlows {
		t.evict()
	}
}

// begin returns a new flow; nil: nobody reads it.
func (t *Table) begin(k Key, s *Segment) *flow {
	f := &flow{key: k, since: s.At, first: s.First, next: s.First}
	if s.Proto == UDP {
		f.next = 0
	}
	for _, r := range t.Readers {
		if slices.Contains(r.Protocol.Protos, s.Proto) && r.Wants(s.Proto, s.Src, s.Dst) {
			r.Flows++
			f.readings = append(f.readings, reading{Reader: r, parser: r.Protocol.New(s.Proto)})
		}
	}
	if len(f.readings) == 0 {
		return nil
	}
	t.flows[k] = f
	if t.order = append(t.order, f); len(t.order) > 2*mostFlows {
		t.order = slices.DeleteFunc(t.order, func(f *flow) bool { return f.gone })
	}
	return f
}

// feed gives parsers what follows in order. Bytes that were read before are dropped, whatever they
// are now; where some are missing, nobody knows what the flow says.
func (t *Table) feed(f *flow, s *Segment) {
	data, gap := s.Data, false
	switch at := int32(s.Seq - f.next); {
	case at > 0:
		data, gap = nil, len(data) > 0 || s.Cut
	case int(-at) >= len(data):
		data = nil
	default:
		data = data[-at:]
	}
	f.next += uint32(len(data))
	full := f.next-f.first >= Limit
	for i := range f.readings {
		r := &f.readings[i]
		if r.parser == nil {
			continue
		}
		answer := More
		if len(data) > 0 {
			held := r.held
			answer = r.feed(data)
			t.held += r.held - held
		}
		if answer == More && (gap || s.Cut && len(data) > 0 || full) {
			answer = r.end()
		}
		t.answer(f, r, answer, s.At)
	}
}

// datagram gives parsers the next datagram. Until the flow is proven anybody may have sent it, so
// that each counts: one that is missing, or that a parser does not know, leaves nothing known.
func (t *Table) datagram(f *flow, s *Segment) {
	missing := s.Seq != f.next || s.Cut || s.Seq >= MostDatagrams
	f.next = s.Seq + 1
	for i := range f.readings {
		r := &f.readings[i]
		if r.parser == nil {
			continue
		}
		answer := Unknown
		if !missing {
			held := r.held
			answer = r.feed(s.Data)
			t.held += r.held - held
		}
		switch {
		case answer == Unknown:
			t.held -= len(r.record)
			r.record = nil
			t.answer(f, r, Unknown, s.At)
		case answer == Done && r.record == nil:
			if r.record = f.record(r, s.At); r.record == nil {
				t.answer(f, r, Unknown, s.At)
				continue
			}
			t.held += len(r.record)
		}
	}
}

// Prove asks which flows of datagrams are proven by now, and hands on their records.
func (t *Table) Prove() {
	for _, f := range t.order {
		if f.gone || f.over || f.key.Proto != UDP || !f.waits() {
			continue
		}
		is := NoProof
		if t.Proves != nil {
			is = t.Proves(&f.key, f.first, f.next)
		}
		switch is {
		case Waits:
			continue
		case Proven:
			f.proven = true
			t.tell(f)
		case NoProof:
			t.unproven(f)
		}
		t.end(f)
		f.over = true
		t.forget(&f.key)
	}
}

// unproven hands on records of flows that are not proven, to sources that ask for such.
func (t *Table) unproven(f *flow) {
	for i := range f.readings {
		r := &f.readings[i]
		if r.record == nil {
			continue
		}
		if r.Unproven != nil {
			r.Unproven(r.record)
		}
		t.held -= len(r.record)
		r.record, r.told = nil, true
	}
}

// waits is that there is a record of a flow that is not proven.
func (f *flow) waits() bool {
	return slices.ContainsFunc(f.readings, func(r reading) bool { return r.record != nil })
}

// guard has a parser do something. What it does is decided by strangers: where it fails, nothing
// is known of this flow, and all others go on.
func (r *reading) guard(do func()) (ok bool) {
	defer func() {
		if recover() != nil {
			r.Failed++
		}
	}()
	do()
	return true
}

func (r *reading) feed(b []byte) (a Answer) {
	if !r.guard(func() { a = r.parser.Feed(b); r.held = r.parser.Held() }) {
		return Unknown
	}
	return a
}

// end returns the answer where nothing more comes.
func (r *reading) end() Answer {
	is := false
	if r.guard(func() { is = r.parser.End() }) && is {
		return Done
	}
	return Unknown
}

// answer takes what a parser says.
func (t *Table) answer(f *flow, r *reading, a Answer, at time.Time) {
	if a == More || r.parser == nil {
		return
	}
	t.held -= r.held
	if a == Done {
		r.record = f.record(r, at)
		t.held += len(r.record) // which may be several times what the parser kept
	}
	if r.record == nil {
		r.Unknown++
	}
	r.parser, r.held = nil, 0
	if f.proven {
		t.tell(f)
	}
}

// end ends what is not read whole.
func (t *Table) end(f *flow) {
	for i := range f.readings {
		r := &f.readings[i]
		if r.parser == nil {
			continue
		}
		if f.key.Proto == UDP { // there is no end of datagrams, which would say something
			if r.record == nil && !r.told {
				r.Unknown++
			}
			t.held -= r.held
			r.parser, r.held = nil, 0
			continue
		}
		t.answer(f, r, r.end(), f.since)
	}
}

// Expire ends flows that have taken too long.
func (t *Table) Expire(now time.Time) {
	for len(t.order) > 0 {
		f := t.order[0]
		if !f.gone && now.Sub(f.since) < Patience {
			return
		}
		t.order = t.order[1:]
		t.give(f)
	}
	t.order = nil
}

// evict ends the oldest flow.
func (t *Table) evict() {
	for len(t.order) > 0 {
		f := t.order[0]
		t.order = t.order[1:]
		if !f.gone {
			t.give(f)
			return
		}
	}
}

// give ends a flow, whose place others may have.
func (t *Table) give(f *flow) {
	if f.gone {
		return
	}
	t.end(f)
	t.unproven(f)
	t.remove(f)
	if !f.over {
		t.forget(&f.key)
	}
}

func (t *Table) remove(f *flow) {
	f.gone = true
	delete(t.flows, f.key)
	for i := range f.readings {
		r := &f.readings[i]
		t.held -= len(r.record) + r.held
	}
	f.readings = nil
}

func (t *Table) forget(k *Key) {
	if t.Forget != nil {
		t.Forget(k)
	}
}

// finished is that nobody wants more, and nothing waits for the proof.
func (f *flow) finished() bool {
	for i := range f.readings {
		if r := &f.readings[i]; r.parser != nil || r.record != nil {
			return false
		}
	}
	return true
}

// tell hands on what has waited for the proof.
func (t *Table) tell(f *flow) {
	for i := range f.readings {
		if r := &f.readings[i]; r.record != nil {
			r.Line(r.record)
			t.held -= len(r.record)
			r.record, r.told = nil, true
		}
	}
}

// record returns what a reader is told of a flow; nil: the parser fails to say it.
func (f *flow) record(r *reading, at time.Time) []byte {
	var out map[string]any
	if !r.guard(func() { out = r.parser.Record() }) {
		return nil
	}
	out["timestamp"] = at.UTC().Format(TimeForm)
	out["event_type"], out["app_proto"], out["proto"] = r.Protocol.Name, r.Protocol.Name, "TCP"
	if f.key.Proto == UDP {
		out["proto"] = "UDP"
	}
	out["in_iface"] = f.key.Dev
	out["src_ip"], out["src_port"] = f.key.Src.Addr().String(), f.key.Src.Port()
	out["dest_ip"], out["dest_port"] = f.key.Dst.Addr().String(), f.key.Dst.Port()
	text, err := json.Marshal(out)
	if err != nil { // of texts and numbers there is none
		return nil
	}
	return text
}
