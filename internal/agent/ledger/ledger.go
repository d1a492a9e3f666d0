// Package ledger keeps who has leased which entry of which set, and until when, on the disk.
//
// In go leases by set, prefix and origin, and the places up to which files were read; both are
// written in one transaction, so that a process that is killed has neither lost an event nor
// applied one twice. Out come the leases that live. It knows no kernel and no policy, and is used
// by one goroutine.
package ledger

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Entry is the subject of a lease: a prefix, or, in a set of names, a name of the DNS as the set
// lists it.
type Entry struct {
	Prefix netip.Prefix
	Name   string
}

// Of returns the entry of a prefix.
func Of(p netip.Prefix) Entry { return Entry{Prefix: p} }

// Compare orders entries as their keys are: prefixes by family and address, then names.
func (e Entry) Compare(o Entry) int {
	switch {
	case e.Name != "" && o.Name != "":
		return strings.Compare(e.Name, o.Name)
	case e.Name != "":
		return 1
	case o.Name != "":
		return -1
	}
	return e.Prefix.Compare(o.Prefix)
}

// String returns the entry as sets list it: an address without its length.
func (e Entry) String() string {
	switch {
	case e.Name != "":
		return e.Name
	case e.Prefix.IsSingleIP():
		return e.Prefix.Addr().String()
	}
	return e.Prefix.String()
}

// Text is String, but for an address with its length.
func (e Entry) Text() string {
	if e.Name != "" {
		return e.Name
	}
	return e.Prefix.String()
}

// Lease is the claim of one origin on an entry.
type Lease struct {
	Set    string
	Entry  Entry
	Origin string
	Since  time.Time
	Until  time.Time // zero: until withdrawn
}

// Ended tells whether the lease has ended.
func (l *Lease) Ended(now time.Time) bool { return !l.Until.IsZero() && !now.Before(l.Until) }

// ErrBusy is a ledger that another process has open.
var ErrBusy = errors.New("another process has the ledger open")

// ErrFull is wrapped where the ledger has no room for more leases.
var ErrFull = errors.New("the ledger is full")

// MaxLeases limits the leases of a ledger, about 90 bytes each.
const MaxLeases = 4 << 20

// ErrClosed is a ledger that is not open.
var ErrClosed = errors.New("the ledger is not open")

// Ledger is open until Close. The zero value is one that is not: it holds nothing, and takes
// nothing.
type Ledger struct {
	db     *bbolt.DB
	path   string
	leases int
	clock  clock
	// Damaged is the path of a damaged file that Open put aside, "" if none was
	Damaged string
	Reason  error // what was wrong with it
	names   [2]map[string]uint16
	words   [2][]string
}

// Kinds of names.
const (
	sets = iota
	origins
)

var (
	bucketNames     = [2][]byte{[]byte("sets"), []byte("origins")}
	bucketLeases    = []byte("leases")     // of prefixes
	bucketDNS       = []byte("dns-leases") // of names of the DNS
	bucketPositions = []byte("positions")  // of older versions, without a sum
	bucketNotes     = []byte("notes")      // positions, and the clock
	allBuckets      = [][]byte{bucketNames[0], bucketNames[1], bucketLeases, bucketDNS,
		bucketPositions, bucketNotes}
)

// buckets hold the keys. A kind of entry has a bucket of its own: a levee that does not know
// it finds no damage, and has the others.
type buckets struct{ prefixes, names *bbolt.Bucket }

func bucketsOf(tx *bbolt.Tx) buckets {
	return buckets{tx.Bucket(bucketLeases), tx.Bucket(bucketDNS)}
}

func (b buckets) of(k []byte) *bbolt.Bucket {
	if isName(k) {
		return b.names
	}
	return b.prefixes
}

func isName(k []byte) bool { return len(k) > 2 && k[2] == nameFamily }

// cursor visits all leases whose keys begin with a prefix: those of names behind the others.
type cursor struct {
	tx     *bbolt.Tx
	prefix []byte
	in     *bbolt.Cursor
	last   bool
}

// seek goes to the first entry whose key is at least a given one.
func (c *cursor) seek(from []byte) (k, v []byte) {
	c.last = isName(from)
	c.in = bucketsOf(c.tx).of(from).Cursor()
	return c.settle(c.in.Seek(from))
}

func (c *cursor) next() (k, v []byte) { return c.settle(c.in.Next()) }

// settle goes on with names where there is no other.
func (c *cursor) settle(k, v []byte) (_, _ []byte) {
	if k == nil || !bytes.HasPrefix(k, c.prefix) {
		if c.last {
			return nil, nil
		}
		c.last, c.in = true, c.tx.Bucket(bucketDNS).Cursor()
		return c.settle(c.in.Seek(c.prefix))
	}
	return k, v
}

