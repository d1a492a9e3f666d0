package wrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"regexp"
	"strconv"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"levee/internal/cli"
	"levee/internal/dataplane/service"
	"levee/internal/kernel"
)

const socketsLong = `Make a policy a filter of sockets, under a name, and let the members of a group
attach it to sockets of their own: "levee wrap run" does that for a service that is handed its
sockets. Root does this once after a reboot; whoever takes the filter needs no rights.

The policy judges what arrives. Done again it replaces the policy in one step, also for sockets that
have it. After --remove these take nothing any more, until their socket unit is restarted.`

const socketsExample = `  sudo levee wrap sockets web web.levee --group www-data
  sudo levee wrap sockets --remove web`

// socketPrefix begins the names of filters of sockets among those of services.
const socketPrefix = "sockets:"

// validPolicy matches the names that a filter of sockets may have.
var validPolicy = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)
})

func newSockets(e *env) *cobra.Command {
	var group string
	var remove, json bool
	cmd := &cobra.Command{
		Use:     "sockets (NAME FILE --group GROUP | --remove NAME)",
		Short:   "Make a policy a filter that a group may attach to its sockets",
		Long:    socketsLong,
		Example: socketsExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !validPolicy().MatchString(args[0]) || len(args[0]) > 64:
				return cli.Usagef(cmd, "%q is no name: letters, digits, - and _, 64 at most",
					args[0])
			case remove && group != "":
				return cli.Usagef(cmd, "--remove and --group exclude each other")
			case !remove && group == "":
				return cli.Usagef(cmd, "--group is missing: who may attach the filter")
			}
			if err := e.Privileged(); err != nil {
				return err
			}
			ctx, stop := e.Signals()
			defer stop()
			if remove {
				err := service.Remove(ctx, socketPrefix+args[0])
				if err == nil {
					fmt.Fprintf(e.Stdout, "the filter %s is gone; sockets that have it take "+
						"nothing any more\n", args[0])
				}
				return err
			}
			return e.wrapSockets(ctx, args[0], args[1], group, json)
		},
	}
	removing(cmd, &remove, "sockets")
	cmd.Flags().StringVar(&group, "group", "", "whose members may attach it, a `group`")
	cli.JsonFlag(cmd, &json)
	return cmd
}

func (e *env) wrapSockets(ctx context.Context, name, file, group string, json bool) error {
	o, p, err := e.read(file, true)
	if err != nil {
		return err
	}
	found, err := user.LookupGroup(group)
	if err != nil {
		return fmt.Errorf("there is no group %q: groupadd --system %[1]s makes it", group)
	}
	if o.Group, err = strconv.Atoi(found.Gid); err != nil {
		return fmt.Errorf("the group %q has no number: %w", group, err)
	}
	o.Name = socketPrefix + name
	return e.put(ctx, o, p, json)
}

const runLong = `Attach a filter of "levee wrap sockets" to the sockets that this process was handed
(LISTEN_FDS, sd_listen_fds(3)), lock it there, and become COMMAND. Connections that are accepted
have the filter, too. Nothing can take it off a socket again, not even root. What waits at a socket
when it gets the filter is thrown away, since nobody has judged it: connections are reset.

Where COMMAND is started again, sockets of systemd have the filter still, and keep it. It needs no
rights but membership in the filter's group. Where a socket cannot have the filter, COMMAND is not
started.`

const runExample = `  systemd-socket-activate -l 8080 levee wrap run --policy web -- /usr/bin/myserver`

func newRun(e *env) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "run --policy NAME -- COMMAND...",
		Short:   "Start a command whose sockets have the filter",
		Long:    runLong,
		Example: runExample,
		Args:    cli.WantSome("COMMAND"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if name == "" {
				return cli.Usagef(cmd, "--policy is missing: a name of levee wrap sockets")
			}
			return e.run(name, args)
		},
	}
	cmd.Flags().StringVar(&name, "policy", "", "the `name` of the filter")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// firstSocket is the number of the first socket that is handed on (SD_LISTEN_FDS_START).
const firstSocket = 3

// mostSockets bounds the sockets that may be handed on: a number beyond is no environment of
// systemd's.
const mostSockets = 1 << 16

