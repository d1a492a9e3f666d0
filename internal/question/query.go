package question

import (
	"errors"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/agent/defend"
	"levee/internal/cli"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/filter/region"
	"levee/internal/lang/policy"
	"levee/internal/lang/setfile"
)

const queryLong = `Tell who gets to what a match is about: by rule the sources whose packets it
decides, first those that pass. The match is in the words of rules ("levee help matches"), with the
sets of the policy; "out" in front of it asks who sends what leaves.

Without FILE the policy in force is asked, on --dev or on the one interface of this network
namespace that has one (root), with the live rules of the agent; with --service it is that of a
service ("levee wrap"). The answer is exact for all that a packet says of itself. What only run time
knows stands behind "if": what dynamic sets hold, limits, cookies.`

const queryExample = `  levee query edge.levee 'tcp port 22'
  sudo levee query 'udp to 192.0.2.7 port 53'
  levee query mail.levee 'out tcp port 25'
  levee query edge.levee --json 'icmp6'`

type queryFlags struct {
	dev  string
	json bool
}

// NewQuery returns the command `levee query`.
func NewQuery(with *cli.Env, inForce InForce) *cobra.Command {
	e := &env{with, inForce}
	var f queryFlags
	cmd := &cobra.Command{
		Use:     "query [FILE] MATCH",
		Short:   "Show who gets to what a match is about, and by which rule",
		Long:    queryLong,
		Example: queryExample,
		Args:    oneOrTwo("MATCH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.query(cmd, args, &f)
		},
	}
	cli.DevFlag(cmd, &f.dev, "ask the policy in force on this interface")
	cli.ServiceFlag(cmd, &f.dev, store.Service, "ask the policy of this service")
	cli.JsonFlag(cmd, &f.json)
	return cmd
}

func (e *env) query(cmd *cobra.Command, args []string, f *queryFlags) error {
	match := args[len(args)-1]
	if len(args) == 2 && f.dev != "" {
		return cli.Usagef(cmd, "FILE and --dev or --service exclude each other")
	}
	if len(args) == 1 && filepath.Ext(match) == ".levee" && !strings.ContainsAny(match, " \t\n") {
		return cli.Usagef(cmd, "MATCH is missing behind %s", match)
	}
	var name string
	var text []byte
	var open func(string) (io.ReadCloser, error)
	var live []inspect.LiveRule
	if len(args) == 2 {
		src, err := e.ReadSource(args[0])
		if err != nil {
			return err
		}
		name, text, open = src.Title(), src.Text, setfile.In(src.Dir())
	} else {
		in, err := e.inForce(cmd, f.dev)
		if err != nil {
			return err
		}
		if in.OnError != "" {
			return errors.New("only what \"on error\" says is in force: ask the policy's file")
		}
		name, text, open, live = in.Name(), in.Source, setfile.Recorded(in.Files), in.Live
	}
	q, ds := region.Ask(name, text, match, open)
	if q == nil {
		e.PrintDiagnostics(ds)
		return cli.ErrNo
	}
	if live != nil && !q.Policy.Leaves() {
		err := q.Among(func(p *policy.Policy) (*policy.Policy, error) {
			return defend.WithLive(p, live)
		})
		if err != nil {
			return err
		}
	}
	told := q.Tell(q.Who())
	if f.json {
		return e.PrintJSON(told)
	}
	out := e.Stdout.Screen()
	told.Print(out)
	return out.Flush()
}
