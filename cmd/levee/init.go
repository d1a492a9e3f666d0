package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane"
	"levee/internal/dataplane/store"
	"levee/internal/host/inuse"
	"levee/internal/host/nat"
)

const initLong = `Look at what this machine uses its network for, write a policy that keeps it and
drops the rest, and put it on trial: unless ` + "`levee confirm`" + ` comes in time, the machine is
as it was before. The policy is a draft with the reason for each rule beside it, for you to read
and to tighten. levee init never puts anything in force for good.

It looks at addresses and routes, sockets that listen, SSH sessions, resolvers, leases of DHCP,
WireGuard, rules of NAT (nftables, iptables), and whether packets are forwarded, and filtered then.
What is silent at the moment it cannot see.

FILE is /etc/levee/INTERFACE.levee where none is given; one that is there is never changed. With "-"
the draft goes to standard output, and nothing is put on trial.`

const initExample = `  levee init -
  sudo levee init --dev eth0 --confirm 5m`

// initConfirm is the trial of a draft: time to log in once more and to look around.
const initConfirm = "5m"

func newInit(e *env) *cobra.Command {
	var f upFlags
	var dev string
	cmd := &cobra.Command{
		Use:     "init [FILE]",
		Short:   "Write a policy that keeps what this machine uses, and put it on trial",
		Long:    initLong,
		Example: initExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			file := ""
			switch {
			case len(args) > 1:
				return cli.Usagef(cmd, "%q is one argument too many", args[1])
			case len(args) == 1:
				file = args[0]
			}
			if f.confirm == "" {
				return cli.Usagef(cmd, "--confirm: a draft is never put in force without a trial")
			}
			return e.init(cmd, file, dev, &f)
		},
	}
	cli.DevFlag(cmd, &dev, "the interface (default: that of the default route)")
	cmd.Flags().StringVar(&f.confirm, "confirm", initConfirm,
		"how long the trial lasts, 100ms to 7d")
	return cmd
}

func (e *env) init(cmd *cobra.Command, file, dev string, f *upFlags) error {
	m, err := inuse.Read("/", dev)
	if err != nil {
		return err
	}
	if err := dataplane.Exists(m.Dev); err != nil {
		return err
	}
	ctx, stop := e.Signals()
	m.NAT = *nat.Read(ctx, m.Above)
	stop()
	for _, note := range m.Notes() {
		e.Sayf("%s", note)
	}
	if file == cli.StdinName {
		_, err := fmt.Fprint(e.Stdout, m.Policy())
		return err
	}
	if err := e.Privileged(); err != nil {
		return fmt.Errorf("%w; `levee init -` prints the draft without", err)
	}
	if file == "" {
		file = filepath.Join("/etc/levee", m.Dev+".levee")
	}
	if err := writeNew(file, m.Policy()); err != nil {
		return err
	}
	fmt.Fprintf(e.Stdout, "%s is a draft; read it before you keep it\n", file)
	f.mode, f.devs = string(store.Auto), []string{m.Dev}
	return e.up(cmd, file, f)
}

// writeNew writes a file that is not there.
func writeNew(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the draft: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there, and is not changed: `levee up %[1]s --confirm %s`, or "+
			"name another file", path, initConfirm)
	}
	if err != nil {
		return fmt.Errorf("write the draft: %w", err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the draft: %w", errors.Join(err, os.Remove(path)))
	}
	return nil
}
