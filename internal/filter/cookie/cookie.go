// Package cookie answers SYNs and queries in place of a host, so that only clients that are there
// reach it: functions for programs at ingress, which clang makes of bpf/cookie.bpf.c,
// bpf/truncate.bpf.c and bpf/challenge.bpf.c, and the layout of their memory.
//
// The memory is a head with the secret key, a meter for each rule, and lines of eight sources
// that have proven themselves, or whose handshake was seen. Nothing is kept of a SYN: what its
// answer acknowledges is a keyed hash of the addresses, the ports and the time, and a client
// that is there sends a RST with that number. A source's hash names its line; a place is a tag
// of the hash and the time at which the proof ends. A place whose time has passed is as good as
// empty. A line that is full gives the place of the source whose proof ends first.
//
// Of a query nothing is kept either. The answer to one of DNS says that it is cut short, and the
// handshake of the TCP connection by which the client asks again proves it. That to one by A2S has
// a number, a keyed hash of the flow and the time, and who sends it back proves his flow to package
// echo.
//
// The package opens, pins and loads nothing.
package cookie

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"levee/internal/filter/assembler"
	"levee/internal/lang/action"
	"levee/internal/packet"
)

//go:generate ../../../bpf/compile -type cookie_head -type meter -type cookie_source -type cookie_memory -type cookie_own -type cookie_work -type cookie_result answer ../../../bpf/cookie.bpf.c

//go:generate ../../../bpf/compile truncate ../../../bpf/truncate.bpf.c

//go:generate ../../../bpf/compile challenge ../../../bpf/challenge.bpf.c

// Names of the maps with the memory, and with what each CPU works on, in the specs of programs.
const (
	Map     = "cookies"
	WorkMap = "work"
)

// What the function returns.
const (
	GoesOn   = int32(answerCookieResultCOOKIE_GOES_ON)
	Answered = int32(answerCookieResultCOOKIE_ANSWERED)
	Dropped  = int32(answerCookieResultCOOKIE_DROPPED)
)

// Layout of bpf/cookie.bpf.c.
const (
	Size      = int(unsafe.Sizeof(answerCookieMemory{}))
	HeadBytes = int(unsafe.Sizeof(answerCookieHead{}))
	WorkBytes = int(unsafe.Sizeof(answerCookieWork{}))
	Meters    = len(answerCookieMemory{}.Meters)

	atClock   = int(unsafe.Offsetof(answerCookieHead{}.Clock))
	atSecond  = int(unsafe.Offsetof(answerCookieHead{}.Second))
	atLease   = int(unsafe.Offsetof(answerCookieHead{}.Lease))
	atProven  = int(unsafe.Offsetof(answerCookieHead{}.Proven))
	atForged  = int(unsafe.Offsetof(answerCookieHead{}.Forged))
	atEvicted = int(unsafe.Offsetof(answerCookieHead{}.Evicted))

	atMeters  = int(unsafe.Offsetof(answerCookieMemory{}.Meters))
	ofUntil   = int(unsafe.Offsetof(answerMeter{}.Until))
	meterSize = int(unsafe.Sizeof(answerMeter{}))

	lines      = len(answerCookieMemory{}.Sources)
	lineSize   = int(unsafe.Sizeof(answerCookieMemory{}.Sources[0]))
	atTags     = int(unsafe.Offsetof(answerCookieMemory{}.Tags))
	atSources  = int(unsafe.Offsetof(answerCookieMemory{}.Sources))
	sourceSize = int(unsafe.Sizeof(answerCookieSource{}))
	ofTag      = int(unsafe.Offsetof(answerCookieSource{}.Tag))
	ofExpires  = int(unsafe.Offsetof(answerCookieSource{}.Expires))
)

// Places is the number of sources for which a memory has room.
const Places = (Size - atSources) / sourceSize

// Lease is the time in which a source that has proven itself sends SYNs that nobody answers in the
// host's place.
const Lease = 10 * time.Minute

// How many instructions the functions have, at most: those that answer, and those that know
// sources.
const (
	MaxInstructions       = 4_300
	MaxSourceInstructions = 1_000
)

// labels are the functions that answer. All are given the context, the number of the rule's meter
// and how many packets a second pass unanswered. That for DNS is told by 1 or 0 whether there is
// EDNS, too, and that for A2S which tally of package echo counts what it gives.
var labels = [action.NumAnswered]string{
	action.SYNs: "cookie", action.DNSQueries: "truncate", action.A2SQueries: "challenge",
}

// Label returns the function that answers one kind of packets.
func Label(of action.Answered) string { return labels[of] }

