// Package ring reads packets that a policy of levee redirects to a ring: the frames that
// `redirect MATCH to ring "NAME"` names, as they arrived, by AF_XDP. In go the path of a socket of
// `levee ring serve`, or an interface; out come frames. It must never change a policy, nor keep a
// frame: what a reader is given is the kernel's again once its function returns.
//
// A reader without rights gets sockets that are ready from `levee ring serve`:
//
//	r, err := ring.Dial("/run/levee-ring/dns.sock")
//	...
//	defer r.Close()
//	for {
//		_, err := r.Read(time.Second, func(queue int, frame []byte) { ... })
//		...
//	}
//
// The kernel has one socket for each receive queue (Documentation/networking/af_xdp.rst). Queues
// share nothing, so that each may be read by a goroutine of its own.
package ring

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrEnded says that the server has taken the ring back, since its policy or the server itself has
// gone. Dial again.
var ErrEnded = errors.New("the ring has ended")

// TallyBytes is the size of a Tally.
const TallyBytes = 64

// Tally is the memory in which readers count what they have got. Processes may share it, so that
// `levee ring list` knows the counts of a reader that was killed.
type Tally struct {
	Received uint64 // packets that were read
	_        [TallyBytes - 8]byte
}

// Statistics holds the kernel's counts for the sockets of a reader (struct xdp_statistics of
// include/uapi/linux/if_xdp.h), in packets.
type Statistics struct {
	Received uint64 `json:"received"` // that were read
	Dropped  uint64 `json:"dropped"`  // without a free frame, or larger than one
	Full     uint64 `json:"full"`     // there was no place in the queue of the socket
	NoFrame  uint64 `json:"no_frame"` // how often there was no free frame
}

// Lost returns the packets that were handed to the reader's sockets and lost there. Packets that a
// zero-copy driver dropped for want of a frame are not among them.
func (s *Statistics) Lost() uint64 { return s.Dropped + s.Full }

// Reader reads the packets of a ring from some receive queues. Read is for one goroutine at a time.
type Reader struct {
	Dev string
	// L3 says that frames begin with an IP header, as of a tunnel; else with an Ethernet header.
	L3     bool
	queues []*Queue
	conn   *net.UnixConn // of who serves; nil: nobody does
	watch  []unix.PollFd
	ended  bool
}

// NewReader makes a reader of queues that are open.
func NewReader(dev string, queues []*Queue) *Reader {
	r := &Reader{Dev: dev, queues: queues}
	r.prepare()
	return r
}

func (r *Reader) prepare() {
	for _, q := range r.queues {
		r.watch = append(r.watch, unix.PollFd{Fd: int32(q.fd), Events: unix.POLLIN})
	}
}

// Queues returns the queues, each of which may be read by itself.
func (r *Reader) Queues() []*Queue { return r.queues }

// ZeroCopy says whether the driver writes packets into the memory of the reader. Else the kernel
// copies each once.
func (r *Reader) ZeroCopy() bool {
	for _, q := range r.queues {
		if !q.ZeroCopy {
			return false
		}
	}
	return len(r.queues) > 0
}

