// Package command has the commands `levee trap`: servers that let nobody in and record who tries.
//
// In go addresses, interfaces that divert, and the environment of a process; out come records, a
// JSON object a line. It must never let anybody in.
package command

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/agent/trap"
	"levee/internal/cli"
	"levee/internal/dataplane/diverted"
)

const sshLong = `Be an SSH server that lets nobody in, and record who tries: a JSON object a line
for each password and each key, with the address, the user, what the client says that it is, and
the fingerprint of its key exchange (HASSH), and one when the connection ends. docs/reference/json.md has
the fields. What is recorded are passwords: keep the log as you keep those.

It opens no session, runs nothing and connects nowhere. 2,000 connections at once take less than
256 MiB: beyond either, the oldest are ended. It needs no rights above port 1023. Without --listen
it is at a loopback address. Without --log, records go to standard output.

With --divert it also gets the connections that the policy on an interface diverts to it, whatever
their port: ` + "`divert tcp port 22 from attackers`" + `. That needs the rights of the data plane (root). It
may begin before the policy, and goes on over ` + "`levee down`" + ` and ` + "`up`" + `. Without --listen it is at the
loopback addresses of both families then.

--host-key keeps its keys in a file, which is made if it is not there: an SSH server whose keys
change is told from others.`

const sshExample = `  levee trap ssh --listen 192.0.2.10:2222 --host-key key --log trap.json
  sudo levee trap ssh --divert eth0 --host-key key --log trap.json
  levee trap ssh | jq -r 'select(.event == "attempt") | .user + " " + .password'`

type sshFlags struct {
	listen, divert       []string
	version, hostKey     string
	log                  string
	logSize              int
	connections, sources int
	timeout              time.Duration
}

// memory bounds the objects and stacks of a trap, in bytes: a process of 256 MiB less the program
// itself, and less what the collector of garbage has not given back.
const memory = 144 << 20

// Where a trap is by itself.
const loopback4, loopback6 = "127.0.0.1:2222", "[::1]:2222"

// loopback returns the addresses of a trap that gets connections of both families, where there are
// both.
func loopback() []string {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		return []string{loopback4}
	}
	l.Close()
	return []string{loopback4, loopback6}
}

// New returns the command `levee trap`.
func New(e *cli.Env) *cobra.Command {
	return cli.Noun("trap COMMAND", "Servers that let nobody in and record who tries",
		"Servers that let nobody in and record who tries.", "  levee trap ssh", newSSH(e))
}

func newSSH(e *cli.Env) *cobra.Command {
	f := sshFlags{timeout: time.Minute}
	var lasts string
	cmd := &cobra.Command{
		Use:     "ssh",
		Short:   "Be an SSH server that lets nobody in, and record who tries",
		Long:    sshLong,
		Example: sshExample,
		Args:    cli.WantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.connections < 1 || f.sources < 1:
				return cli.Usagef(cmd, "--connections and --per-source need a number above 0")
			case f.logSize < 1:
				return cli.Usagef(cmd, "--log-size needs a number of MB above 0")
			case f.log == "" && cmd.Flags().Changed("log-size"):
				return cli.Usagef(cmd, "--log-size is for --log")
			}
			for _, address := range f.listen {
				if _, _, err := net.SplitHostPort(address); err != nil {
					return cli.Usagef(cmd, "--listen: %q is no ADDRESS:PORT, such as "+
						"192.0.2.1:2222 or [2001:db8::1]:2222", address)
				}
			}
			if err := trap.CheckVersion(f.version); err != nil {
				return cli.Usagef(cmd, "--version: %v", err)
			}
			if err := cli.DurationFlag(cmd, "timeout", lasts, &f.timeout); err != nil {
				return err
			}
			if len(f.divert) > 0 && !cmd.Flags().Changed("listen") {
				f.listen = loopback()
			}
			return ssh(e, f)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.listen, "listen", []string{loopback4},
		"take connections at this address; may be given again")
	flags.StringSliceVar(&f.divert, "divert", nil,
		"get what the policy on this `interface` diverts; may be given again")
	flags.StringVar(&f.version, "version", "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u7",
		"say that it is this version")
	flags.StringVar(&f.hostKey, "host-key", "", "keep the keys of the host in this file")
	flags.StringVar(&f.log, "log", "", "append records to this file")
	flags.IntVar(&f.logSize, "log-size", 100,
		"begin a new log after so many MB; the one before becomes FILE.1")
	flags.IntVar(&f.connections, "connections", 2000, "have at most n connections at once")
	flags.IntVar(&f.sources, "per-source", 32,
		"have at most n connections of an IPv4 address or an IPv6 /64 at once")
	flags.StringVar(&lasts, "timeout", "1m", "end a connection after this time")
	return cmd
}

func ssh(e *cli.Env, f sshFlags) error {
	keys, err := trap.HostKeys(f.hostKey)
	if err != nil {
		return cli.Refusedf("%w", err)
	}
	var out io.Writer = e.Stdout
	if f.log != "" {
		file, err := trap.OpenFile(f.log, int64(f.logSize)<<20)
		if err != nil {
			return cli.Refusedf("%w", err)
		}
		defer file.Close()
		out = file
	}
	log := trap.NewLog(out)
	t, err := trap.New(trap.Options{Version: f.version, HostKeys: keys,
		Connections: f.connections, PerSource: f.sources, Timeout: f.timeout, Memory: memory,
		Record: log.Add})
	if err != nil {
		return err
	}
	ctx, stop := e.Signals()
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	listeners, err := diverted.Listen(ctx, f.listen, e.Sayf)
	if err != nil {
		return err
	}
	wait, err := diversions(ctx, e, f.divert, listeners)
	if err != nil {
		diverted.Close(listeners)
		return err
	}
	go func() {
		if err := <-log.Failed(); err != nil {
			cancel(fmt.Errorf("write records: %w", err))
		}
	}()
	err = t.Serve(ctx, listeners...)
	cancel(nil)
	wait()
	log.Close()
	c := t.Counts()
	e.Sayf("%s, %d refused as there were too many of their source, %d ended to make room",
		cli.Plural(c.Accepted, "connection"), c.Refused, c.Ended)
	return err
}

// diversions has what the policies on interfaces divert reach listeners, until ctx ends.
func diversions(ctx context.Context, e *cli.Env, devs []string, listeners []net.Listener) (
	wait func(), err error) {
	if len(devs) > 0 {
		if err := e.Privileged(); err != nil {
			return nil, err
		}
	}
	return diverted.Join(ctx, devs, listeners, e.Sayf)
}
