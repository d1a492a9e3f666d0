package gen

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	xskRing   = 2048 // entries of each ring
	xskChunks = 4096 // of memory, which frames lie in until the device has sent them
	xskBatch  = 64   // frames of a system call
	// xskStall is the longest time that the device may take nothing before the run ends with an
	// error.
	xskStall = time.Second
	// xskFreed is the longest time that the kernel may keep the queue of a socket that was closed:
	// a worker gives it back, which waits for its core where the machine is busy.
	xskFreed = 10 * time.Second
)

// xskDesc is struct xdp_desc of include/uapi/linux/if_xdp.h.
type xskDesc struct {
	addr    uint64
	len     uint32
	options uint32
}

// ring is one ring of an AF_XDP socket, shared with the kernel.
type ring struct {
	memory             []byte
	producer, consumer *uint32
	entries            unsafe.Pointer
}

// afxdp sends by an AF_XDP socket that has no receiving side, so that no XDP program is needed
// (Documentation/networking/af_xdp.rst). Where the driver has no zero copy, or for veth, the kernel
// copies each frame into an skb and hands it to the driver past the qdisc.
//
// In that mode the kernel takes frames from the ring in order and returns EBUSY for each that the
// driver dropped, at once (xsk_generic_xmit of net/xdp/xsk.c), which makes the counts exact.
type afxdp struct {
	fd       int
	memory   []byte
	tx, comp ring
	size     uint64 // of a chunk
	free     []uint64
	next     uint32        // of tx, where the next frame goes
	queued   [xskBatch]int // lengths of the frames of the batch
	n        int           // of them
	zeroCopy bool
}

func newAFXDP(ctx context.Context, dev device, longest int) (*afxdp, error) {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening an AF_XDP socket (needs Linux 4.18 with "+
			"CONFIG_XDP_SOCKETS): %w", err)
	}
	x := &afxdp{fd: fd, size: 2048}
	if longest > 2048 {
		x.size = 4096
	}
	if longest > 4096 {
		x.close()
		return nil, fmt.Errorf("a frame of %d bytes: AF_XDP takes 4096", longest)
	}
	if err := x.prepare(ctx, dev); err != nil {
		x.close()
		return nil, err
	}
	return x, nil
}

// prepare registers the memory, makes the rings and binds the socket to the device's first queue.
func (x *afxdp) prepare(ctx context.Context, dev device) (err error) {
	if x.memory, err = unix.Mmap(-1, 0, xskChunks*int(x.size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE); err != nil {
		return fmt.Errorf("allocating the memory of an AF_XDP socket: %w", err)
	}
	for i := range uint64(xskChunks) {
		x.free = append(x.free, i*x.size)
	}
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&x.memory[0]))),
		Len: uint64(len(x.memory)), Size: uint32(x.size)}
	if err := x.option(unix.XDP_UMEM_REG, unsafe.Pointer(&reg), unsafe.Sizeof(reg)); err != nil {
		return fmt.Errorf("registering the memory of an AF_XDP socket: %w", err)
	}
	for _, r := range []struct {
		option int
		what   string
	}{{unix.XDP_UMEM_FILL_RING, "fill"}, {unix.XDP_UMEM_COMPLETION_RING, "completion"},
		{unix.XDP_TX_RING, "transmit"}} {
		if err := unix.SetsockoptInt(x.fd, unix.SOL_XDP, r.option, xskRing); err != nil {
			return fmt.Errorf("making the %s ring of an AF_XDP socket: %w", r.what, err)
		}
	}
	if err := x.mapRings(); err != nil {
		return err
	}
	// Copies wait in skbs until the receiver has taken them; the default holds some hundred.
	if err := unix.SetsockoptInt(x.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 16<<20); err != nil {
		return fmt.Errorf("enlarging the send buffer of an AF_XDP socket: %w", err)
	}
	if err := x.bind(ctx, dev); err != nil {
		return fmt.Errorf("binding an AF_XDP socket: %w", err)
	}
	flags, err := unix.GetsockoptInt(x.fd, unix.SOL_XDP, unix.XDP_OPTIONS)
	x.zeroCopy = err == nil && flags&unix.XDP_OPTIONS_ZEROCOPY != 0
	return nil
}

// bind takes the device's first queue, with zero copy where the driver has it. The kernel lets go
// of a socket that was closed some time later (xp_put_pool), so it is worth waiting.
func (x *afxdp) bind(ctx context.Context, dev device) error {
	for end := monotonic() + uint64(xskFreed); ; time.Sleep(time.Millisecond) {
		err := unix.Bind(x.fd, &unix.SockaddrXDP{Ifindex: uint32(dev.index)})
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		if monotonic() > end || ctx.Err() != nil {
			return fmt.Errorf("%w: another AF_XDP socket has its first queue", err)
		}
	}
}

