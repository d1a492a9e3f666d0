package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/bench/scale"
	"levee/internal/bench/workload"
)

const benchRouteLong = `Compare the kernel's routing table (asked by bpf_fib_lookup, as a forwarding program does), its LPM trie map and levee's
structures: ns a look-up for hits, misses and a mix, of routes that come by alike and by Zipf's law; depth; time to insert;
memory. Tables: Internet-like IPv4 and IPv6 up to a full view, /48s of several densities, random /128s in a /108; or
--data: one prefix a line, .gz or not.

Routes go into a network namespace that is made for it and removed. All tables at the default sizes take about four minutes,
most of it the full view; choose with --sizes, --family, --table, --only.`

const benchRouteExample = `  sudo levee bench route --quick
  sudo levee bench route --data full-view.txt.gz --sizes 100000
  sudo levee bench route --table 48s,128s --sizes 1000,100000 --json > routes.json`

func newBenchRoute(e *env) *cobra.Command {
	var o scale.RouteOptions
	var data string
	var out benchOutput
	cmd := &cobra.Command{
		Use:     "route",
		Short:   "Routing tables: the kernel's FIB and LPM trie against levee's structures",
		Long:    benchRouteLong,
		Example: benchRouteExample,
		Args:    wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, v := range o.Families {
				if v != "4" && v != "6" {
					return usagef(cmd, "--family %s: it is 4 or 6", v)
				}
			}
			if data != "" && len(o.Tables) > 0 {
				return usagef(cmd, "--data and --table name different tables")
			}
			if err := out.check(cmd); err != nil {
				return err
			}
			if err := roundsFlag(cmd, o.Rounds); err != nil {
				return err
			}
			if data != "" {
				err := e.readData(data, func(r io.Reader, name string) (err error) {
					o.DataName = name
					o.Data, err = workload.ReadPrefixes(r, name)
					return err
				})
				if err != nil {
					return err
				}
			}
			o.Command = e.command()
			ctx, stop := e.signals()
			defer stop()
			progress := e.timed()
			o.Steps = progress.step
			rep, err := scale.Routes(ctx, o)
			progress.clear()
			if rep == nil {
				return err
			}
			return e.printBench(rep, err, &out)
		},
	}
	cmd.Flags().IntSliceVar(&o.Sizes, "sizes", nil, "numbers of routes (default 1000, 100000 and a full view)")
	cmd.Flags().StringVar(&data, "data", "", "measure a file instead of what is drawn, in samples of --sizes and as a whole")
	cmd.Flags().StringSliceVar(&o.Families, "family", nil, "4 or 6 (default both)")
	cmd.Flags().StringSliceVar(&o.Tables, "table", nil, "only these: "+strings.Join(scale.Tables, ", "))
	cmd.Flags().StringSliceVar(&o.Only, "only", nil, "only these structures, by their names in the report")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 0, "rounds (default 7; 6 are the fewest that give an interval)")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of what is drawn")
	cmd.Flags().BoolVar(&o.Quick, "quick", false, "1,000 and 10,000 routes, 6 rounds: a look, not a figure to quote")
	out.register(cmd)
	return cmd
}
