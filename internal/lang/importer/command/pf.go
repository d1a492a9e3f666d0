package command

import (
	"io"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/lang/importer"
	"levee/internal/lang/importer/pf"
)

const pfLong = `Print a policy that judges arriving packets as the rules of a pf.conf do, of
OpenBSD, FreeBSD or macOS. FILE is the file, or what "pfctl -sr" prints; - is standard input.
Behind it stand the files from which it loads anchors. The last rule that matches decides in pf,
unless one says quick, and the first in a policy: so the quick rules come first, and the others
stand in the opposite order.

What a policy cannot say is left out, and stands as a comment at its place. What it says in other
words has a comment beside it. Both are said on standard error too, once each kind, with lines,
reasons and what to do instead. States become the term established. Limits are left
out: such rules pass more than the source does. --strict refuses to print a policy that does.`

func newPF(e *env) *cobra.Command {
	var f rulesetFlags
	cmd := &cobra.Command{
		Use:   "pf FILE [ANCHOR-FILE...]",
		Short: "Turn a pf.conf into a policy",
		Long:  pfLong,
		Example: "  levee import pf pf.conf --dev em0 > edge.levee\n" +
			"  levee import pf pf.conf pf.anchors/com.apple --dev en0 > mac.levee",
		Args: cli.WantSome("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.importRuleset(cmd, args, &f,
				func(in []importer.Source, w io.Writer, o importer.Rulesets) (importer.Imported,
					error) {
					return pf.Import(in[0], w, o, in[1:]...)
				})
		},
	}
	f.addCommon(cmd)
	return cmd
}
