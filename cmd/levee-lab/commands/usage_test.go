package commands

import (
	"strings"
	"testing"

	"levee/internal/cli"
	"levee/internal/cli/clitest"
)

// TestWrongValuesAreWrongUsage gives flags values that they do not take: the exit status is 2,
// before anything is measured, with or without privileges, and the text is for people.
func TestWrongValuesAreWrongUsage(t *testing.T) {
	run := func(e *cli.Env) int { return run(&env{e}) }
	benches := "ladder sets rules mix latency profile route hash service gen receive"
	numbers := []string{"x", "-1", "1.5", "99999999999999999999", ""}
	for _, c := range []struct {
		benches, flag string
		values        []string
	}{
		{benches, "seed", numbers},
		{benches, "json", []string{"3"}},
		{benches, "against", []string{"mine.json"}},
		{"ladder sets rules mix latency profile route hash gen receive", "quick",
			[]string{"maybe"}},
		{"ladder sets rules mix latency profile route hash gen receive", "rounds",
			append(numbers, "0", "1000000")},
		{"ladder sets rules mix latency profile route hash", "rounds", []string{"1", "5"}},
		{"ladder sets rules mix latency profile gen receive", "window",
			[]string{"0", "x", "1", "-1s", "1ns", "100h", ""}},
		{"sets rules route", "sizes", append(numbers, "0", "1,2x", "99999999")},
		{"sets rules route hash gen", "only", []string{"nosuch"}},
		{"ladder mix latency profile", "rung", []string{"nosuch"}},
		{"ladder sets route", "family", []string{"5"}},
		{"ladder", "traffic", []string{"nosuch"}},
		{"sets", "entries", []string{"nosuch"}},
		{"rules", "shape", []string{"nosuch"}},
		{"route", "table", []string{"nosuch"}},
		{"hash", "bytes", append(numbers, "0", "5")},
		{"mix", "share", []string{"x", "3", "101", "-5", "NaN", "inf"}},
		{"mix", "rate", []string{"x", "0", "5", "1e30", "NaN"}},
		{"latency", "load", []string{"x", "-5", "5", "900M", "NaN"}},
		{"latency", "probes", []string{"x", "0", "1e9", "NaN"}},
		{"profile", "frequency", append(numbers, "0", "49", "1000000")},
		{"service", "flood", []string{"nosuch"}},
		{"service", "defence", []string{"nosuch"}},
		{"service", "profile", []string{"nosuch", "quic,chess"}},
		{"service", "before", []string{"x", "0", "1h"}},
		{"service", "rate", []string{"x", "0", "5", "1e30"}},
		{"service", "queue", []string{"tbf"}},
		{"service", "requests", []string{"x", "0", "1e9", "NaN"}},
		{"gen", "rates", []string{"x", "0", "1", "1e30"}},
	} {
		for name := range strings.FieldsSeq(c.benches) {
			for _, v := range c.values {
				clitest.WantUsage(t, run, "bench", name, "--"+c.flag+"="+v)
			}
		}
	}
	for _, args := range []string{
		"bench rules --skip-lab --only-lab", "bench route --data x --table 48s",
		"bench ladder extra", "bench compare - -", "bench path",
		"bench path 192.0.2.1 --sizes 9001", "bench path 192.0.2.1 --rate 1001",
		"bench receive --sizes 59", "bench receive --cores 3", "bench receive --rate x",
		"bench receive --only netmap",
		"bench service --rrul --flows 0", "bench service --rrul --flows 65",
		"bench service --rrul --probes 0", "bench service --rrul --probes 401",
		"bench service --rrul --queue red", "bench service --rrul --defence levee",
		"bench service --rrul --bandwidth 50M", "bench service --rrul --queue none --bandwidth 50M",
		"bench service --rrul --queue tbf --bandwidth x",
		"bench service --rrul --queue tbf --bandwidth 10",
		"bench service --rrul --flood syn", "bench service --rrul --before 1h",
		"bench service --peer h --dev d --peer-dev d --own-network",
		"bench service --rrul --peer h --dev d --peer-dev d", "bench service --rrul --dev d",
		"bench service --rrul --peer h --dev d --peer-dev d --own-network --during 1m --after 1m",
		"bench gen --burst 3", "bench gen --burst 128", "bench gen --copies 0",
		"bench gen --copies 4 --only trafgen",
		"bench profile --rate 5", "bench profile --rate 900M",
		"bench profile --marks", "bench profile --cpu 0", "bench profile --dev lo --rung levee",
		"bench profile --dev lo --rate 1M", "bench profile --dev lo --cpu x",
		"bench profile --dev lo --cpu -1", "bench profile --dev lo --marks --rounds 3",
		"bench profile --dev lo --frequency 9", "bench profile --dev lo --before x",
		"bench latency --rules 0", "bench latency --rules 10001",
		"bench compare a b c --titles x,y",
		"bench wrap --mtu 1279", "bench wrap --mtu 65537", "bench wrap --rules 0",
		"bench wrap --way tc", "bench wrap --window 11s",
		"bench path 192.0.2.1 --timeout 1h", "bench path 192.0.2.1 --family 5",
		"calc 10G 64 --ghz x", "calc 10G 64 --ghz inf", "calc 10G 64 --cores 0", "calc NaN 64",
		"gen --dev d --to 192.0.2.1 --ttl 300", "gen --dev d --to 192.0.2.1 --len x",
		"gen --dev d --to 192.0.2.1 --vlan 5000",
		"gen --dev d --to 192.0.2.1 --cpu x", "gen --dev d --to 192.0.2.1 --count -1",
		"gen --dev d --to 192.0.2.1 --port 70000",
		"gen --dev d --to nowhere", "gen --dev d --to 192.0.2.1 --from x",
	} {
		clitest.WantUsage(t, run, strings.Fields(args)...)
	}
}

// TestWrongUsagePrintsNoJSON: whoever reads the output finds none with status 2.
func TestWrongUsagePrintsNoJSON(t *testing.T) {
	e, _, _ := testEnv()
	lines := [][]string{{"bench", "nonsense"}}
	for _, cmd := range clitest.Leaves(Root(e.Env)) {
		if cmd.Flags().Lookup("json") != nil {
			lines = append(lines, append(strings.Fields(cmd.CommandPath())[1:], "--no-such-option"))
		}
	}
	if len(lines) < 15 {
		t.Errorf("only %d lines: do commands still print JSON?", len(lines))
	}
	for _, line := range lines {
		e, out, errs := testEnv(append(line, "--json")...)
		if status := run(e); status != cli.ExitUsage || out.Len() > 0 || errs.Len() == 0 {
			t.Errorf("%s: status %d, %q, %q", line, status, out, errs)
		}
	}
}
