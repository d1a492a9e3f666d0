package sets

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/host/atomicfile"
	"levee/internal/kernel"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/policy"
)

// Entries of a set that says keep outlive a reboot in a file, by the name of the interface and that
// of the set. The file is made beside the last one, written through to the disk, and renamed, so
// that a power cut leaves the one or the other. Its sum tells a file that the disk has spoilt. See
// docs/explanation/decisions/0044-boot.md.
//
//	"levee set 1\n"                       12 bytes
//	type, 3 zero bytes                     4
//	time, in ms since 1970                 8
//	number of entries                      8
//	entries                               32 each: address 16, bits 1, family 1 (4, 6, 0: none),
//	                                      protocol 1, 0, first and last port 2 each, end 8; of
//	                                      names each: below 1, length 1, name, end 8
//	SHA-256 of all that                   32
//
// The end of a lease is in ms since 1970, 0 for never. All numbers are big-endian.

// LibEnv names the environment variable that moves the directory of kept entries, for tests.
const LibEnv = "LEVEE_LIB"

const (
	LibDir     = "/var/lib/levee"
	keptMagic  = "levee set 1\n"
	keptHead   = len(keptMagic) + 20
	keptEntry  = 32
	keptSuffix = ".set"
)

// KeptFile returns where the entries of a set lie.
func KeptFile(dev, set string) (string, error) {
	dir, err := Library()
	return filepath.Join(dir, dev, set+keptSuffix), err
}

// Library returns the directory of what outlives a reboot: LibDir, or what LibEnv says.
func Library() (string, error) {
	if os.Getenv(LibEnv) == "" {
		return LibDir, nil
	}
	dir, err := filepath.Abs(os.Getenv(LibEnv))
	if err != nil {
		return "", fmt.Errorf("%s: %w", LibEnv, err)
	}
	return dir, nil
}

// Save writes the entries of sets that say keep to their files: of the set of that name, or of
// all if it is "", on dev, or everywhere in this network namespace. saved says what was written.
func Save(ctx context.Context, dev, name string) (saved []Saved, err error) {
	err = store.Transact(ctx, func(s *store.Store) error {
		visit := func(a *attach.Attachment) error {
			l, err := a.Here()
			if l == nil || err != nil {
				return err
			}
			some, err := SaveAttached(s, a, l.Attrs().Name, name)
			saved = append(saved, some...)
			return err
		}
		if dev == "" {
			return generation.Sweep(s, "", visit)
		}
		a, err := generation.Find(s, dev)
		if err != nil {
			return err
		}
		defer a.Close()
		return visit(a)
	})
	if err == nil && len(saved) == 0 && name != "" {
		err = fmt.Errorf("%w: no policy in force here has a dynamic set %q that says keep",
			ErrNoSet, name)
	}
	return saved, err
}

// Saved is a set whose entries were written.
type Saved struct {
	Dev, Name, File string
	Entries         int
}

// SaveAttached writes the kept sets of an attachment.
func SaveAttached(s *store.Store, a *attach.Attachment, dev, name string) (saved []Saved,
	err error) {
	for _, info := range a.Current().Sets {
		if !info.Keep || name != "" && info.Name != name {
			continue
		}
		set, err := OpenSetOf(s, a, info.Name)
		if err != nil {
			return saved, err
		}
		entries, err := set.snapshot(s.Ctx)
		if err = errors.Join(err, set.Close()); err != nil {
			return saved, err
		}
		path, err := KeptFile(dev, info.Name)
		if err != nil {
			return saved, err
		}
		if err := atomicfile.Replace(path, EncodeKept(info.EntryType(), time.Now(), entries),
			func(name string) error { return s.Step("keep: " + name) }); err != nil {
			return saved, kernel.Refuse(err, "save the entries of dynamic set %q", info.Name)
		}
		saved = append(saved, Saved{dev, info.Name, path, len(entries)})
	}
	return saved, nil
}

// snapshot lists the entries; writers wait for no longer than copying the memory takes.
func (s *Set) snapshot(ctx context.Context) ([]Entry, error) {
	if err := s.Writers.Lock(ctx); err != nil {
		return nil, err
	}
	m := s.Maps[0]
	c := &Memory{Name: s.Name, Typ: s.typ, Clock: m.Clock, Mem: slices.Clone(m.Mem)}
	s.Writers.Unlock()
	if err := c.OpenTable(); err != nil {
		return nil, err
	}
	return c.entries(), nil
}

