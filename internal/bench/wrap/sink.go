package wrap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
	"levee/internal/usage"
)

// filterFD is the descriptor at which a service that has a filter of its sockets finds it.
const filterFD = 3

// Sink is the service that is measured, a process of its own: it listens at an address, with
// "filter" behind it gives that socket the filter at descriptor 3, and takes what comes. It says
// "ready", and then how many bytes it has taken, whenever it is asked by a line. It ends with its
// input.
func Sink(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) < 1 || len(args) > 2 {
		return usage.Wrongf("a service takes an address")
	}
	control := net.ListenConfig{}
	if len(args) == 2 {
		control.Control = filtered
	}
	l, err := control.Listen(ctx, "tcp4", args[0])
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer l.Close()
	var taken atomic.Uint64
	go accept(l, &taken)
	fmt.Fprintln(out, "ready")
	asked := bufio.NewScanner(in)
	for asked.Scan() {
		fmt.Fprintln(out, strconv.FormatUint(taken.Load(), 10))
	}
	return asked.Err()
}

// filtered gives a socket the filter before it listens, and locks it.
func filtered(_, _ string, c syscall.RawConn) (err error) {
	failed := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_BPF, filterFD)
		if err == nil {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 1)
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return kernel.Refuse(err, "attach the filter")
	}
	return nil
}

func accept(l net.Listener, taken *atomic.Uint64) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			b := make([]byte, 1<<20)
			for {
				n, err := c.Read(b)
				taken.Add(uint64(n))
				if err != nil {
					return
				}
			}
		}()
	}
}
