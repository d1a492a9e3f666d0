package commands

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/bench/route"
	"levee/internal/bench/workload"
	"levee/internal/cli"
)

const benchRouteLong = `Compare the kernel's routing table (asked by bpf_fib_lookup, as a
forwarding program does), its LPM trie map and levee's structures: ns a look-up for hits, misses
and a mix, of routes that come by alike and by Zipf's law; depth; time to insert; memory.
Tables: Internet-like IPv4 and IPv6 up to a full view, /48s of several densities, random /128s
in a /108; or --data: one prefix a line, .gz or not.

Routes go into a network namespace that is made for it and removed. All tables at the default
sizes take about four minutes, most of it the full view; choose with --sizes, --family, --table,
--only.`

const benchRouteExample = `  sudo levee bench route --quick
  sudo levee bench route --data full-view.txt.gz --sizes 100000
  sudo levee bench route --table 48s,128s --sizes 1000,100000 --json > routes.json`

func newBenchRoute(e *env) *cobra.Command {
	var o route.Options
	var data string
	cmd := newMeasurement(e, benchCommand{
		use:   "route",
		short: "Routing tables: the kernel's FIB and LPM trie against levee's structures",
		long:  benchRouteLong, example: benchRouteExample,
		options: &o.Options,
		rounds:  "rounds (default 7; 6 are the fewest that give an interval)",
		seed:    "seed of what is drawn",
		quick:   "1,000 and 10,000 routes, 6 rounds: a look, not a figure to quote",
	}, func(cmd *cobra.Command) error {
		if err := oneOf(cmd, "family", o.Families, "4", "6"); err != nil {
			return err
		}
		if data != "" && len(o.Tables) > 0 {
			return cli.Usagef(cmd, "--data and --table name different tables")
		}
		return readData(e, data, &o.Data, &o.DataName, workload.ReadPrefixes)
	}, func(ctx context.Context) (*route.Report, error) { return route.Run(ctx, o) })
	cmd.Flags().IntSliceVar(&o.Sizes, "sizes", nil,
		"numbers of routes (default 1000, 100000 and a full view)")
	cmd.Flags().StringVar(&data, "data", "",
		"measure a file instead of what is drawn, in samples of --sizes and as a whole")
	cmd.Flags().StringSliceVar(&o.Families, "family", nil, "4 or 6 (default both)")
	cmd.Flags().StringSliceVar(&o.Tables, "table", nil,
		"only these: "+strings.Join(route.Tables, ", "))
	cmd.Flags().StringSliceVar(&o.Only, "only", nil,
		"only these structures, by their names in the report")
	return cmd
}
