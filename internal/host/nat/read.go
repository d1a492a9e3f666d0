package nat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// symbols names what the kernel and its modules have, a line each.
const symbols = "/proc/kallsyms"

// hasTables tells whether the kernel has nf_tables now: to ask one that has not would load it.
func hasTables() bool {
	b, err := os.ReadFile(symbols)
	return err != nil || bytes.Contains(b, []byte(" nft_do_chain"))
}

// legacyTables lists the tables of iptables that use no nftables, each a line. Only root reads it.
var legacyTables = []string{"/proc/thread-self/net/ip_tables_names",
	"/proc/thread-self/net/ip6_tables_names"}

// patience is the time that a program has to print its rules.
const patience = 20 * time.Second

// Read reads the rules of this network namespace, for packets that come by one of some interfaces.
func Read(ctx context.Context, devs []string) *Rules {
	out := &Rules{}
	ctx, end := context.WithTimeout(ctx, patience)
	defer end()
	if hasTables() {
		out.tables(ctx, devs)
	}
	for i, program := range []string{"iptables-legacy-save", "ip6tables-legacy-save"} {
		if b, _ := os.ReadFile(legacyTables[i]); len(b) > 0 {
			out.saved(ctx, devs, program)
		}
	}
	slices.Sort(out.Unread)
	out.Unread = slices.Compact(out.Unread)
	return out
}

// tables reads the rules of nf_tables: those of nft, and those that iptables has there.
func (r *Rules) tables(ctx context.Context, devs []string) {
	text, err := printed(ctx, "nft", "-n", "-j", "list", "ruleset")
	opaque := errors.Is(err, exec.ErrNotFound) // then iptables alone may have made rules
	if !opaque {
		var rules *ruleset
		if err == nil {
			rules, opaque, err = parseNft(text)
		}
		if err != nil {
			r.Unread = append(r.Unread, err.Error())
			return
		}
		r.add(rules, devs)
	}
	if opaque {
		for _, program := range []string{"iptables-nft-save", "ip6tables-nft-save"} {
			r.saved(ctx, devs, program)
		}
	}
}

// saved adds the rules that a program prints. One of the plain name stands in for it, where there
// is but one kind of iptables.
func (r *Rules) saved(ctx context.Context, devs []string, program string) {
	text, err := printed(ctx, program)
	if errors.Is(err, exec.ErrNotFound) {
		family, _, _ := strings.Cut(program, "-")
		text, err = printed(ctx, family+"-save")
	}
	if errors.Is(err, exec.ErrNotFound) {
		r.Unread = append(r.Unread, needs(program))
		return
	}
	if err != nil {
		r.Unread = append(r.Unread, err.Error())
		return
	}
	r.add(parseSave(string(text)), devs)
}

// needs says of rules that nobody can read what is to be installed.
func needs(program string) string {
	if strings.Contains(program, "-legacy-") {
		return "the kernel's rules of iptables cannot be read without iptables-save " +
			"(package iptables)"
	}
	return "the kernel's rules of NAT cannot be read without nft or iptables-save " +
		"(package nftables)"
}

func (r *Rules) add(rules *ruleset, devs []string) {
	forwards, all := rules.forwards(devs)
	if !all {
		r.Unread = append(r.Unread, fmt.Sprintf("there are too many rules of NAT to follow all; "+
			"the first %d forwards are here", len(forwards)))
	}
	for _, f := range forwards {
		same := func(g Forward) bool {
			g.Rule = f.Rule
			return g == f
		}
		if !slices.ContainsFunc(r.Forwards, same) {
			r.Forwards = append(r.Forwards, f)
		}
	}
	r.Filters = r.Filters || rules.filters()
}

// printed returns what a program prints. The error matches exec.ErrNotFound where it is not
// installed.
func printed(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		if first != "" {
			err = fmt.Errorf("%w: %s", err, first)
		}
		return nil, fmt.Errorf("%s cannot be asked for its rules: %w", name, err)
	}
	return out, nil
}
