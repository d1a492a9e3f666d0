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

// sender is a packet socket that sends batches of frames past the qdisc. It receives nothing.
type sender struct {
	fd   int
	n    int // frames added
	bufs [sendBatch][]byte
	iov  [sendBatch]unix.Iovec
	msgs [sendBatch]mmsghdr
}

func newSender(dev device) (*sender, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: dev.index})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("preparing a packet socket: %w", err)
	}
	return &sender{fd: fd}, nil
}

func (s *sender) close() { unix.Close(s.fd) }

// add copies a frame to the batch, which must not be full, and returns the copy.
func (s *sender) add(frame []byte) []byte {
	s.bufs[s.n] = append(s.bufs[s.n][:0], frame...)
	s.n++
	return s.bufs[s.n-1]
}

// flush sends the batch and adds what became of it to the report.
func (s *sender) flush(r *Report) error {
	for i := range s.n {
		s.iov[i].Base = &s.bufs[i][0]
		s.iov[i].SetLen(len(s.bufs[i]))
		s.msgs[i].hdr.Iov = &s.iov[i]
		s.msgs[i].hdr.SetIovlen(1)
	}
	end, i := s.n, 0
	s.n = 0
	waiting := uint64(0) // since when there is no room
	for i < end {
		sent, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.msgs[i])), uintptr(end-i), 0, 0, 0)
		runtime.KeepAlive(s)
		if errno == 0 {
			for _, b := range s.bufs[i : i+int(sent)] {
				r.Sent++
				r.Bytes += uint64(len(b))
			}
			i += int(sent)
			waiting = 0
			continue
		}
		switch {
		case errno == unix.EINTR || errno == unix.EAGAIN:
		case errno == unix.ENOBUFS:
			now := monotonic()
			if waiting == 0 {
				waiting = now
			}
			if now-waiting < uint64(roomWait) {
				time.Sleep(roomPoll) // the receiver may share the core
				continue
			}
			r.Sent++
			r.Refused++
			r.Bytes += uint64(len(s.bufs[i]))
			i++
		case errno == unix.EMSGSIZE || errno == unix.EINVAL:
			r.Errors++ // longer than the MTU allows with its tags
			i++
		case errors.Is(errno, unix.ENETDOWN) || errors.Is(errno, unix.ENXIO):
			return fmt.Errorf("the device is down or gone: %w", errno)
		default:
			return fmt.Errorf("sending: %w", errno)
		}
	}
	return nil
}
