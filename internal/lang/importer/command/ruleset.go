package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/lang/diag"
	"levee/internal/lang/importer"
	"levee/internal/lang/importer/iptables"
	"levee/internal/lang/importer/nft"
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
)

const ipTablesLong = `Print a policy that judges packets as rules of iptables do. The
files hold what iptables-save, ip6tables-save, iptables -S and ipset save print, in any mixture;
- is standard input. The chain INPUT is imported, or those that --chain names, one behind the
other: --chain raw/PREROUTING --chain INPUT.

What a policy cannot say is left out, and stands as a comment at its place. What it says in other
words has a comment beside it. Both are said on standard error too, once each kind, with lines,
reasons and what to do instead. States of connections become the term established, rates of packets
limits where that means the same. Other limits are left out: such rules pass more than the source
does. --strict refuses to print a policy that does.`

const nftLong = `Print a policy that judges packets as a ruleset of nftables does. FILE
holds what "nft -j list ruleset" prints; - is standard input. All filter chains at the hook
input are imported, in the order of their priorities, or those that --chain names, as
TABLE/CHAIN or CHAIN.

What a policy cannot say is left out, and stands as a comment at its place. What it says in other
words has a comment beside it. Both are said on standard error too, once each kind, with handles,
reasons and what to do instead. States of connections become the term established, rates of packets
limits where that means the same. Other limits are left out: such rules pass more than the source
does. --strict refuses to print a policy that does.`

// rulesetFlags holds the flags that the imports of netfilter share; that of pf has no chains.
type rulesetFlags struct {
	importer.Rulesets
	json bool
}

func (f *rulesetFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.Chains, "chain", nil,
		"the chain to import, as CHAIN or TABLE/CHAIN; may be given again")
	f.addCommon(cmd)
}

// addCommon adds what all rulesets have.
func (f *rulesetFlags) addCommon(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Device, "dev", "",
		"the interface that the policy is for: rules about others are left out")
	cmd.Flags().BoolVar(&f.Stateless, "stateless", false,
		"tell states of connections by headers, instead of keeping connections")
	cmd.Flags().BoolVar(&f.Strict, "strict", false,
		"print no policy, and fail, if it would pass packets that the source drops")
	cmd.Flags().BoolVar(&f.json, "json", false,
		"print what is said on standard error as JSON, one object a line")
}

func newIPTables(e *env) *cobra.Command {
	var f rulesetFlags
	cmd := &cobra.Command{
		Use:   "iptables FILE...",
		Short: "Turn the output of iptables-save, ip6tables-save and ipset save into a policy",
		Long:  ipTablesLong,
		Example: "  iptables-save > v4; ip6tables-save > v6; ipset save > sets\n  levee import " +
			"iptables v4 v6 sets --dev eth0 > edge.levee",
		Args: cli.WantSome("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.importRuleset(cmd, args, &f, iptables.Import)
		},
	}
	f.add(cmd)
	return cmd
}

func newNFT(e *env) *cobra.Command {
	var f rulesetFlags
	cmd := &cobra.Command{
		Use:   "nft FILE",
		Short: "Turn a ruleset of nftables (nft -j list ruleset) into a policy",
		Long:  nftLong,
		Example: "  nft -j list ruleset > rules.json\n  levee import nft rules.json --dev eth0 > " +
			"edge.levee",
		Args: cli.WantArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.importRuleset(cmd, args, &f,
				func(in []importer.Source, w io.Writer, o importer.Rulesets) (importer.Imported,
					error) {
					return nft.Import(in[0], w, o)
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
		return cli.Usagef(cmd, "--dev: %q is not the name of an interface", f.Device)
	}
	var in []importer.Source
	stdin := false
	for _, path := range files {
		name := diag.Quoted(filepath.Base(path))
		if path == cli.StdinName {
			if stdin {
				return cli.Usagef(cmd, "standard input can be read once")
			}
			stdin, name = true, cli.StdinTitle
		}
		r, err := e.Open(path)
		if err != nil {
			return err
		}
		defer r.Close()
		in = append(in, importer.Source{Name: name, R: r})
	}
	var text bytes.Buffer
	rep, err := run(in, &text, f.Rulesets)
	var bad *importer.Errors
	switch {
	case errors.As(err, &bad):
		fmt.Fprintln(e.Stderr, bad.Error())
		return cli.ErrNo
	case errors.Is(err, importer.ErrWidens):
		return e.tooWide(rep, f.json)
	case err != nil:
		return fmt.Errorf("import %s: %w", strings.Join(files, ", "), err)
	}
	cut := e.wouldCut(text.Bytes(), f.Device)
	if cut != nil && f.Strict {
		return fmt.Errorf("refused by --strict: %w", cut)
	}
	out := e.Stdout.Buffered()
	if _, err := text.WriteTo(out); err != nil {
		return fmt.Errorf("writing the policy: %w", err)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := e.printRemarks(rep, f.json); err != nil {
		return err
	}
	if cut != nil {
		e.Sayf("LOCK-OUT: %v; `levee up` will refuse the policy", cut)
	}
	return nil
}

// wouldCut looks for a session of this machine that an imported policy would end, or that could
// not be begun again. On another machine than the rules are of there is none to find.
func (e *env) wouldCut(text []byte, dev string) error {
	p, diags := resolve.Parse("imported", text, setfile.None)
	if diags.HasErrors() {
		return diags.Err()
	}
	return e.gate().Imported(p, dev)
}

// tooWide says what --strict refuses.
func (e *env) tooWide(rep importer.Imported, asJSON bool) error {
	rep.Remarks = slices.DeleteFunc(rep.Remarks, func(r importer.Remark) bool { return !r.Widens })
	if err := e.printRemarks(rep, asJSON); err != nil {
		return err
	}
	return errors.New("refused by --strict: " + importer.ErrWidens.Error() +
		"; without --strict it is printed, with comments that say where")
}

// printRemarks says on standard error what was not carried over, once each kind.
func (e *env) printRemarks(rep importer.Imported, asJSON bool) error {
	w := e.Stderr.Buffered()
	defer w.Flush()
	if asJSON {
		return importer.WriteRemarks(w, rep)
	}
	for _, g := range rep.Groups() {
		fmt.Fprintln(w, g)
	}
	if rep.More > 0 {
		fmt.Fprintf(w, "and %d more lines like these\n", rep.More)
	}
	fmt.Fprintf(w, "rules: %d; sets: %d; %s\n", rep.Rules, rep.Sets, rep.Summary())
	return nil
}