// A key is set 2, family 1, address 16, bits 1, origin 2 bytes, or set 2, 7, a name, 0, origin 2; a
// value since 8, until 8, in ms since 1970 by the clock of the file, and CRC-32C of key and these
// 4. A note ends in the same. All numbers are big-endian.
const (
	prefixKey  = 20 // bytes of the key of a prefix in a set
	originKey  = 2
	nameFamily = 7
	maxKey     = 2 + 1 + 4*255 + 1 + originKey // each byte of a name as \DDD
	valueBytes = 20
	fileMode   = 0o600
)

// Wait limits the wait for a command that has the ledger open: those are short.
const Wait = 10 * time.Second

// Open opens the ledger at path, or makes it, and waits at most wait while another process has it
// open. A file that is damaged is put aside under another name, and an empty ledger takes its
// place; Damaged and Reason say so.
func Open(path string, wait time.Duration) (*Ledger, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the ledger: %w", err)
	}
	l, err := open(path, wait)
	if err == nil || errors.Is(err, ErrBusy) || refused(err) {
		return l, err
	}
	if _, missing := os.Stat(path); missing != nil {
		return nil, err
	}
	aside, renamed := putAside(path)
	if renamed != nil {
		return nil, fmt.Errorf("%w (%w)", renamed, err)
	}
	l, again := open(path, wait)
	if again != nil {
		return nil, again
	}
	l.Damaged, l.Reason = aside, err
	return l, nil
}

// refused tells whether the machine would not open a file, whatever it holds.
func refused(err error) bool {
	return slices.ContainsFunc([]error{fs.ErrPermission, syscall.ENOSPC, syscall.EDQUOT,
		syscall.EROFS, syscall.EIO, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE},
		func(of error) bool { return errors.Is(err, of) })
}

func open(path string, wait time.Duration) (l *Ledger, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { // bbolt panics at pages that are none
		if r := recover(); r != nil {
			err = fmt.Errorf("read the ledger: %v", r)
		}
		if err != nil && l != nil {
			l.abandon()
			l = nil
		}
	}()
	if err := checkPages(path, wait); err != nil {
		return nil, fmt.Errorf("open the ledger %s: %w", path, err)
	}
	db, err := bbolt.Open(path, fileMode, &bbolt.Options{Timeout: max(wait, time.Millisecond),
		FreelistType: bbolt.FreelistMapType})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%w: %s", ErrBusy, path)
	}
	if err != nil {
		return nil, fmt.Errorf("open the ledger %s: %w", path, err)
	}
	l = &Ledger{db: db, path: path}
	for kind := range l.names {
		l.names[kind] = map[string]uint16{}
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range allBuckets {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = l.verify()
	}
	return l, err
}

// abandon closes what may be damaged.
func (l *Ledger) abandon() {
	defer func() { _ = recover() }()
	_ = l.db.Close()
}

