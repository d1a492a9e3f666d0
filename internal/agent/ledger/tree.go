package ledger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The file as bbolt lays it out (its package common): pages with a head of 16 bytes, whose
// elements have 16 bytes too. Numbers are in the order of the machine.
const (
	headBytes    = 16
	elementBytes = 16
	metaBytes    = 64
	bucketBytes  = 16 // in front of a bucket whose page is in its parent's

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketValue  = 0x01
	noFreelist   = math.MaxUint64

	metaMagic     = 0xED0CDAED
	layoutVersion = 2
	mostDepth     = 64
)

// tree checks the pages of a file before bbolt follows them: it ends the process, or never ends, at
// pages that point to each other.
type tree struct {
	file  []byte
	size  uint64 // of a page
	pages uint64 // that are in use or free
	used  []bool
}

// checkPages returns an error unless each page of the file at path is what another says that it is.
// It waits at most wait for a process that has the file open.
func checkPages(path string, wait time.Duration) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for end := time.Now().Add(wait); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			return fmt.Errorf("%w: %s", ErrBusy, path)
		}
	}
	info, err := f.Stat()
	if err != nil || info.Size() == 0 { // bbolt makes it
		return err
	}
	file, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(file) }()
	return (&tree{file: file}).check()
}

func (t *tree) number(at uint64) uint64 { return binary.NativeEndian.Uint64(t.file[at:]) }
func (t *tree) short(at uint64) uint64 {
	return uint64(binary.NativeEndian.Uint32(t.file[at:]))
}

// meta returns the newest head of the file that is whole, as bbolt chooses it.
func (t *tree) meta() (root, free uint64, err error) {
	found, newest := false, uint64(0)
	look := func(at, size uint64) bool {
		if at+headBytes+metaBytes > uint64(len(t.file)) {
			return false
		}
		m := at + headBytes
		sum := fnv.New64a()
		sum.Write(t.file[m : m+metaBytes-8])
		if t.short(m) != metaMagic || t.short(m+4) != layoutVersion || t.short(m+8) < 512 ||
			size != 0 && t.short(m+8) != size || sum.Sum64() != t.number(m+metaBytes-8) {
			return false
		}
		if txn := t.number(m + 48); !found || txn > newest {
			found, newest, t.size = true, txn, t.short(m+8)
			root, free, t.pages = t.number(m+16), t.number(m+32), t.number(m+40)
		}
		return true
	}
	if look(0, 0) {
		look(t.size, t.size)
	} else {
		for size := uint64(1024); size <= 1<<24 && !look(size, size); size *= 2 {
		}
	}
	if !found {
		return 0, 0, errors.New("it has no head")
	}
	if t.pages > uint64(len(t.file))/t.size {
		return 0, 0, errors.New("it is cut off")
	}
	return root, free, nil
}

func (t *tree) check() error {
	root, free, err := t.meta()
	if err != nil {
		return err
	}
	t.used = make([]bool, t.pages)
	if err := t.page(root, nil, nil, 0); err != nil {
		return err
	}
	if free == noFreelist {
		return nil
	}
	page, err := t.take(free, freelistPage)
	if err != nil {
		return err
	}
	count, ids := uint64(binary.NativeEndian.Uint16(page[10:])), page[headBytes:]
	if count == math.MaxUint16 {
		count, ids = binary.NativeEndian.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids))/8 {
		return errors.New("the list of free pages is too long")
	}
	for i := range count {
		if err := t.use(binary.NativeEndian.Uint64(ids[8*i:]), 1); err != nil {
			return err
		}
	}
	return nil
}

// use notes that pages are taken, each once.
func (t *tree) use(id, n uint64) error {
	if id < 2 || id >= t.pages || n > t.pages-id {
		return fmt.Errorf("page %d is outside of the file", id)
	}
	for ; n > 0; n-- {
		if t.used[id] {
			return fmt.Errorf("page %d stands in two places", id)
		}
		t.used[id] = true
		id++
	}
	return nil
}

// take returns a page of one of the types, with its overflow pages.
func (t *tree) take(id uint64, types uint16) ([]byte, error) {
	if id >= t.pages {
		return nil, fmt.Errorf("page %d is outside of the file", id)
	}
	at := id * t.size
	more := t.short(at + 12)
	if err := t.use(id, 1+more); err != nil {
		return nil, err
	}
	page := t.file[at : at+(1+more)*t.size]
	flags := binary.NativeEndian.Uint16(page[8:])
	if t.number(at) != id || flags&types == 0 || flags&(flags-1) != 0 {
		return nil, fmt.Errorf("page %d is another", id)
	}
	return page, nil
}

// page checks a page of a tree and those below: its keys rise from least on, and stay below most.
func (t *tree) page(id uint64, least, most []byte, depth int) error {
	page, err := t.take(id, branchPage|leafPage)
	if err == nil && depth > mostDepth {
		err = errors.New("its pages stand in each other")
	}
	if err != nil {
		return err
	}
	return t.elements(page, least, most, depth)
}

func (t *tree) elements(page, least, most []byte, depth int) error {
	flags := binary.NativeEndian.Uint16(page[8:])
	count := uint64(binary.NativeEndian.Uint16(page[10:]))
	if headBytes+count*elementBytes > uint64(len(page)) || flags == branchPage && count == 0 {
		return errors.New("a page has more than fits in it, or nothing")
	}
	keys := make([][]byte, 0, count+1)
	for i := range count {
		e := page[headBytes+i*elementBytes:]
		pos, keyLen := uint64(binary.NativeEndian.Uint32(e)), binary.NativeEndian.Uint32(e[4:])
		length := uint64(keyLen)
		if flags == leafPage {
			pos, keyLen = uint64(keyLen), binary.NativeEndian.Uint32(e[8:])
			length = uint64(keyLen) + uint64(binary.NativeEndian.Uint32(e[12:]))
		}
		if pos > uint64(len(e)) || length > uint64(len(e))-pos || keyLen == 0 {
			return errors.New("a key lies outside of its page")
		}
		key := e[pos : pos+uint64(keyLen)]
		if bytes.Compare(key, least) < 0 || most != nil && bytes.Compare(key, most) >= 0 ||
			i > 0 && bytes.Equal(key, least) {
			return errors.New("a key stands in the wrong place")
		}
		least = key
		keys = append(keys, key)
		if flags == leafPage && binary.NativeEndian.Uint32(e)&bucketValue != 0 {
			if err := t.bucket(e[pos+uint64(keyLen):pos+length], depth); err != nil {
				return err
			}
		}
	}
	if flags == leafPage {
		return nil
	}
	keys = append(keys, most)
	for i := range count {
		child := binary.NativeEndian.Uint64(page[headBytes+i*elementBytes+8:])
		if err := t.page(child, keys[i], keys[i+1], depth+1); err != nil {
			return err
		}
	}
	return nil
}

// bucket checks the tree of a bucket, which a page of its own or its value holds.
func (t *tree) bucket(value []byte, depth int) error {
	if len(value) < bucketBytes {
		return errors.New("a bucket is cut off")
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return t.page(root, nil, nil, depth+1)
	}
	inline := value[bucketBytes:]
	if len(inline) < headBytes || binary.NativeEndian.Uint16(inline[8:]) != leafPage {
		return errors.New("a bucket has no page")
	}
	return t.elements(inline, nil, nil, depth+1)
}
