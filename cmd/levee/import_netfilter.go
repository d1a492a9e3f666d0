package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/lang/importer"
	"levee/internal/lang/syntax"
)

const importIPTablesLong = `Print a policy that judges packets as rules of iptables do. The
files hold what iptables-save, ip6tables-save, iptables -S and ipset save print, in any mixture;
- is standard input. The chain INPUT is imported, or those that --chain names, one behind the
other: --chain raw/PREROUTING --chain INPUT.

What a policy cannot say is left out, stands as a comment at its place, and is said on standard
error with its line, the reason and what to do instead. Read these lines before the policy is
used.`

const importNFTLong = `Print a policy that judges packets as a ruleset of nftables does. FILE
holds what "nft -j list ruleset" prints; - is standard input. All filter chains at the hook
input are imported, in the order of their priorities, or those that --chain names, as
TABLE/CHAIN or CHAIN.

What a policy cannot say is left out, stands as a comment at its place, and is said on standard
error with the handle of the rule, the reason and what to do instead. Read these lines before
the policy is used.`

// rulesetFlags are what both imports of netfilter have.
type rulesetFlags struct {
	importer.Rulesets
	json bool
}

func (f *rulesetFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.Chains, "chain", nil,
		"the chain to import, as CHAIN or TABLE/CHAIN; may be given again")
	cmd.Flags().StringVar(&f.Device, "dev", "",
		"the interface that the policy is for: rules about others are left out")
	cmd.Flags().BoolVar(&f.Stateless, "stateless", false,
		"write the stateless approximation of rules about connections as rules, not as comments")
	cmd.Flags().BoolVar(&f.json, "json", false,
		"print what is said on standard error as JSON, one object a line")
}

func newImportIPTables(e *env) *cobra.Command {
	var f rulesetFlags
	cmd := &cobra.Command{
		Use:   "iptables FILE...",
		Short: "Turn the output of iptables-save, ip6tables-save and ipset save into a policy",
		Long:  importIPTablesLong,
		Example: "  iptables-save > v4; ip6tables-save > v6; ipset save > sets\n  levee import " +
			"iptables v4 v6 sets --dev eth0 > edge.levee",
		Args: wantSome("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.importRuleset(cmd, args, &f, importer.IPTables)
		},
	}
	f.add(cmd)
	return cmd
}

func newImportNFT(e *env) *cobra.Command {
	var f rulesetFlags
	cmd := &cobra.Command{
		Use:   "nft FILE",
		Short: "Turn a ruleset of nftables (nft -j list ruleset) into a policy",
		Long:  importNFTLong,
		Example: "  nft -j list ruleset > rules.json\n  levee import nft rules.json --dev eth0 > " +
			"edge.levee",
		Args: wantArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.importRuleset(cmd, args, &f,
				func(in []importer.Source, w io.Writer, o importer.Rulesets) (importer.Imported,
					error) {
					return importer.NFT(in[0], w, o)
				})
		},
	}
	f.add(cmd)
	return cmd
}

type rulesetImporter func([]importer.Source, io.Writer, importer.Rulesets) (importer.Imported,
	error)

func (e *env) importRuleset(cmd *cobra.Command, files []string, f *rulesetFlags,
	run rulesetImporter) error {
	if strings.ContainsAny(f.Device, "\" \t\r\n#{}(),") || len(f.Device) > 15 {
		return usagef(cmd, "--dev: %q is not the name of an interface", f.Device)
	}
	var in []importer.Source
	stdin := false
	for _, path := range files {
		name := syntax.Quoted(filepath.Base(path))
		if path == stdinName {
			if stdin {
				return usagef(cmd, "standard input can be read once")
			}
			stdin, name = true, stdinTitle
		}
		r, err := e.open(path)
		if err != nil {
			return err
		}
		defer r.Close()
		in = append(in, importer.Source{Name: name, R: r})
	}
	out := e.stdout.buffered()
	rep, err := run(in, out, f.Rulesets)
	var bad *importer.Errors
	if errors.As(err, &bad) {
		fmt.Fprintln(e.stderr, bad.Error())
		return errNo
	}
	if err != nil {
		return fmt.Errorf("import %s: %w", strings.Join(files, ", "), err)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return e.printRemarks(rep, f.json)
}

// printRemarks says on standard error what was not carried over.
func (e *env) printRemarks(rep importer.Imported, asJSON bool) error {
	w := e.stderr.buffered()
	defer w.Flush()
	if asJSON {
		return importer.WriteRemarks(w, rep)
	}
	counts := map[importer.Kind]int{}
	for _, r := range rep.Remarks {
		counts[r.Kind]++
		fmt.Fprintln(w, r)
	}
	if rep.More > 0 {
		fmt.Fprintf(w, "and %d more lines like these\n", rep.More)
	}
	fmt.Fprintf(w, "rules: %d; sets: %d; remarks: %d left out, %d changed, %d to note\n", rep.Rules,
		rep.Sets,
		counts[importer.LeftOut], counts[importer.Changed], counts[importer.Noticed])
	return nil
}
