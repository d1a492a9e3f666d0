package names

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"levee/internal/filter/hashtable"
	"levee/internal/lang/dnsname"
)

// The value of the map of a dynamic set, besides what package hashtable keeps there:
//
//	104    room; the secret of digests, 2 x u64
//	128    number of codes in use; of pieces: how many were ever used, the first free one, how
//	       many are free
//	512    the codes in use
//	8192   how many entries have each code
//	12288  buckets of 64 bytes: 3 x u64 meta, 3 x u64 digest, 3 x u32 first piece, u32 spilled
//	then   pieces of 16 bytes: u32 next piece, 12 bytes of text
//
// The code of an entry is the number of its labels + 1 if it stands for itself and all below, + 129
// if only for what is below. Programs read no text: it is for who lists the set, and for who mends
// it. The text begins with its length, in one byte, and is the name as messages have it.
const (
	offRoom   = hashtable.AtOwn // u64
	offSecret = offRoom + 8     // 2 x u64
	offNumber = 128             // u32
	offUsed   = 132             // u32: pieces 1 to this were given to entries once
	offFree   = 136             // u32: the first free piece; 0: none
	offFrees  = 140             // u32: how many those are
	offCodes  = 512             // u32 each
	offCounts = hashtable.AtRest
	offTable  = 12288

	lineBytes = 64 // of a bucket
	lineSlots = 3  // of which two are used on average

	pieceBytes = 16
	pieceText  = 12
	pieceShare = 3 // pieces an entry of the room: 35 bytes of name

	codeSelf  = 1   // code of the root
	codeBelow = 129 // of what is below the root
	lastCode  = codeBelow + dnsname.MaxLabels - 1
)

// MaxEntries is the largest max of a dynamic set of names.
const MaxEntries = 1 << 23

// MaxCodes limits the different numbers of labels that entries have at the same time, those of
// wildcards counted apart: a look-up asks for one after the other.
const MaxCodes = 32

// Errors that a caller may match.
var (
	ErrFull   = hashtable.ErrFull
	ErrLabels = errors.New("too many different numbers of labels")
	ErrLayout = hashtable.ErrLayout
)

var kind = &hashtable.Kind{
	Of:         "of a set of names",
	Magic:      0x736d616e6c0a1b21,
	Version:    1,
	MaxEntries: MaxEntries,
	AtRoom:     offRoom,
	Layout: func(room int) ([]hashtable.Layout, int) {
		return []hashtable.Layout{layoutOf(room)}, sizeFor(room)
	},
}

func layoutOf(room int) hashtable.Layout {
	return hashtable.Layout{
		At: offTable, Buckets: (room+1)/2 + 8, Bytes: lineBytes, Slots: lineSlots,
		Digests: true, Metas: 0, Keys: 24, Values: 48, Spilled: 60, Codes: lastCode,
	}
}

// tableEnd returns where the table ends, and pieces begin.
func tableEnd(room int) int {
	l := layoutOf(room)
	return l.At + l.Size()
}

func piecesFor(room int) int { return room*pieceShare + 64 }

func sizeFor(room int) int {
	return (tableEnd(room) + piecesFor(room)*pieceBytes + 4095) &^ 4095
}

// Spec describes the map of a dynamic set for max entries; see hashtable.Kind.Spec. The error is
// for a max outside 1 to MaxEntries.
func Spec(name string, max int) (*ebpf.MapSpec, error) { return kind.Spec(name, max) }

// FormatRoom makes an empty set of zeroed memory that is laid out for room entries, at least max,
// whose digests depend on the secret: that of the programs that look names up in it.
func FormatRoom(mem []byte, max, room int, secret Secret) error {
	if err := kind.Format(mem, max, room); err != nil {
		return err
	}
	for i, v := range secret {
		binary.LittleEndian.PutUint64(mem[offSecret+8*i:], v)
	}
	return nil
}

// SecretOf returns the secret of a formatted set.
func SecretOf(mem []byte) (s Secret) {
	for i := range s {
		s[i] = binary.LittleEndian.Uint64(mem[offSecret+8*i:])
	}
	return s
}

// Entry is a name or a wildcard with the end of its lease in jiffies; 0 is never.
type Entry struct {
	dnsname.Pattern
	Expires uint64
}

// Dynamic is a set of names with leases in memory that eBPF programs read at the same time. What
// holds between writers and readers is said in package hashtable; of a Dynamic only Lookup may run
// beside a writer.
type Dynamic struct {
	*hashtable.Set
	table  *hashtable.Table // the only one
	mem    hashtable.Memory
	keys   keys
	pieces int          // where the first is
	most   int          // how many there are
	adding dnsname.Name // the text of the key that is being added
}