// Read gives each packet that has come to a function, which may keep none of its bytes. It waits
// for the first as long as it is told. It returns how many there were: 0 if the time is over. Of a
// ring that has ended it gives what is left, and then ErrEnded.
func (r *Reader) Read(wait time.Duration, each func(queue int, frame []byte)) (n int, err error) {
	over := false
	for {
		for _, q := range r.queues {
			n += q.Take(func(frame []byte) { each(q.Number, frame) })
		}
		if n > 0 {
			return n, nil
		}
		if over { // and nothing has come since
			r.ended = true
			return 0, ErrEnded
		}
		ready, err := unix.Poll(r.watch, int(wait.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			return 0, nil
		case err != nil:
			return 0, fmt.Errorf("wait for packets of a ring: %w", err)
		case ready == 0:
			return 0, nil
		}
		for i := range r.watch {
			at := r.watch[i].Revents
			over = over || at&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0 ||
				i == len(r.queues) && at != 0 // who serves says nothing but that it ends
		}
		wait = 0
	}
}

// Ended says whether Read has returned ErrEnded.
func (r *Reader) Ended() bool { return r.ended }

// Statistics adds those of all queues.
func (r *Reader) Statistics() (sum Statistics, err error) {
	for _, q := range r.queues {
		s, err := q.Statistics()
		if err != nil {
			return sum, err
		}
		sum.Received += s.Received
		sum.Dropped += s.Dropped
		sum.Full += s.Full
		sum.NoFrame += s.NoFrame
	}
	return sum, nil
}

// Close ends the reading. From then on the policy says what becomes of the packets.
func (r *Reader) Close() error {
	var errs []error
	for _, q := range r.queues {
		errs = append(errs, q.Close())
	}
	if r.conn != nil {
		errs = append(errs, r.conn.Close())
	}
	return errors.Join(errs...)
}

// Queue is the socket of one receive queue, with its memory.
type Queue struct {
	Number   int
	ZeroCopy bool

	fd, file  int // the socket, the file of its memory
	layout    layout
	memory    []byte
	rx, fill  shared
	next      uint32 // of rx, that is read next
	offered   uint32 // of fill, where the next free frame goes
	part      []byte // of a packet in several frames
	tally     *Tally
	tallied   []byte // what is mapped of it
	tallyFile int    // -1: whoever made it keeps it
	received  uint64
}

// layout places the memory and the rings of a queue.
type layout struct {
	Frames uint32 `json:"frames"`     // and entries of each ring; a power of two
	Size   uint32 `json:"frame_size"` // of a frame, in bytes; a power of two
}

// shared is a ring that the kernel shares with the reader.
type shared struct {
	memory                    []byte
	producer, consumer, flags *uint32
	entries                   unsafe.Pointer
	mask                      uint32
}

// FD returns the socket, for the map of a policy.
func (q *Queue) FD() int { return q.fd }

// Count has packets that are read be counted in t too, which others may write.
func (q *Queue) Count(t *Tally) { q.tally = t }

// mostPacket bounds a packet in several frames, in bytes. The kernel's have at most 17 pages behind
// the first (MAX_SKB_FRAGS of include/linux/skbuff.h); where somebody else serves the ring, the
// memory may say anything.
const mostPacket = 1 << 17

// Take gives the packets that are there to a function, at most as many as there are frames, and
// waits for none.
func (q *Queue) Take(each func(frame []byte)) (n int) {
	end := atomic.LoadUint32(q.rx.producer)
	if q.next == end {
		q.wake()
		return 0
	}
	offered := q.offered
	for ; q.next != end; q.next++ {
		d := (*unix.XDPDesc)(unsafe.Add(q.rx.entries,
			uintptr(q.next&q.rx.mask)*unsafe.Sizeof(unix.XDPDesc{})))
		// What the kernel writes is within a frame; the memory is checked all the same.
		if from, to := d.Addr, d.Addr+uint64(d.Len); to <= uint64(len(q.memory)) && from <= to {
			frame := q.memory[from:to:to]
			switch {
			case d.Options&unix.XDP_PKT_CONTD != 0 && len(q.part) < mostPacket:
				q.part = append(q.part, frame...)
			case len(q.part) > 0:
				q.part = append(q.part, frame...)
				each(q.part)
				q.part = q.part[:0]
				n++
			default:
				each(frame)
				n++
			}
		}
		// The frame is free again: no ring has fewer entries than there are frames.
		*(*uint64)(unsafe.Add(q.fill.entries, uintptr(offered&q.fill.mask)*8)) =
			d.Addr &^ uint64(q.layout.Size-1)
		offered++
	}
	q.offered = offered
	atomic.StoreUint32(q.fill.producer, offered)
	atomic.StoreUint32(q.rx.consumer, q.next)
	q.received += uint64(n)
	if q.tally != nil {
		atomic.AddUint64(&q.tally.Received, uint64(n))
	}
	q.wake()
	return n
}

// wake tells a driver that waits for it of free frames.
func (q *Queue) wake() {
	if atomic.LoadUint32(q.fill.flags)&unix.XDP_RING_NEED_WAKEUP != 0 {
		// What fails here fails again where somebody waits for packets, and is told there.
		_, _, _ = unix.Syscall6(unix.SYS_RECVFROM, uintptr(q.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	}
}

// Statistics returns the statistics of the socket.
func (q *Queue) Statistics() (Statistics, error) {
	var raw [6]uint64
	size := uint32(unsafe.Sizeof(raw))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(q.fd), unix.SOL_XDP,
		unix.XDP_STATISTICS, uintptr(unsafe.Pointer(&raw)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return Statistics{}, fmt.Errorf("ask an AF_XDP socket what it has lost: %w", errno)
	}
	return Statistics{Received: q.received, Dropped: raw[0], Full: raw[3], NoFrame: raw[4]}, nil
}

// Close closes the socket and gives its memory back.
func (q *Queue) Close() error {
	var errs []error
	for _, m := range [][]byte{q.rx.memory, q.fill.memory, q.memory, q.tallied} {
		if m != nil {
			errs = append(errs, unix.Munmap(m))
		}
	}
	for _, fd := range []int{q.fd, q.file, q.tallyFile} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	*q = Queue{fd: -1, file: -1, tallyFile: -1}
	return errors.Join(errs...)
}

// mapAll maps memory and rings of the socket. first says that no frame was offered yet.
func (q *Queue) mapAll(first bool) (err error) {
	n := int(q.layout.Frames)
	if q.memory, err = unix.Mmap(q.file, 0, n*int(q.layout.Size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return fmt.Errorf("map the memory of a ring: %w", err)
	}
	var off unix.XDPMmapOffsets
	size := uint32(unsafe.Sizeof(off))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(q.fd), unix.SOL_XDP,
		unix.XDP_MMAP_OFFSETS, uintptr(unsafe.Pointer(&off)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 || uintptr(size) != unsafe.Sizeof(off) {
		return fmt.Errorf("ask for the layout of AF_XDP rings (%d bytes; needs Linux 5.4): %w",
			size, errno)
	}
	for _, r := range []struct {
		to    *shared
		off   unix.XDPRingOffset
		entry uintptr
		page  int64
	}{
		{&q.rx, off.Rx, unsafe.Sizeof(unix.XDPDesc{}), unix.XDP_PGOFF_RX_RING},
		{&q.fill, off.Fr, 8, unix.XDP_UMEM_PGOFF_FILL_RING},
	} {
		m, err := unix.Mmap(q.fd, r.page, int(r.off.Desc)+n*int(r.entry),
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		if err != nil {
			return fmt.Errorf("map a ring of an AF_XDP socket: %w", err)
		}
		*r.to = shared{memory: m, producer: (*uint32)(unsafe.Pointer(&m[r.off.Producer])),
			consumer: (*uint32)(unsafe.Pointer(&m[r.off.Consumer])),
			flags:    (*uint32)(unsafe.Pointer(&m[r.off.Flags])),
			entries:  unsafe.Pointer(&m[r.off.Desc]), mask: q.layout.Frames - 1}
	}
	q.offered, q.next = atomic.LoadUint32(q.fill.producer), atomic.LoadUint32(q.rx.consumer)
	if first {
		for i := range q.layout.Frames {
			*(*uint64)(unsafe.Add(q.fill.entries, uintptr(i)*8)) = uint64(i * q.layout.Size)
		}
		q.offered += q.layout.Frames
		atomic.StoreUint32(q.fill.producer, q.offered)
	}
	return nil
}

// mapTally maps the file of a tally.
func (q *Queue) mapTally() (err error) {
	if q.tallied, err = unix.Mmap(q.tallyFile, 0, unix.Getpagesize(),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("map what readers of a ring count: %w", err)
	}
	q.tally = (*Tally)(unsafe.Pointer(&q.tallied[0]))
	return nil
}

var _ io.Closer = (*Reader)(nil)