// ProveLabel is the function that has a source count as proven. ProvenLabel returns 1 for a source
// that does, else 0. Both are given the upper and the lower half of its address, of IPv4 the
// address and 0, and its class.
const (
	ProveLabel  = "cookie_prove"
	ProvenLabel = "cookie_proven"
)

var load = sync.OnceValues(loadAnswer)

// answers are the objects of the functions that answer.
var answers = [action.NumAnswered]func() (*ebpf.CollectionSpec, error){
	action.SYNs: load, action.DNSQueries: sync.OnceValues(loadTruncate),
	action.A2SQueries: sync.OnceValues(loadChallenge),
}

// variant returns the end of the names of functions in the objects, by purpose.
func variant(tcx, frags bool, link packet.Link) string {
	name := "xdp"
	switch {
	case tcx:
		name = "tcx"
	case frags:
		name = "xdp_frags"
	}
	if link == packet.L3 {
		name += "_ip"
	}
	return name
}

// WorkSpec describes the map with the function's scratch memory.
func WorkSpec() *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: WorkMap, Type: ebpf.PerCPUArray, KeySize: 4,
		ValueSize: uint32(WorkBytes), MaxEntries: 1}
}

// Emit emits the function of Label, for programs at tc or at XDP, for packets in one buffer or
// several.
func Emit(b *assembler.Builder, of action.Answered, context assembler.Param, tcx, frags bool,
	link packet.Link) error {
	label, variant := labels[of], variant(tcx, frags, link)
	params := []assembler.Param{context, assembler.Number("meter"), assembler.Number("above")}
	if of != action.SYNs {
		params = append(params, assembler.Number("detail"))
	}
	return b.Function(answers[of], "answer "+of.Info().What, assembler.Function{Label: label,
		Name: label + "_" + variant, Entry: "entry_" + variant, Params: params})
}

// EmitSources emits the functions of ProveLabel and ProvenLabel that are called.
func EmitSources(b *assembler.Builder) error {
	source := []assembler.Param{assembler.Number("hi"), assembler.Number("lo"),
		assembler.Number("class")}
	return b.Functions(load, "know sources",
		assembler.Function{Label: ProveLabel, Entry: answerProgEntryProve, Params: source},
		assembler.Function{Label: ProvenLabel, Entry: answerProgEntryProven, Params: source})
}

// Class returns the class of a source, by its family.
func Class(six bool) int32 {
	if six {
		return classIPv6
	}
	return classIPv4
}

// Seed draws the key of a memory and writes its times. The memory is all zero else.
func Seed(memory []byte, hz uint64) {
	binary.NativeEndian.PutUint64(memory, rand.Uint64())
	binary.NativeEndian.PutUint64(memory[8:], rand.Uint64())
	binary.NativeEndian.PutUint32(memory[atSecond:], uint32(hz))
	binary.NativeEndian.PutUint32(memory[atLease:], uint32(uint64(Lease/time.Second+1)*hz))
}

// SetClock sets the time, in jiffies, that programs use; 0 is for that of the kernel. The key is
// the same in all memories then. It is for tests.
func SetClock(memory []byte, jiffies uint64) {
	clear(memory[:atClock])
	binary.NativeEndian.PutUint64(memory[atClock:], jiffies)
}

// Stats counts the proven sources of a memory.
type Stats struct {
	Sources int    `json:"proven"`  // that have proven themselves
	Places  int    `json:"room"`    // in all
	Proven  uint64 `json:"proofs"`  // RSTs that proved their source
	Forged  uint64 `json:"forged"`  // RSTs that proved nothing
	Evicted uint64 `json:"evicted"` // sources that lost their place to others before their time
}

// Read counts what is in a memory at a time in jiffies.
func Read(memory []byte, jiffies uint64) Stats {
	word := func(at int) uint64 { return binary.NativeEndian.Uint64(memory[at:]) }
	s := Stats{Places: Places, Proven: word(atProven), Forged: word(atForged),
		Evicted: word(atEvicted)}
	lease := binary.NativeEndian.Uint32(memory[atLease:])
	for at := atSources; at < len(memory); at += sourceSize {
		tag := binary.NativeEndian.Uint32(memory[at+ofTag:])
		expires := binary.NativeEndian.Uint32(memory[at+ofExpires:])
		if tag != 0 && expires-uint32(jiffies)-1 < lease {
			s.Sources++
		}
	}
	return s
}

// Answering reports whether the SYNs of a meter are answered, at a time in jiffies.
func Answering(memory []byte, meter int, jiffies uint64) bool {
	return jiffies < binary.NativeEndian.Uint64(memory[atMeters+meter*meterSize+ofUntil:])
}
