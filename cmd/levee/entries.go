package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/judge"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

func entryFlag(cmd *cobra.Command, v *[]string) {
	cmd.Flags().StringArrayVar(v, "entry", nil,
		"SET=ENTRY, an address, prefix, service or both: put an entry into a dynamic set first; "+
			"may be repeated")
}

// policyWith reads a policy, and the entries that --entry puts into its dynamic sets.
func (e *env) policyWith(cmd *cobra.Command, file string, link packet.Link,
	values []string) (*policy.Policy, []judge.Entry, error) {
	pr, err := e.Parse(file)
	if err != nil {
		return nil, nil, err
	}
	if pr.Policy == nil {
		e.PrintDiagnostics(pr.Diags)
		return nil, nil, cli.ErrNo
	}
	if err := e.forLink(pr, link, withoutEthernet); err != nil {
		return nil, nil, err
	}
	entries, err := parseEntries(cmd, pr.Policy, values)
	return pr.Policy, entries, err
}

// parseEntries checks the values of --entry, each SET=ENTRY, against the policy.
func parseEntries(cmd *cobra.Command, p *policy.Policy, values []string) ([]judge.Entry, error) {
	var all []judge.Entry
	for _, v := range values {
		name, addr, ok := strings.Cut(v, "=")
		if !ok {
			return nil, cli.Usagef(cmd, "--entry %q: write SET=ADDRESS", v)
		}
		set := dynamicSet(p, name)
		if set == nil {
			return nil, cli.Usagef(cmd, "--entry %q: the policy has no dynamic set %q", v, name)
		}
		elements, err := literal.ParseElementsOf(set.Type, addr)
		if err == nil {
			err = elements[0].Check(set.Type)
		}
		if err != nil {
			return nil, cli.Usagef(cmd, "--entry %q: %v", v, err)
		}
		for _, el := range elements {
			all = append(all, judge.Entry{Set: set, Element: el})
		}
	}
	return all, nil
}

// emptySets lists the dynamic sets that have none of some entries.
func emptySets(p *policy.Policy, entries []judge.Entry) (names []string) {
	for _, s := range p.Sets {
		if s.Kind == policy.Dynamic && !slices.ContainsFunc(entries, func(e judge.Entry) bool {
			return e.Set == s
		}) {
			names = append(names, s.Name)
		}
	}
	return names
}

func dynamicSet(p *policy.Policy, name string) *policy.Set {
	for _, s := range p.Sets {
		if s.Name == name && s.Kind == policy.Dynamic {
			return s
		}
	}
	return nil
}
