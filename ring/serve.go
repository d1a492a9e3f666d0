package ring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// hello describes a queue in a message with its descriptors: the socket, its memory, and the
// counters of readers. The last message of a ring says End, or what went wrong.
type hello struct {
	Dev      string `json:"dev,omitempty"`
	L3       bool   `json:"l3,omitempty"`
	Queue    int    `json:"queue"`
	ZeroCopy bool   `json:"zero_copy,omitempty"`
	layout
	End   bool   `json:"end,omitempty"`
	Error string `json:"error,omitempty"`
}

// Bounds of what is read of who serves.
const (
	helloBytes  = 4 << 10
	descriptors = 3
	maxQueues   = 1024
)

// answered is the longest wait of Dial for who serves, which waits itself for a reader that is
// going.
const answered = 10 * time.Second

// Dial gets a ring of who serves it at a path, and waits for ten seconds at most. The reader needs
// no rights but to open the socket there.
func Dial(path string) (*Reader, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answered)
	defer cancel()
	return DialContext(ctx, path)
}

// DialContext is Dial that waits until ctx ends.
func DialContext(ctx context.Context, path string) (*Reader, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unixpacket", path)
	if no := unix.Errno(0); errors.As(err, &no) && (no == unix.ENOENT || no == unix.ECONNREFUSED) {
		return nil, fmt.Errorf("nobody serves a ring at %s, as `levee ring serve` does: %w", path,
			no)
	}
	if err != nil {
		return nil, fmt.Errorf("ask for a ring: %w", err)
	}
	conn := c.(*net.UnixConn) // so the network says
	r := &Reader{conn: conn}
	goOn := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer goOn()
	for {
		h, fds, err := receive(conn)
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("who serves it does not answer: %w", context.Cause(ctx))
		}
		if err == nil && h.Error != "" {
			err = errors.New(h.Error)
		}
		if err == nil && h.End {
			break
		}
		if err == nil {
			err = r.add(h, fds)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("ask for a ring: %w", err), r.Close())
		}
	}
	r.prepare()
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			r.watch = append(r.watch, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ask for a ring: %w", err), r.Close())
	}
	return r, nil
}

// add takes a queue.
func (r *Reader) add(h *hello, fds []int) error {
	q := &Queue{Number: h.Queue, ZeroCopy: h.ZeroCopy, fd: -1, file: -1, tallyFile: -1,
		layout: h.layout}
	r.Dev, r.L3, r.queues = h.Dev, h.L3, append(r.queues, q)
	if len(fds) != descriptors || h.Frames == 0 || h.Frames&(h.Frames-1) != 0 ||
		h.Frames > MaxFrames || h.Size != smallSize && h.Size != largeSize ||
		len(r.queues) > maxQueues {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return fmt.Errorf("queue %d has no shape of a ring's", h.Queue)
	}
	q.fd, q.file, q.tallyFile = fds[0], fds[1], fds[2]
	for _, m := range []struct{ fd, bytes int }{
		{q.file, int(h.Frames) * int(h.Size)}, {q.tallyFile, unix.Getpagesize()}} {
		if err := stays(m.fd, m.bytes); err != nil {
			return fmt.Errorf("the memory of queue %d: %w", h.Queue, err)
		}
	}
	if err := q.mapTally(); err != nil {
		return err
	}
	return q.mapAll(false)
}

// stays is an error unless a file has so many bytes, and nobody can take them away: a reader would
// be killed where it looks at memory that is gone (SIGBUS).
func stays(fd, bytes int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 || st.Size < int64(bytes) {
		return fmt.Errorf("%d bytes of %d, which who serves it can take away", st.Size, bytes)
	}
	return nil
}

// receive reads a message.
func receive(conn *net.UnixConn) (*hello, []int, error) {
	text, rights := make([]byte, helloBytes), make([]byte, unix.CmsgSpace(4*descriptors))
	n, m, flags, _, err := conn.ReadMsgUnix(text, rights)
	if err != nil {
		return nil, nil, err
	}
	var fds []int
	all, err := unix.ParseSocketControlMessage(rights[:m])
	for i := range all {
		got, perr := unix.ParseUnixRights(&all[i])
		fds, err = append(fds, got...), errors.Join(err, perr)
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	h := &hello{}
	switch {
	case err != nil:
	case n == 0:
		err = errors.New("who serves it has ended")
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errors.New("a message is too long")
	default:
		err = json.Unmarshal(text[:n], h)
	}
	if err != nil {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return nil, nil, err
	}
	return h, fds, nil
}

// Give sends the sockets of a reader's queues to the process at the other end of conn, with the
// file in which readers count. The caller then closes its own; the ring lasts until the other
// process closes its sockets.
func Give(conn *net.UnixConn, r *Reader, tally *os.File) error {
	for _, q := range r.queues {
		h := hello{Dev: r.Dev, L3: r.L3, Queue: q.Number, ZeroCopy: q.ZeroCopy, layout: q.layout}
		err := say(conn, h, unix.UnixRights(q.fd, q.file, int(tally.Fd())))
		if err != nil {
			return err
		}
	}
	return say(conn, hello{End: true}, nil)
}

// Refuse tells who has dialled why there is no ring.
func Refuse(conn *net.UnixConn, why error) error {
	return say(conn, hello{Error: why.Error()}, nil)
}

func say(conn *net.UnixConn, h hello, rights []byte) error {
	text, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("hand over a ring: %w", err)
	}
	if _, _, err := conn.WriteMsgUnix(text, rights, nil); err != nil {
		return fmt.Errorf("hand over a ring: %w", err)
	}
	return nil
}
