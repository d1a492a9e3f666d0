// Package command has the commands of those who knock. In go a key and an address; out goes one
// datagram. It must never write a key where others can read it.
package command

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/host/secret"
	"levee/internal/knock"
)

const knockLong = `Knock at a machine whose agent listens: one datagram with the time, a number that is
used once, and an HMAC-SHA256 of a key that both have. The agent puts the address of who knocks
into a dynamic set, for a time, and a rule lets that set in. Nothing answers. See "levee help
operations".`

const knockExample = `  levee knock key ops.key
  levee knock send --key ops.key 192.0.2.1:7000`

// New returns the command `levee knock`.
func New(e *cli.Env) *cobra.Command {
	return cli.Noun("knock COMMAND", "Show a machine who you are, with one packet", knockLong,
		knockExample, newKey(e), newSend(e))
}

func newKey(e *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "key FILE",
		Short: "Make a key, in a file that nobody else reads",
		Long: `Make a random key, in a new file that nobody else reads: one line of base64. Copy it
to the machine that is knocked at, over a way that nobody listens to.`,
		Example: "  levee knock key /etc/levee/knock.key",
		Args:    cli.WantArgs("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s is there already, and may be in use: name another file, or "+
					"remove it", args[0])
			}
			if err != nil {
				return fmt.Errorf("make the file of the key: %w", err)
			}
			_, err = fmt.Fprintln(f, knock.NewKey())
			if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
				return errors.Join(fmt.Errorf("write the key: %w", err), os.Remove(args[0]))
			}
			fmt.Fprintf(e.Stdout, "a new key is in %s\n", args[0])
			return nil
		},
	}
}

func newSend(e *cli.Env) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "send --key FILE ADDRESS:PORT",
		Short: "Knock at a machine",
		Long: `Send one datagram to an address and port, or to those that a name has. Nothing
answers: whether the machine took it shows when the door is open. Its clock and this one may be half
a minute apart; of more, and of what else it did not take, "levee agent status" tells there.`,
		Example: "  levee knock send --key ops.key 192.0.2.1:7000 && ssh 192.0.2.1",
		Args:    cli.WantArgs("ADDRESS:PORT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if file == "" {
				return cli.Usagef(cmd, "--key is missing: the file of the key")
			}
			host, port, err := net.SplitHostPort(args[0])
			if err != nil || host == "" || port == "" {
				return cli.Usagef(cmd, "%q is no address with a port, such as 192.0.2.1:7000",
					args[0])
			}
			return send(e, file, args[0])
		},
	}
	cmd.Flags().StringVar(&file, "key", "", "the `file` of the key")
	return cmd
}

func send(e *cli.Env, file, to string) error {
	text, err := secret.Read(file)
	if err != nil {
		return err
	}
	key, err := knock.ParseKey(text)
	if err != nil {
		return fmt.Errorf("read the key %s: %w", file, err)
	}
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return err
	}
	addrs := []string{host}
	if _, err := netip.ParseAddr(host); err != nil {
		// One to each family: who is let in is who connects then, by whichever.
		if addrs, err = net.LookupHost(host); err != nil {
			return fmt.Errorf("look up %s: %w", host, err)
		}
	}
	var errs []error
	sent := 0
	for _, addr := range addrs {
		c, err := net.Dial("udp", net.JoinHostPort(addr, port))
		if err == nil {
			_, err = c.Write(key.Datagram(e.Now()))
			err = errors.Join(err, c.Close())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("knock at %s: %w", addr, err))
			continue
		}
		sent++
		fmt.Fprintf(e.Stdout, "knocked at %s\n", net.JoinHostPort(addr, port))
	}
	if sent > 0 { // as by a family that this machine has no route for
		return nil
	}
	return errors.Join(errs...)
}