// verify reads all of it once.
func (l *Ledger) verify() error {
	return l.view(func(tx *bbolt.Tx) error {
		err := tx.Bucket(bucketNotes).ForEach(func(k, _ []byte) error {
			_, err := noted(tx, k)
			return err
		})
		if err != nil {
			return err
		}
		l.clock.read(tx)
		for kind, name := range bucketNames {
			err := tx.Bucket(name).ForEach(func(k, v []byte) error {
				if len(k) != 2 || int(binary.BigEndian.Uint16(k)) != len(l.words[kind]) {
					return errors.New("a name has no number")
				}
				l.names[kind][string(v)] = uint16(len(l.words[kind]))
				l.words[kind] = append(l.words[kind], string(v))
				return nil
			})
			if err != nil {
				return err
			}
		}
		for _, name := range [][]byte{bucketLeases, bucketDNS} {
			err := tx.Bucket(name).ForEach(func(k, v []byte) error {
				if isName(k) != bytes.Equal(name, bucketDNS) {
					return fmt.Errorf("a lease stands among those of another kind (%x)", k)
				}
				l.leases++
				_, err := l.decode(k, v)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Close ends the use of the file.
func (l *Ledger) Close() error {
	if l.db == nil {
		return nil
	}
	return l.db.Close()
}

// IsOpen tells whether it is.
func (l *Ledger) IsOpen() bool { return l.db != nil }

// view runs fn on what the file holds.
func (l *Ledger) view(fn func(*bbolt.Tx) error) (err error) {
	if l.db == nil {
		return ErrClosed
	}
	defer l.guard(&err)
	return l.db.View(fn)
}

// guard makes an error of a panic of bbolt's, which comes where a file was damaged that it has
// open. The file is put aside, and the ledger is closed: whoever opens it anew gets an empty one.
func (l *Ledger) guard(err *error) {
	r := recover()
	if r == nil {
		return
	}
	db := l.db
	l.db, l.leases = nil, 0
	go func() { // it may wait for a lock that nobody gives back
		defer func() { _ = recover() }()
		_ = db.Close()
	}()
	aside, renamed := putAside(l.path)
	if renamed != nil {
		*err = fmt.Errorf("the ledger is damaged (%v): %w", r, renamed)
		return
	}
	*err = fmt.Errorf("the ledger is damaged, and is put aside as %s: %v", aside, r)
}

// putAside gives a damaged file another name.
func putAside(path string) (aside string, err error) {
	aside = fmt.Sprintf("%s.damaged-%s", path, time.Now().UTC().Format("20060102T150405.000"))
	if err := os.Rename(path, aside); err != nil {
		return "", fmt.Errorf("put the damaged ledger aside: %w", err)
	}
	return aside, nil
}

// Leases returns how many there are, with those that have ended and were not swept yet.
func (l *Ledger) Leases() int { return l.leases }

// Bytes returns the size of the file.
func (l *Ledger) Bytes() (n int64) {
	_ = l.view(func(tx *bbolt.Tx) error { n = tx.Size(); return nil })
	return n
}

func sum(k, v []byte) uint32 {
	castagnoli := crc32.MakeTable(crc32.Castagnoli) // made once, by whoever asks first
	return crc32.Update(crc32.Checksum(k, castagnoli), castagnoli, v)
}

// note notes something under a key, and noted returns what was noted, nil if nothing was. Where
// there is a position without a sum, an older version has run since.
func note(tx *bbolt.Tx, k, v []byte) error {
	if err := tx.Bucket(bucketPositions).Delete(k); err != nil {
		return err
	}
	return tx.Bucket(bucketNotes).Put(k, binary.BigEndian.AppendUint32(slices.Clone(v), sum(k, v)))
}

func noted(tx *bbolt.Tx, k []byte) (v []byte, err error) {
	if v := tx.Bucket(bucketPositions).Get(k); v != nil {
		return v, nil
	}
	b := tx.Bucket(bucketNotes).Get(k)
	if b == nil {
		return nil, nil
	}
	at := max(0, len(b)-crc32.Size)
	if v = b[:at]; len(b) < crc32.Size || sum(k, v) != binary.BigEndian.Uint32(b[at:]) {
		return nil, fmt.Errorf("what is noted under %q is damaged", k)
	}
	return v, nil
}

func (l *Ledger) decode(k, v []byte) (out Lease, err error) {
	entry := entryOf(k)
	if entry == nil || len(v) != valueBytes ||
		sum(k, v[:16]) != binary.BigEndian.Uint32(v[16:]) {
		return out, fmt.Errorf("a lease is damaged (%x %x)", k, v)
	}
	set, origin := binary.BigEndian.Uint16(k), binary.BigEndian.Uint16(k[len(entry):])
	if int(set) >= len(l.words[sets]) || int(origin) >= len(l.words[origins]) {
		return out, fmt.Errorf("a lease is of a set or an origin that there is not (%x)", k)
	}
	out = Lease{Set: l.words[sets][set], Origin: l.words[origins][origin], Since: l.clock.at(v),
		Until: l.clock.at(v[8:])}
	if k[2] == nameFamily {
		out.Entry.Name = string(entry[3 : len(entry)-1])
		return out, nil
	}
	a := netip.AddrFrom16([16]byte(k[3:19]))
	if k[2] == 4 {
		a = a.Unmap()
	}
	if out.Entry.Prefix = netip.PrefixFrom(a, int(k[19])); !out.Entry.Prefix.IsValid() {
		return out, fmt.Errorf("a lease is of no prefix (%x)", k)
	}
	return out, nil
}

// entryOf returns the part of a key that tells the entry, nil if it is no key.
func entryOf(k []byte) []byte {
	end := len(k) - originKey
	switch {
	case len(k) > maxKey || end < 5: // set, family and at least a name's end
		return nil
	case k[2] == nameFamily && bytes.IndexByte(k[3:end], 0) == end-4:
		return k[:end]
	case k[2] != nameFamily && end == prefixKey:
		return k[:end]
	}
	return nil
}

// number returns the number of a name, which is given one if it has none.
func (l *Ledger) number(tx *bbolt.Tx, kind int, name string) (uint16, error) {
	if n, ok := l.names[kind][name]; ok {
		return n, nil
	}
	n := len(l.words[kind])
	if n > math.MaxUint16 {
		return 0, fmt.Errorf("%w: too many names", ErrFull)
	}
	key := binary.BigEndian.AppendUint16(nil, uint16(n))
	if err := tx.Bucket(bucketNames[kind]).Put(key, []byte(name)); err != nil {
		return 0, err
	}
	l.names[kind][name] = uint16(n)
	l.words[kind] = append(l.words[kind], name)
	return uint16(n), nil
}

func entryKey(set uint16, e Entry) []byte {
	return appendKey(make([]byte, 0, prefixKey+len(e.Name)+originKey), set, e)
}

func appendKey(k []byte, set uint16, e Entry) []byte {
	k = binary.BigEndian.AppendUint16(k, set)
	if e.Name != "" {
		return append(append(append(k, nameFamily), e.Name...), 0)
	}
	p := e.Prefix
	family := byte(6)
	if p.Addr().Is4() {
		family = 4
	}
	a := p.Addr().As16()
	return append(append(append(k, family), a[:]...), byte(p.Bits()))
}

// Record adds leases, or renews them, and notes positions, all or nothing, on the disk when it
// returns. A renewal never ends sooner than what it renews.
//
// They are written in the order of their entries. Within a transaction a page grows without being
// split, and each key that comes before others moves these: many in any order take quadratic time.
func (l *Ledger) Record(leases []Lease, positions map[string][]byte) error {
	leases = slices.Clone(leases)
	slices.SortFunc(leases, func(a, b Lease) int {
		return cmp.Or(cmp.Compare(l.names[sets][a.Set], l.names[sets][b.Set]),
			strings.Compare(a.Set, b.Set), a.Entry.Compare(b.Entry))
	})
	return l.write(leases, positions, func(tx *bbolt.Tx) error {
		for i := range leases {
			if err := l.record(tx, &leases[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *Ledger) record(tx *bbolt.Tx, of *Lease) error {
	set, err := l.number(tx, sets, of.Set)
	if err != nil {
		return err
	}
	origin, err := l.number(tx, origins, of.Origin)
	if err != nil {
		return err
	}
	k := binary.BigEndian.AppendUint16(entryKey(set, of.Entry), origin)
	b := bucketsOf(tx).of(k)
	since, until := of.Since, of.Until
	if v := b.Get(k); v != nil {
		old, err := l.decode(k, v)
		if err != nil {
			return err
		}
		since = old.Since
		if !until.IsZero() && (old.Until.IsZero() || old.Until.After(until)) {
			until = old.Until
		}
	} else if l.leases >= MaxLeases {
		return ErrFull
	} else {
		l.leases++
	}
	return b.Put(k, l.value(k, since, until))
}

// Position returns what was noted last under a name, nil if nothing was.
func (l *Ledger) Position(name string) (out []byte) {
	_ = l.view(func(tx *bbolt.Tx) error {
		v, err := noted(tx, []byte(name))
		if v != nil {
			out = append([]byte{}, v...)
		}
		return err
	})
	return out
}

// Each visits all leases, those of one entry behind each other, until visit returns false. It
// changes nothing meanwhile.
func (l *Ledger) Each(visit func(Lease) bool) error {
	return l.view(func(tx *bbolt.Tx) error {
		c := &cursor{tx: tx}
		for k, v := c.seek(nil); k != nil; k, v = c.next() {
			lease, err := l.decode(k, v)
			if err != nil {
				return err
			}
			if !visit(lease) {
				return nil
			}
		}
		return nil
	})
}

// swept is the number of leases that one transaction removes.
const swept = 50_000

// Remove takes out the leases for which gone says so, and returns them.
func (l *Ledger) Remove(gone func(Lease) bool) (out []Lease, err error) {
	defer l.guard(&err)
	var keys [][]byte
	err = l.view(func(tx *bbolt.Tx) error {
		c := &cursor{tx: tx}
		for k, v := c.seek(nil); k != nil; k, v = c.next() {
			lease, err := l.decode(k, v)
			if err != nil {
				return err
			}
			if gone(lease) {
				keys = append(keys, append([]byte{}, k...))
				out = append(out, lease)
			}
		}
		return nil
	})
	for done := 0; err == nil && done < len(keys); done += swept {
		some := keys[done:min(len(keys), done+swept)]
		err = l.db.Update(func(tx *bbolt.Tx) error {
			b := bucketsOf(tx)
			for _, k := range some {
				if err := b.of(k).Delete(k); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			l.leases -= len(some)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("take leases out of the ledger: %w", err)
	}
	return out, nil
}

// Drop takes leases out, whatever their times are now, and says how many there were.
func (l *Ledger) Drop(leases []Lease) (n int, err error) {
	err = l.update(func(tx *bbolt.Tx) error {
		b := bucketsOf(tx)
		for i := range leases {
			of := &leases[i]
			set, known := l.names[sets][of.Set]
			origin, also := l.names[origins][of.Origin]
			if !known || !also {
				continue
			}
			k := binary.BigEndian.AppendUint16(entryKey(set, of.Entry), origin)
			if b.of(k).Get(k) == nil {
				continue
			}
			if err := b.of(k).Delete(k); err != nil {
				return err
			}
			l.leases--
			n++
		}
		return nil
	})
	if err != nil {
		n = 0
	}
	return n, err
}
