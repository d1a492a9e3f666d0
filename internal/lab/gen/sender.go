package gen

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is struct mmsghdr of include/linux/socket.h.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   [4]byte
}

// sendBatch is the most frames of one system call.
const sendBatch = 64

// messages is a batch of messages for sendmmsg(2) on one socket.
type messages struct {
	fd    int
	n     int // messages added
	flags int
	// patient waits for room in the receiver's ring instead of counting a refusal.
	patient bool
	iov     [sendBatch]unix.Iovec
	msgs    [sendBatch]mmsghdr
}

// add puts a message into the batch, which must not be full. Its memory must stay until the batch
// has been sent.
func (m *messages) add(b []byte) *mmsghdr {
	m.iov[m.n] = unix.Iovec{}
	if len(b) > 0 {
		m.iov[m.n].Base = &b[0]
	}
	m.iov[m.n].SetLen(len(b))
	h := &m.msgs[m.n]
	h.hdr.Iov = &m.iov[m.n]
	h.hdr.SetIovlen(1)
	m.n++
	return h
}

// maxAnswers is the number of errors in a row that are taken for answers of the network to earlier
// messages.
const maxAnswers = 16

// send sends the batch and adds what became of it to the report; extra is what the kernel puts in
// front of each message. A message that is refused in the middle of a call is tried again in the
// next, because sendmmsg(2) does not tell why it stopped: one that counts as refused was so at the
// start of a call.
func (m *messages) send(r *Report, extra int) error {
	end, i := m.n, 0
	m.n = 0
	waiting := uint64(0) // since when there is no room
	answers := 0         // errors of ICMP in a row
	for i < end {
		sent, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(m.fd),
			uintptr(unsafe.Pointer(&m.msgs[i])), uintptr(end-i), uintptr(m.flags), 0, 0)
		runtime.KeepAlive(m)
		if errno == 0 {
			for k := range int(sent) {
				r.Sent++
				r.Bytes += uint64(m.iov[i+k].Len) + uint64(extra)
			}
			i += int(sent)
			waiting, answers = 0, 0
			continue
		}
		switch {
		case errno == unix.EINTR || errno == unix.EAGAIN:
		case (errno == unix.ECONNREFUSED || errno == unix.EHOSTUNREACH ||
			errno == unix.ENETUNREACH) && answers < maxAnswers:
			answers++ // to an earlier message; this one has not been sent
		case errno == unix.ENOBUFS:
			if m.patient {
				now := monotonic()
				if waiting == 0 {
					waiting = now
				}
				if now-waiting < uint64(roomWait) {
					time.Sleep(roomPoll) // the receiver may share the core
					continue
				}
			}
			r.Sent++
			r.Refused++
			r.Bytes += uint64(m.iov[i].Len) + uint64(extra)
			i++
		case errno == unix.EMSGSIZE || errno == unix.EINVAL:
			r.Errors++
			if errno == unix.EMSGSIZE { // with its tags
				r.TooLong++
			}
			i++
		case errors.Is(errno, unix.ENETDOWN) || errors.Is(errno, unix.ENXIO) ||
			errors.Is(errno, unix.ENODEV):
			return fmt.Errorf("the device is down or gone: %w", errno)
		default:
			return fmt.Errorf("sending: %w", errno)
		}
	}
	return nil
}

// manner is a way in which a packet socket sends.
type manner uint8

const (
	past      manner = iota // the qdisc and the programs at egress
	patiently               // past them, and waits for room in the receiver's ring
	through                 // the programs at egress and the qdisc
)

// sender is a packet socket that sends batches of frames. It receives nothing.
//
// Past the qdisc the kernel reports a frame that the driver drops, and only that, as ENOBUFS to the
// call that sent it (packet_direct_xmit of net/packet/af_packet.c), which makes the counts exact.
// PACKET_TX_RING saves a copy of the frame, but tells nothing of such frames but that they were
// sent. Through the qdisc it reports frames that a program or the qdisc drops as they come in; what
// a queue drops later counts as sent.
type sender struct {
	messages
	bufs [sendBatch][]byte
	how  manner
}

func newSender(dev device, longest int, how manner) (*sender, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	if how != through {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: dev.index})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("preparing a packet socket: %w", err)
	}
	s := &sender{messages: messages{fd: fd, patient: how == patiently}, how: how}
	for i := range s.bufs {
		s.bufs[i] = make([]byte, longest)
	}
	return s, nil
}

func (s *sender) close() { unix.Close(s.fd) }

func (s *sender) batch() int { return sendBatch }

func (s *sender) buffer() ([]byte, error) { return s.bufs[s.n], nil }

func (s *sender) push(n int) { s.add(s.bufs[s.n][:n]) }

func (s *sender) flush(r *Report) error { return s.send(r, 0) }

func (s *sender) finish(*Report) error { return nil }

func (s *sender) what() string {
	way := "past"
	if s.how == through {
		way = "through"
	}
	return "packet socket " + way + " the qdisc, sendmmsg in batches of up to 64"
}