func EncodeKept(t policy.SetType, now time.Time, entries []Entry) []byte {
	be := binary.BigEndian
	b := make([]byte, 0, keptHead+len(entries)*keptEntry+sha256.Size)
	b = append(b, keptMagic...)
	b = append(b, byte(t), 0, 0, 0)
	b = be.AppendUint64(b, uint64(now.UnixMilli()))
	b = be.AppendUint64(b, uint64(len(entries)))
	for _, e := range entries {
		if t == policy.Names {
			p := patternOf(e.Element())
			below := byte(0)
			if p.Below {
				below = 1
			}
			b = append(b, below, byte(len(p.Name)))
			b = append(b, p.Name...)
			b = be.AppendUint64(b, endOf(e, now))
			continue
		}
		var addr [16]byte
		var bits, family byte
		if e.Prefix.IsValid() {
			family, bits = 6, byte(e.Prefix.Bits())
			if e.Prefix.Addr().Is4() {
				family = 4
			}
			copy(addr[:], e.Prefix.Addr().AsSlice())
		}
		b = append(b, addr[:]...)
		b = append(b, bits, family, e.Service.Proto, 0)
		b = be.AppendUint16(b, e.Service.Lo)
		b = be.AppendUint16(b, e.Service.Hi)
		b = be.AppendUint64(b, endOf(e, now))
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// endOf returns the end of a lease as a file has it.
func endOf(e Entry, now time.Time) uint64 {
	if e.Lease == Forever {
		return 0
	}
	return uint64(now.Add(e.Lease).UnixMilli())
}

// ErrSpoilt is wrapped by what DecodeKept says about a file that is not as it was written.
var ErrSpoilt = errors.New("the file is spoilt")

// DecodeKept reads what EncodeKept has made, without the entries whose lease has ended. A clock
// that was set back, as on a machine without one of its own, makes no lease longer than it was.
func DecodeKept(b []byte, t policy.SetType, max int, now time.Time) ([]Entry, error) {
	be := binary.BigEndian
	if len(b) < keptHead+sha256.Size || string(b[:len(keptMagic)]) != keptMagic {
		return nil, fmt.Errorf("%w: it is no file of kept entries", ErrSpoilt)
	}
	body := b[:len(b)-sha256.Size]
	if sha256.Sum256(body) != [sha256.Size]byte(b[len(body):]) {
		return nil, fmt.Errorf("%w: its sum is wrong", ErrSpoilt)
	}
	head := body[len(keptMagic):keptHead]
	if policy.SetType(head[0]) != t {
		return nil, nil // of a set of another type
	}
	saved, n := time.UnixMilli(int64(be.Uint64(head[4:]))), be.Uint64(head[12:])
	rest := body[keptHead:]
	if now.Before(saved) {
		now = saved
	}
	if t == policy.Names {
		return decodeNames(rest, n, max, now)
	}
	if n != uint64(len(rest)/keptEntry) || len(rest)%keptEntry != 0 {
		return nil, errLength
	}
	out := make([]Entry, 0, min(n, uint64(max)))
	for ; len(rest) > 0; rest = rest[keptEntry:] {
		e := Entry{
			Service: policy.Service{Proto: rest[18], Lo: be.Uint16(rest[20:]),
				Hi: be.Uint16(rest[22:])},
		}
		switch rest[17] {
		case 4:
			e.Prefix = netip.PrefixFrom(netip.AddrFrom4([4]byte(rest[:4])), int(rest[16]))
		case 6:
			e.Prefix = netip.PrefixFrom(netip.AddrFrom16([16]byte(rest[:16])), int(rest[16]))
		}
		if e.Lease = leaseUntil(be.Uint64(rest[24:]), now); e.Lease != 0 {
			out = append(out, e)
		}
	}
	return out, nil
}

var errLength = fmt.Errorf("%w: it has not the length that it says", ErrSpoilt)

// leaseUntil returns what is left of a lease that ends then, 0 if it has ended.
func leaseUntil(end uint64, now time.Time) time.Duration {
	if end == 0 {
		return Forever
	}
	return max(0, time.UnixMilli(int64(end)).Sub(now))
}

// decodeNames reads n names.
func decodeNames(b []byte, n uint64, most int, now time.Time) ([]Entry, error) {
	be := binary.BigEndian
	out := make([]Entry, 0, min(n, uint64(most), uint64(len(b)/10)))
	for ; n > 0; n-- {
		if len(b) < 2 || len(b) < 2+int(b[1])+8 {
			return nil, errLength
		}
		end := 2 + int(b[1])
		name, ok := dnsname.Stored(b[2:end])
		if !ok {
			return nil, fmt.Errorf("%w: %q is no name", ErrSpoilt, b[2:end])
		}
		p := dnsname.Pattern{Name: name, Below: b[0] != 0}
		if lease := leaseUntil(be.Uint64(b[end:]), now); lease != 0 {
			out = append(out, Entry{Name: p.String(), Lease: lease})
		}
		b = b[end+8:]
	}
	if len(b) > 0 {
		return nil, errLength
	}
	return out, nil
}

// PutAside gives a file that cannot be read another name, since the next save would replace it, and
// says so. What it holds may be of use to somebody.
func PutAside(path string) string {
	aside := fmt.Sprintf("%s.damaged-%s", path, time.Now().UTC().Format("20060102T150405.000"))
	if err := os.Rename(path, aside); err != nil {
		return fmt.Sprintf("the next save replaces it, as it cannot be put aside: %v", err)
	}
	return "the file lies in " + aside + " now"
}

// ReadKept reads a file, of no more bytes than the largest set has.
func ReadKept(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	// A set may have had a larger max; the largest has 16 M entries.
	bound := int64(keptHead + sha256.Size + keptEntry<<24)
	if !info.Mode().IsRegular() || info.Size() > bound {
		return nil, fmt.Errorf("%w: %d bytes are more than a set has", ErrSpoilt, info.Size())
	}
	return os.ReadFile(path)
}
