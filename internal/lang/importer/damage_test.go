package importer_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/iptables"
	"levee/internal/lang/importer/nft"
	"levee/internal/lang/importer/pf"
)

const damaged = "*filter\n:INPUT DROP [5:600]\n-A INPUT ! -s 192.0.2.0/24 -p tcp -m tcp ! " +
	"--dport 22 -m comment --comment \"a \\\"b\\\"\" -j DROP\n-A INPUT -p udp -m udp --dport 53 " +
	"-j ACCEPT\nCOMMIT\n"

// TestDamagedFilesAreTheSame: what editors, mail and options of the tools do to a file changes
// nothing of what it means.
func TestDamagedFilesAreTheSame(t *testing.T) {
	want, _ := fromIPTables(t, importer.Rulesets{}, damaged)
	for name, in := range map[string]string{
		"CRLF":         strings.ReplaceAll(damaged, "\n", "\r\n"),
		"a mark":       "\ufeff" + damaged,
		"tabs":         strings.ReplaceAll(damaged, " -", "\t -"),
		"blanks":       strings.ReplaceAll(damaged, "\n", "  \n"),
		"no last line": strings.TrimSuffix(damaged, "\n"),
		"empty lines":  strings.ReplaceAll(damaged, "\n", "\n\n# a comment\n"),
		"counters":     strings.ReplaceAll(damaged, "-A INPUT", "[12:34] -A INPUT"),
		"-c":           strings.ReplaceAll(damaged, "-A INPUT", "-A INPUT -c 12 34"),
		"! behind": strings.NewReplacer("! -s", "-s !", "! --dport", "--dport !").Replace(
			damaged),
		"other quotes": strings.ReplaceAll(damaged, `"a \"b\""`, `'a "b"'`),
	} {
		if got, _ := fromIPTables(t, importer.Rulesets{}, in); rulesOf(got) != rulesOf(want) {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}

// TestNoRulesSaySo: of a shell script each line was an error, at most one with what to do; a file
// in UTF-16 and one for nft -f had no word of that; a byte 0 was a part of a word.
func TestNoRulesSaySo(t *testing.T) {
	var wide strings.Builder
	for _, u := range utf16.Encode([]rune("\ufeff" + damaged)) {
		wide.Write([]byte{byte(u), byte(u >> 8)})
	}
	read := map[string]func(in string) error{
		"iptables": func(in string) error {
			_, err := iptables.Import([]importer.Source{{Name: "a", R: strings.NewReader(in)}},
				io.Discard, importer.Rulesets{})
			return err
		},
		"nft": func(in string) error {
			_, err := nft.Import(importer.Source{Name: "a", R: strings.NewReader(in)}, io.Discard,
				importer.Rulesets{})
			return err
		},
		"pf": func(in string) error {
			_, err := pf.Import(importer.Source{Name: "a", R: strings.NewReader(in)}, io.Discard,
				importer.Rulesets{})
			return err
		},
	}
	const script = "IPT=/sbin/iptables\n$IPT -P INPUT DROP\nfor p in 22 80; do\n\t$IPT -A INPUT " +
		"-p tcp --dport $p -j ACCEPT\ndone\n"
	for _, tt := range []struct {
		as, in string
		want   []string
	}{
		{"iptables", "#!/bin/bash\n" + script, []string{"a:1: this is a shell script", "unshare"}},
		{"iptables", "#!/usr/bin/env bash\n" + script, []string{"a:1: this is a shell script"}},
		{"iptables", script, []string{`a:2: "$IPT -P INPUT DROP"`, "unshare", "a:3:"}},
		{"iptables", wide.String(), []string{"a:1: this is UTF-16", "iconv"}},
		{"nft", wide.String(), []string{"a:1: this is UTF-16"}},
		{"pf", wide.String(), []string{"a:1: this is UTF-16"}},
		{"iptables", strings.Replace(damaged, "ACCEPT", "ACC\x00EPT", 1),
			[]string{"a:4: has a byte 0"}},
		{"pf", "block all\npass on em\x000\n", []string{"a:2: has a byte 0"}},
		{"iptables", strings.Replace(damaged, "-p udp", "-p udp \\\n", 1), []string{"a:4:",
			"ends in a backslash"}},
		{"nft", "# mine\ntable inet f {\n}\n",
			[]string{"a:1: this is a file for nft -f", "unshare"}},
		{"nft", "#!/usr/sbin/nft -f\nflush ruleset\n", []string{"a file for nft -f"}},
		{"nft", damaged, []string{"a:1: this is of iptables"}},
		{"nft", "no rules\n", []string{"a:1: this is not JSON"}},
		{"iptables", "# by iptables-save\n*filter\n:INPUT DROP\n-A INPUT -p icmpv6 -j ACCEPT\n" +
			"COMMIT\n", []string{"a:4:", "of the other family", "comment at its top"}},
	} {
		err := read[tt.as](tt.in)
		var bad *importer.Errors
		if !errors.As(err, &bad) || slices.ContainsFunc(tt.want, func(s string) bool {
			return !strings.Contains(err.Error(), s)
		}) {
			t.Errorf("%s: %.60q: %v", tt.as, tt.in, err)
			continue
		}
		if strings.HasPrefix(tt.want[0], "a:1: this is") && len(bad.Lines) != 1 {
			t.Errorf("%s: %.60q: %d errors", tt.as, tt.in, len(bad.Lines))
		}
	}
}
