package ring

import (
	"errors"
	"fmt"
	"net"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Options say how a queue is opened.
type Options struct {
	// Frames limits the packets that wait for the reader, a power of two; 0 is 8192. More carry it
	// over a longer pause.
	Frames int
	// Copy has the kernel copy packets also where the driver could write them into the memory of
	// the reader.
	Copy bool
}

// MaxFrames limits the frames of a queue.
const MaxFrames = 1 << 20

// A frame of copied packets has 256 bytes in front (XDP_PACKET_HEADROOM of
// include/uapi/linux/bpf.h), and an Ethernet header with two tags.
const (
	headroom  = 256
	header    = 14 + 8
	smallSize = 2048
	largeSize = 4096
)

// busy is for how long a queue is asked for that another socket has: the kernel lets go of one that
// was closed some time later (net/xdp/xsk_buff_pool.c, xp_put_pool).
const busy = 2 * time.Second

// Open opens a receive queue of an interface of this network namespace, by its number from 0 on. It
// needs CAP_NET_RAW and, for the memory, CAP_IPC_LOCK or the limit for it. It receives nothing
// before its socket is in the map of a ring.
func Open(dev *net.Interface, queue int, o Options) (*Queue, error) {
	if o.Frames == 0 {
		o.Frames = 8192
	}
	if o.Frames < 64 || o.Frames > MaxFrames || o.Frames&(o.Frames-1) != 0 {
		return nil, fmt.Errorf("%d frames: a queue has a power of two of them, 64 to %d", o.Frames,
			MaxFrames)
	}
	size := smallSize
	if dev.MTU+header+headroom > size {
		size = largeSize
	}
	ways := []uint16{unix.XDP_COPY | unix.XDP_USE_NEED_WAKEUP | unix.XDP_USE_SG,
		unix.XDP_COPY | unix.XDP_USE_NEED_WAKEUP} // before Linux 6.6
	if !o.Copy && dev.MTU+header+headroom <= size {
		ways = append([]uint16{unix.XDP_ZEROCOPY | unix.XDP_USE_NEED_WAKEUP}, ways...)
	}
	var err error
	for _, flags := range ways {
		var q *Queue
		l := layout{uint32(o.Frames), uint32(size)}
		if q, err = open(dev, queue, l, flags); err == nil {
			return q, nil
		}
		if errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("read queue %d of %s: another AF_XDP socket reads it, and the "+
				"kernel has one for each queue: %w", queue, dev.Name, err)
		}
	}
	return nil, fmt.Errorf("read queue %d of %s: %w", queue, dev.Name, err)
}

// open opens a queue in one way.
func open(dev *net.Interface, queue int, l layout, flags uint16) (*Queue, error) {
	q := &Queue{Number: queue, fd: -1, file: -1, tallyFile: -1, layout: l}
	err := q.prepare()
	if err == nil {
		err = q.bind(dev, flags)
	}
	if err != nil {
		return nil, errors.Join(err, q.Close())
	}
	options, err := unix.GetsockoptInt(q.fd, unix.SOL_XDP, unix.XDP_OPTIONS)
	q.ZeroCopy = err == nil && options&unix.XDP_OPTIONS_ZEROCOPY != 0
	return q, nil
}

// prepare makes a socket, its memory and its rings, with all frames free.
func (q *Queue) prepare() (err error) {
	if q.fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		q.fd = -1
		return fmt.Errorf("open an AF_XDP socket (needs Linux 4.18 with CONFIG_XDP_SOCKETS): %w",
			err)
	}
	q.file, err = unix.MemfdCreate("levee-ring", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		q.file = -1
		return fmt.Errorf("make the memory of a ring: %w", err)
	}
	bytes := int64(q.layout.Frames) * int64(q.layout.Size)
	if err := unix.Ftruncate(q.file, bytes); err != nil {
		return fmt.Errorf("make the memory of a ring: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(q.file), unix.F_ADD_SEALS,
		unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return fmt.Errorf("make the memory of a ring: %w", err)
	}
	memory, err := unix.Mmap(q.file, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("map the memory of a ring: %w", err)
	}
	q.memory = memory
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&memory[0]))), Len: uint64(bytes),
		Size: q.layout.Size}
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(q.fd), unix.SOL_XDP,
		unix.XDP_UMEM_REG, uintptr(unsafe.Pointer(&reg)), unsafe.Sizeof(reg), 0)
	if errno != 0 {
		return fmt.Errorf("register %d MiB of memory for a ring (the kernel locks it): %w",
			bytes>>20, errno)
	}
	for _, r := range []struct{ option, entries int }{
		{unix.XDP_UMEM_FILL_RING, int(q.layout.Frames)}, {unix.XDP_RX_RING, int(q.layout.Frames)},
		{unix.XDP_UMEM_COMPLETION_RING, 64}, // which a socket has to have
	} {
		if err := unix.SetsockoptInt(q.fd, unix.SOL_XDP, r.option, r.entries); err != nil {
			return fmt.Errorf("make the rings of an AF_XDP socket: %w", err)
		}
	}
	if err := unix.Munmap(memory); err != nil {
		return fmt.Errorf("map the memory of a ring: %w", err)
	}
	q.memory = nil
	return q.mapAll(true)
}

// bind takes a queue, and waits for another socket that has just been closed.
func (q *Queue) bind(dev *net.Interface, flags uint16) error {
	at := &unix.SockaddrXDP{Flags: flags, Ifindex: uint32(dev.Index), QueueID: uint32(q.Number)}
	for end := time.Now().Add(busy); ; time.Sleep(time.Millisecond) {
		err := unix.Bind(q.fd, at)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return err
		}
	}
}
