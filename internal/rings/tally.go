package rings

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"levee/ring"
)

// tally holds the counts of what a client has got: a file of its own in memory, of a fixed size.
// The map of the policy stays with the server, since whoever has the descriptor of a map may freeze
// it (BPF_MAP_FREEZE), and no reader could count there again.
type tally struct {
	file   *os.File
	memory []byte
	told   uint64
}

func newTally() (*tally, error) {
	fd, err := unix.MemfdCreate("levee-tally", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make the memory in which a reader counts: %w", err)
	}
	t := &tally{file: os.NewFile(uintptr(fd), "levee-tally")}
	if err = unix.Ftruncate(fd, int64(os.Getpagesize())); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
			unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		t.memory, err = unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the memory in which a reader counts: %w", err),
			t.file.Close())
	}
	return t, nil
}

// more returns what was counted since it was asked last. A count that goes back is none.
func (t *tally) more() uint64 {
	n := atomic.LoadUint64(&(*ring.Tally)(unsafe.Pointer(&t.memory[0])).Received)
	if n <= t.told {
		return 0
	}
	n, t.told = n-t.told, n
	return n
}

func (t *tally) close() error { return errors.Join(unix.Munmap(t.memory), t.file.Close()) }
