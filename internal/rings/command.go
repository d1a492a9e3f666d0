// Package rings has the commands `levee ring`: they list rings, read one, and serve one to a
// process without rights. In go names of rings and interfaces; out come counts, packets, and
// sockets that are ready. It must never hold up the packets of an interface, nor keep a ring from
// the next reader once its own has ended.
package rings

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/status"
	"levee/internal/filter/state"
	"levee/internal/lang/literal"
)

const long = `Read the packets that a policy hands to a ring: "redirect MATCH to ring "NAME" else pass".
They come by AF_XDP, before the kernel has made anything of them. While nobody reads, the policy says
what becomes of them. See "levee help rings".`

const example = `  sudo levee ring list
  sudo levee ring read dns --write dns.pcapng
  sudo levee ring serve dns --group analysts`

// Reads reads the policy in force on an interface, "" for the one that has one.
type Reads func(cmd *cobra.Command, dev string) (string, *inspect.InForce, error)

// New returns the command `levee ring`.
func New(e *cli.Env, inForce Reads) *cobra.Command {
	return cli.Noun("ring COMMAND", "Read the packets that a policy hands to a ring", long, example,
		newList(e), newRead(e, inForce), newServe(e, inForce))
}

// Listing is the object of `levee ring list --json`.
type Listing struct {
	Rings []Listed `json:"rings"`
}

// Listed is a ring on an interface.
type Listed struct {
	Dev string `json:"dev"`
	state.Ring
	Unread uint64 `json:"unread"` // handed to a reader, and taken by none
}

func newList(e *cli.Env) *cobra.Command {
	var dev string
	var json bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List rings, who reads them, and what was lost",
		Long: `List the rings of the policies in force. "queues" is from how many receive queues
somebody reads now. "redirected" packets were handed to a reader; "received" ones it has taken;
"unread" is the difference: packets that wait, and those that were lost, since the reader was too
slow or has ended. "bypassed" packets had the verdict behind "else", as nobody read their queue.
Counts begin with the first policy that has the ring, and go on over replaces.`,
		Example: "  sudo levee ring list --dev eth0",
		Args:    cli.WantArgs(),
		RunE: func(*cobra.Command, []string) error {
			rep, notes, err := status.Look(context.Background(), dev, false)
			for _, n := range notes {
				e.Sayf("%s", n)
			}
			if err != nil {
				return err
			}
			out := Listing{[]Listed{}}
			for i := range rep.Interfaces {
				s := &rep.Interfaces[i]
				for _, r := range s.Rings {
					out.Rings = append(out.Rings, Listed{s.Dev, r, r.Unread()})
				}
			}
			if json {
				return e.PrintJSON(out)
			}
			return list(e, &out)
		},
	}
	cli.DevFlag(cmd, &dev, "only rings of this interface")
	cli.JsonFlag(cmd, &json)
	return cmd
}

func list(e *cli.Env, out *Listing) error {
	if len(out.Rings) == 0 {
		fmt.Fprintln(e.Stdout, "no policy in force has a ring")
		return nil
	}
	t := cli.NewTable("dev ring queues redirected received unread bypassed",
		"l", "l", "r", "r", "r", "r", "r")
	for _, r := range out.Rings {
		t.Row(r.Dev, r.Name, len(r.Queues), r.Redirected, r.Received, r.Unread, r.Bypassed)
	}
	t.Print(e.Stdout, "")
	return nil
}

// ofRing asks for the interface of a ring.
func ofRing(e *cli.Env, cmd *cobra.Command, inForce Reads, dev, name string) (string, error) {
	if err := e.Privileged(); err != nil {
		return "", err
	}
	if p := literal.CheckRingName(name); p.Found() {
		return "", cli.Usagef(cmd, "%s", p.Message)
	}
	if dev != "" {
		return dev, nil
	}
	dev, _, err := inForce(cmd, "")
	return dev, err
}