// handed returns how many sockets this process was handed.
func handed() (int, error) {
	const hint = "a socket unit of systemd hands sockets on, or systemd-socket-activate"
	text := os.Getenv("LISTEN_FDS")
	if text == "" {
		return 0, fmt.Errorf("no socket was handed on (LISTEN_FDS is not set): %s", hint)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostSockets {
		return 0, fmt.Errorf("LISTEN_FDS is %q, which is no number of sockets: %s", text, hint)
	}
	if pid := os.Getenv("LISTEN_PID"); pid != strconv.Itoa(os.Getpid()) {
		return 0, fmt.Errorf("sockets were handed to process %s, and this is %d: begin ExecStart= "+
			"with levee wrap run, without a shell", pid, os.Getpid())
	}
	return n, nil
}

// run attaches the filter and becomes the command. It returns only with an error.
func (e *env) run(name string, args []string) error {
	n, err := handed()
	if err != nil {
		return err
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("find the command: %w", err)
	}
	filter, err := openFilter(name)
	if err != nil {
		return err
	}
	some := false
	for fd := firstSocket; fd < firstSocket+n; fd++ {
		filtered, had, err := attachTo(fd, filter)
		if err != nil {
			return fmt.Errorf("socket %d of %d that were handed on: %w", fd-firstSocket+1, n, err)
		}
		if had {
			fmt.Fprintf(e.Stderr, "socket %d of %d keeps the filter of an earlier start: where "+
				"that was another or is removed, restart the socket unit\n", fd-firstSocket+1, n)
		}
		some = some || filtered
	}
	if !some {
		return errors.New("none of the sockets that were handed on is of IPv4 or IPv6: the " +
			"filter would judge nothing")
	}
	filter.Close()
	if err := unix.Exec(program, args, os.Environ()); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	return nil
}

// openFilter opens a filter by its name.
func openFilter(name string) (*ebpf.Program, error) {
	if !validPolicy().MatchString(name) {
		return nil, fmt.Errorf("%q is no name of a filter: `levee wrap sockets` gives one", name)
	}
	path, err := service.FilterOf(socketPrefix + name)
	if err != nil {
		return nil, err
	}
	filter, err := ebpf.LoadPinnedProgram(path, nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no filter %q: as root, `levee wrap sockets %[1]s FILE "+
			"--group GROUP` makes it, once after a reboot", name)
	case errors.Is(err, fs.ErrPermission):
		return nil, kernel.Refuse(nil, "only members of its group may take the filter %q: `stat "+
			"-c %%G %s` names it, and SupplementaryGroups= of a unit gives it", name, path)
	case err != nil:
		return nil, kernel.Refuse(err, "open the filter %q", name)
	}
	return filter, nil
}

// attachTo attaches the filter to a socket and locks it. A socket that is neither of IPv4 nor of
// IPv6, or no socket, such as a FIFO, has no packets to judge: filtered is false then. had says
// that the socket has a filter from a start before, and keeps it.
func attachTo(fd int, filter *ebpf.Program) (filtered, had bool, err error) {
	family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	switch {
	case errors.Is(err, unix.ENOTSOCK):
		return false, false, nil
	case err != nil:
		return false, false, kernel.Refuse(err, "ask for its family")
	case family == unix.AF_UNIX:
		return false, false, nil
	case family != unix.AF_INET && family != unix.AF_INET6:
		return false, false, fmt.Errorf("it is of family %d: the filter judges IPv4 and IPv6",
			family)
	}
	typ, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return false, false, kernel.Refuse(err, "ask for its type")
	}
	if typ != unix.SOCK_STREAM && typ != unix.SOCK_DGRAM {
		return false, false, errors.New("it is neither of a stream nor of datagrams")
	}
	proto, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err == nil && proto == unix.IPPROTO_MPTCP {
		return false, false, errors.New("it is of Multipath TCP, whose sockets take no filter: " +
			"leave SocketProtocol=mptcp out of the socket unit")
	}
	if typ == unix.SOCK_STREAM {
		listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		if err != nil {
			return false, false, kernel.Refuse(err, "ask whether it listens")
		}
		if listens == 0 {
			return false, false, errors.New("it is a connection, whose first packets nobody has " +
				"judged: leave Accept=yes out of the socket unit")
		}
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, filter.FD())
	switch {
	case errors.Is(err, unix.EPERM) && hasProgram(fd):
		return true, true, nil
	case errors.Is(err, unix.EPERM):
		return false, false, errors.New("it has a filter of somebody else's, which is locked")
	case err != nil:
		return false, false, kernel.Refuse(err, "attach the filter (Linux 3.19 or newer)")
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 1); err != nil {
		return false, false, kernel.Refuse(err, "lock the filter")
	}
	return true, false, forget(fd, typ)
}

// hasProgram tells whether the filter of a socket is a program of eBPF. Systemd keeps its sockets
// when it starts a service again; the first who was handed them has given them the filter. The
// kernel does not show which one it is: it shows classic filters alone, and of others that they are
// there (sk_get_filter of net/core/filter.c).
func hasProgram(fd int) bool {
	_, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_GET_FILTER)
	return errors.Is(err, unix.EACCES)
}

// leastOfDatagram is less than a datagram takes of the memory of a socket, in bytes: struct sk_buff
// alone is longer.
const leastOfDatagram = 128

// forget throws away what waits at a socket, and so came before its filter: connections, which have
// none as long as they live, and datagrams. Both wait in the order in which they came.
func forget(fd, typ int) error {
	if typ == unix.SOCK_STREAM {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return kernel.Refuse(err, "ask how many connections wait")
		}
		for range info.Unacked { // of a socket that listens, those that nobody has accepted
			c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
			if err != nil {
				return kernel.Refuse(err, "reset a connection that came before the filter")
			}
			unix.Close(c)
		}
		return nil
	}
	bytes, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return kernel.Refuse(err, "ask how many datagrams may wait")
	}
	for range bytes / leastOfDatagram {
		// Other errors are of a datagram that was sent.
		_, _, err := unix.Recvfrom(fd, nil, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	return nil
}