func (x *afxdp) option(name int, value unsafe.Pointer, size uintptr) error {
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(x.fd), unix.SOL_XDP, uintptr(name),
		uintptr(value), size, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (x *afxdp) mapRings() error {
	var off unix.XDPMmapOffsets
	size := uint32(unsafe.Sizeof(off))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(x.fd), unix.SOL_XDP,
		unix.XDP_MMAP_OFFSETS,
		uintptr(unsafe.Pointer(&off)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 || uintptr(size) != unsafe.Sizeof(off) {
		return fmt.Errorf("asking for the layout of AF_XDP rings (%d bytes; needs Linux 5.4): %w",
			size, errno)
	}
	for _, r := range []struct {
		to    *ring
		off   unix.XDPRingOffset
		entry uintptr
		page  int64
	}{
		{&x.tx, off.Tx, unsafe.Sizeof(xskDesc{}), unix.XDP_PGOFF_TX_RING},
		{&x.comp, off.Cr, 8, unix.XDP_UMEM_PGOFF_COMPLETION_RING},
	} {
		m, err := unix.Mmap(x.fd, r.page, int(r.off.Desc)+xskRing*int(r.entry),
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		if err != nil {
			return fmt.Errorf("mapping a ring of an AF_XDP socket: %w", err)
		}
		*r.to = ring{
			memory: m, producer: (*uint32)(unsafe.Pointer(&m[r.off.Producer])),
			consumer: (*uint32)(unsafe.Pointer(&m[r.off.Consumer])),
			entries:  unsafe.Pointer(&m[r.off.Desc]),
		}
	}
	return nil
}

func (x *afxdp) batch() int { return xskBatch }

// reap takes back the chunks of frames that were sent.
func (x *afxdp) reap() {
	end := atomic.LoadUint32(x.comp.producer)
	at := *x.comp.consumer
	for ; at != end; at++ {
		addr := *(*uint64)(unsafe.Add(x.comp.entries, uintptr(at%xskRing)*8))
		x.free = append(x.free, addr&^(x.size-1))
	}
	atomic.StoreUint32(x.comp.consumer, at)
}

// buffer returns a free chunk. Chunks come back when the receiver has freed the packet, so that it
// may take a while.
func (x *afxdp) buffer() ([]byte, error) {
	for began := uint64(0); len(x.free) == 0; {
		x.reap()
		if len(x.free) > 0 {
			break
		}
		now := monotonic()
		if began == 0 {
			began = now
		}
		if now-began > uint64(xskStall) {
			return nil, fmt.Errorf("the device has not sent %d frames of the AF_XDP socket for %s",
				xskChunks, xskStall)
		}
		time.Sleep(roomPoll)
	}
	at := x.free[len(x.free)-1]
	return x.memory[at : at+x.size : at+x.size], nil
}

func (x *afxdp) push(n int) {
	last := len(x.free) - 1
	*(*xskDesc)(unsafe.Add(x.tx.entries,
		uintptr(x.next%xskRing)*unsafe.Sizeof(xskDesc{}))) = xskDesc{addr: x.free[last],
		len: uint32(n)}
	x.free = x.free[:last]
	x.next++
	x.queued[x.n] = n
	x.n++
}

// flush hands all pushed frames to the kernel.
func (x *afxdp) flush(r *Report) error {
	atomic.StoreUint32(x.tx.producer, x.next)
	taken := x.next - uint32(x.n)
	next := x.queued[:x.n]
	x.n = 0
	for began := uint64(0); ; {
		_, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(x.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
		now := atomic.LoadUint32(x.tx.consumer)
		if errno == unix.EBUSY && !x.zeroCopy {
			r.Refused++
		}
		progress := now != taken
		for ; taken != now; taken++ {
			r.Sent++
			r.Bytes += uint64(next[0])
			next = next[1:]
		}
		x.reap()
		switch {
		case errno != 0 && errno != unix.EBUSY && errno != unix.EAGAIN && errno != unix.ENOBUFS &&
			errno != unix.EINTR:
			return fmt.Errorf("sending by an AF_XDP socket: %w", gone(errno))
		case taken == x.next:
			return nil
		case progress:
			began = 0
			continue
		}
		t := monotonic()
		if began == 0 {
			began = t
		}
		if t-began > uint64(xskStall) {
			return fmt.Errorf("the device has taken nothing from the AF_XDP socket for %s: %w",
				xskStall, errno)
		}
		time.Sleep(roomPoll)
	}
}

// gone says what is meant by the errors of a socket whose device has left.
func gone(errno unix.Errno) error {
	if errno == unix.ENXIO || errno == unix.ENETDOWN || errno == unix.ENODEV {
		return fmt.Errorf("the device is down or gone: %w", errno)
	}
	return errno
}

// finish waits for a driver that sends from the memory itself.
func (x *afxdp) finish(*Report) error {
	if !x.zeroCopy {
		return nil
	}
	for end := monotonic() + uint64(xskStall); len(x.free) < xskChunks &&
		monotonic() < end; time.Sleep(roomPoll) {
		x.reap()
	}
	if n := xskChunks - len(x.free); n > 0 {
		return fmt.Errorf("the driver has not sent %d frames of the AF_XDP socket", n)
	}
	return nil
}

func (x *afxdp) what() string {
	if x.zeroCopy {
		return "AF_XDP socket, zero copy"
	}
	return "AF_XDP socket, copy mode: this driver has no zero copy"
}

func (x *afxdp) close() {
	for _, m := range [][]byte{x.tx.memory, x.comp.memory} {
		if m != nil {
			_ = unix.Munmap(m)
		}
	}
	unix.Close(x.fd)
	if x.memory != nil {
		_ = unix.Munmap(x.memory)
	}
}