// OpenDynamic gives access to a formatted set. now is the clock of the leases, in jiffies. Memory
// that is not such a set gives ErrLayout; a set that a writer left half-way is mended.
func OpenDynamic(mem []byte, now func() uint64) (*Dynamic, error) {
	if len(mem) < offTable {
		return nil, fmt.Errorf("dynamic set: %d bytes of memory: %w", len(mem), ErrLayout)
	}
	d := &Dynamic{mem: mem, keys: keysOf(SecretOf(mem))}
	_, err := kind.Open(mem, now, func(s *hashtable.Set) hashtable.Index {
		d.Set, d.table = s, &s.Tables[0]
		d.pieces, d.most = tableEnd(s.Room()), piecesFor(s.Room())
		return index{d}
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// keyOf is not ok for what no name can be below.
func (d *Dynamic) keyOf(p dnsname.Pattern) (hashtable.Key, bool) {
	code := codeSelf + p.Name.Labels()
	if p.Below {
		code += codeBelow - codeSelf
	}
	return hashtable.Key{Hi: d.keys.digest(p.Name).one(), Code: code}, code <= lastCode
}

// one returns a digest in 64 bits, 0 for that of the root.
func (d digest) one() uint64 { return d.a ^ (d.b<<32 | d.b>>32) }

// Add puts a name into the set, or gives one that is there its new lease. A lease that has ended
// already removes the entry. If the set is full of live entries or of their letters, or has no room
// for another number of labels, the error wraps ErrFull or ErrLabels and nothing has changed.
func (d *Dynamic) Add(p dnsname.Pattern, expires uint64) error {
	k, ok := d.keyOf(p)
	if !ok {
		return fmt.Errorf("dynamic set: add %v: no name can be below one of %d labels", p,
			dnsname.MaxLabels)
	}
	d.adding = p.Name
	if err := d.table.Add(k, expires); err != nil {
		return fmt.Errorf("dynamic set: add to %w", err)
	}
	return nil
}

// Touch fetches the memory for which an Add of the name would wait. It changes nothing.
func (d *Dynamic) Touch(p dnsname.Pattern) {
	k, _ := d.keyOf(p)
	d.table.Touch(k)
}

// Delete takes an entry out of the set, whatever its lease, and reports whether its lease had not
// ended.
func (d *Dynamic) Delete(p dnsname.Pattern) bool {
	k, ok := d.keyOf(p)
	return ok && d.table.Delete(k)
}

// Get gives the end of the lease of exactly this entry, if it has not ended.
func (d *Dynamic) Get(p dnsname.Pattern) (expires uint64, ok bool) {
	k, ok := d.keyOf(p)
	if !ok {
		return 0, false
	}
	return d.table.Get(k)
}

// All lists the entries whose lease has not ended, in no order. In a copy that was made beside a
// writer an entry may lack its text: it is left out.
func (d *Dynamic) All() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for k, expires := range d.table.Alive() {
			if p, ok := d.patternOf(k); ok && !yield(Entry{p, expires}) {
				return
			}
		}
	}
}

// Lookup says whether the set has a name, or one that it is below, as programs do. It may run
// beside a writer.
func (d *Dynamic) Lookup(n dnsname.Name) bool {
	labels := n.Labels()
	// from the end: see Count
	for i := int(min(atomic.LoadUint32(d.mem.U32(offNumber)), MaxCodes)) - 1; i >= 0; i-- {
		code := int(atomic.LoadUint32(d.mem.U32(offCodes + 4*i)))
		depth, below := depthOf(code)
		if depth > labels || below && depth == labels {
			continue
		}
		k := hashtable.Key{Hi: d.keys.digest(n.Last(depth)).one(), Code: code}
		if d.table.Holds(k) {
			return true
		}
	}
	return false
}

// depthOf returns the number of labels that a code stands for, and whether it is that of wildcards.
func depthOf(code int) (labels int, below bool) {
	if code < codeBelow {
		return code - codeSelf, false
	}
	return code - codeBelow, true
}

// patternOf returns the entry of a key, by the text that its value names; not ok if that is
// another's.
func (d *Dynamic) patternOf(k hashtable.Key) (p dnsname.Pattern, ok bool) {
	text, ok := d.text(k.Value)
	if !ok {
		return p, false
	}
	_, p.Below = depthOf(k.Code)
	if p.Name, ok = dnsname.Stored(text); !ok {
		return p, false
	}
	again, ok := d.keyOf(p)
	return p, ok && again.Hi == k.Hi && again.Code == k.Code
}

func (d *Dynamic) piece(n uint32) []byte {
	at := d.pieces + int(n-1)*pieceBytes
	return d.mem[at : at+pieceBytes]
}

func nextOf(piece []byte) uint32 { return binary.LittleEndian.Uint32(piece) }

func setNext(piece []byte, next uint32) { binary.LittleEndian.PutUint32(piece, next) }

// links are the pieces of one text.
type links [(1 + math.MaxUint8 + pieceText - 1) / pieceText]uint32

// chain finds the pieces from one on that hold a text; not ok if they do not lie in the memory.
func (d *Dynamic) chain(first uint32, into *links) (numbers []uint32, ok bool) {
	if first == 0 || int(first) > d.most {
		return nil, false
	}
	numbers = into[:piecesOf(int(d.piece(first)[4]))]
	next := first
	for i := range numbers {
		if next == 0 || int(next) > d.most {
			return nil, false
		}
		numbers[i] = next
		next = nextOf(d.piece(next))
	}
	return numbers, true
}

// piecesOf returns how many pieces a name of so many bytes takes.
func piecesOf(bytes int) int { return (1 + bytes + pieceText - 1) / pieceText }

// text returns what stands in the pieces from one on.
func (d *Dynamic) text(first uint32) ([]byte, bool) {
	var at links
	numbers, ok := d.chain(first, &at)
	if !ok {
		return nil, false
	}
	b := make([]byte, 0, len(numbers)*pieceText)
	for _, n := range numbers {
		b = append(b, d.piece(n)[4:]...)
	}
	return b[1 : 1+int(b[0])], true
}

// write gives a text its pieces, of which there are enough.
func (d *Dynamic) write(text dnsname.Name) (first uint32) {
	b := append([]byte{byte(len(text))}, text...)
	var before []byte
	for len(b) > 0 {
		n := d.take()
		piece := d.piece(n)
		setNext(piece, 0)
		b = b[copy(piece[4:], b):]
		if before == nil {
			first = n
		} else {
			setNext(before, n)
		}
		before = piece
	}
	return first
}

// take gives a piece out.
func (d *Dynamic) take() uint32 {
	free := d.mem.U32(offFree)
	if n := *free; n != 0 && int(n) <= d.most {
		*free = nextOf(d.piece(n))
		*d.mem.U32(offFrees)--
		return n
	}
	*d.mem.U32(offUsed)++
	return *d.mem.U32(offUsed)
}

// giveBack makes the pieces of a text free.
func (d *Dynamic) giveBack(first uint32) {
	var at links
	numbers, ok := d.chain(first, &at)
	if !ok {
		return
	}
	for _, n := range numbers {
		setNext(d.piece(n), *d.mem.U32(offFree))
		*d.mem.U32(offFree) = n
		*d.mem.U32(offFrees)++
	}
}

// left returns how many pieces are free.
func (d *Dynamic) left() int {
	return d.most - int(*d.mem.U32(offUsed)) + int(*d.mem.U32(offFrees))
}

// index is the Index of package hashtable for sets of names: it counts their labels.
type index struct{ *Dynamic }

func (d index) countAt(code int) *uint32 { return d.mem.U32(offCounts + 4*code) }

// Admit writes the letters of a key. It refuses a key with a further number of labels if the set
// has as many of these as it may, and a key without room for its letters.
func (d index) Admit(_ *hashtable.Table, k *hashtable.Key, now uint64) error {
	number, want := d.mem.U32(offNumber), piecesOf(len(d.adding))
	if *d.countAt(k.Code) == 0 && *number >= MaxCodes &&
		(!d.Reclaim(now) || *number >= MaxCodes) {
		return fmt.Errorf("%w: %d are in use; delete the entries of one, or use fewer", ErrLabels,
			MaxCodes)
	}
	if d.left() < want && (!d.Reclaim(now) || d.left() < want) {
		return fmt.Errorf("no room for the letters of names, which are more than 35 on average: %w",
			ErrFull)
	}
	k.Value = d.write(d.adding)
	return nil
}

// Dismiss gives the text back.
func (d index) Dismiss(k hashtable.Key) { d.giveBack(k.Value) }

// Count keeps the numbers of entries, the list of codes that programs go through, from its end (as
// package endpoint does), and gives the text back of what has gone.
func (d index) Count(_ *hashtable.Table, k hashtable.Key, by int) {
	if by < 0 {
		d.giveBack(k.Value)
	}
	c := d.countAt(k.Code)
	*c += uint32(by)
	n := d.mem.U32(offNumber)
	at := func(i uint32) *uint32 { return d.mem.U32(offCodes + 4*int(i)) }
	switch {
	case by > 0 && *c == 1 && *n < MaxCodes: // a foreign writer's number may say anything
		atomic.StoreUint32(at(*n), uint32(k.Code))
		atomic.StoreUint32(n, *n+1)
	case by < 0 && *c == 0:
		for i := range min(*n, MaxCodes) {
			if *at(i) == uint32(k.Code) {
				atomic.StoreUint32(at(i), *at(*n - 1))
				atomic.StoreUint32(n, *n-1)
				return
			}
		}
	}
}

// Settle has nothing to do: the list of codes is exact.
func (index) Settle() {}

// Sound compares the codes in use with the counts.
func (d index) Sound() (total uint32, ok bool) {
	listed, ok := d.listed()
	if !ok || int(*d.mem.U32(offUsed)) > d.most || *d.mem.U32(offFrees) > *d.mem.U32(offUsed) ||
		int(*d.mem.U32(offFree)) > d.most {
		return 0, false
	}
	for code := range math.MaxUint8 + 1 {
		n := *d.countAt(code)
		if (n != 0) != listed[code] {
			return 0, false
		}
		total += n
	}
	return total, true
}

// listed gives the codes in the list; not ok if it is no such list.
func (d index) listed() (codes [math.MaxUint8 + 1]bool, ok bool) {
	n := *d.mem.U32(offNumber)
	if n > MaxCodes {
		return codes, false
	}
	for i := range int(n) {
		code := *d.mem.U32(offCodes + 4*i)
		if code < codeSelf || code > lastCode || codes[code] {
			return codes, false
		}
		codes[code] = true
	}
	return codes, true
}

// Possible says that the text of an entry is that of its key.
func (d index) Possible(_ *hashtable.Table, k hashtable.Key) bool {
	_, ok := d.patternOf(k)
	return ok
}

// Recount counts the entries of each code, and finds the pieces that none of them has. A code with
// entries stays in the list.
func (d index) Recount() (total uint32) {
	var counts [math.MaxUint8 + 1]uint32
	for _, k := range d.table.Entries() {
		counts[k.Code]++
	}
	d.relist(&counts)
	taken := make([]bool, d.most+1)
	used := 0
	var at links
	for _, k := range d.table.Entries() {
		numbers, _ := d.chain(k.Value, &at)
		for _, n := range numbers {
			taken[n] = true
			used = max(used, int(n))
		}
		total++
	}
	*d.mem.U32(offUsed), *d.mem.U32(offFree), *d.mem.U32(offFrees) = uint32(used), 0, 0
	for n := used; n > 0; n-- {
		if !taken[n] {
			setNext(d.piece(uint32(n)), *d.mem.U32(offFree))
			*d.mem.U32(offFree) = uint32(n)
			*d.mem.U32(offFrees)++
		}
	}
	for code, n := range counts {
		*d.countAt(code) = n
	}
	return total
}

// relist makes the list of codes agree with the counts. Codes that were listed stay in their order,
// so that they move towards the front only, as in Count; a writer that was killed there has left
// one twice. Entries of more codes than there may be are removed.
func (d index) relist(counts *[math.MaxUint8 + 1]uint32) {
	var kept []int
	listed := [math.MaxUint8 + 1]bool{}
	keep := func(code int) {
		if code < len(counts) && counts[code] > 0 && !listed[code] {
			listed[code] = true
			kept = append(kept, code)
		}
	}
	for i := range int(min(*d.mem.U32(offNumber), MaxCodes)) {
		keep(int(*d.mem.U32(offCodes + 4*i)))
	}
	for code := range counts {
		keep(code)
	}
	for _, code := range kept[min(len(kept), MaxCodes):] {
		for s, k := range d.table.Entries() {
			if k.Code == code {
				d.table.Vacate(s)
			}
		}
		counts[code] = 0
	}
	kept = kept[:min(len(kept), MaxCodes)]
	for i, code := range kept {
		atomic.StoreUint32(d.mem.U32(offCodes+4*i), uint32(code))
	}
	atomic.StoreUint32(d.mem.U32(offNumber), uint32(len(kept)))
}
