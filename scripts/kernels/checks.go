package main

// check is a script for the guest's shell, run with -eu in a tree of the repository's files. bin/ has levee and the tests
// of packages, which are named after their directory: bin/internal/codegen.test is run by `tests internal/codegen`.
type check struct {
	name   string
	from   version // the first kernel that has to pass; zero is the oldest supported
	before version // the first kernel that need not; zero is none
	script string
}

// supported is the oldest kernel that has to pass.
var supported = version{6, 1}

var checks = []check{
	{name: "examples: their tests through both engines", script: `levee test --engine both examples/*.levee`},
	{name: "examples: generated packets through both engines", script: `tests internal/difftest ExamplesAgree`},
	{name: "the policies of the language load", script: `
		# An empty capture: the header of a pcap file.
		printf '\324\303\262\241\002\000\004\000\000\000\000\000\000\000\000\000\377\377\000\000\001\000\000\000' >/tmp/empty.pcap
		for policy in test/policy/valid/*.levee; do levee eval "$policy" --pcap /tmp/empty.pcap --engine both --summary; done`},
	{name: "examples attached natively", script: `attached xdp-native`},
	{name: "examples attached generically", script: `attached xdp-generic`},
	{name: "examples attached at TCX", from: version{6, 6}, script: `attached tcx`},
	{name: "TCX is refused where there is none", before: version{6, 6}, script: `
		pair
		says 3 'TCX' ip netns exec ns levee up examples/web.levee --dev v0 --mode tcx`},
	{name: "stories: up, replace, counters", script: `stories '^(up|moved|names|lockout)$'`},
	{name: "stories: confirm and rollback", script: `stories '^confirm$'`},
	{name: "stories: sets and leases", script: `stories '^(set|set-endpoints)$'`},
	{name: "stories: eval, test, explain, cost, doctor", script: `stories '^(eval|test|explain|cost|doctor|import)$'`},
	{name: "stories: generator and lab", script: `stories '^(gen|lab)$'`},
	{name: "generated policies through both engines", script: `tests internal/difftest 'CompiledPolicies|RecordsAgree'`},
	{name: "sets of filters through both engines", script: `tests internal/difftest 'ClassBench|GeneratedRules'`},
	{name: "every kind of rule loads", script: `tests internal/codegen 'EveryKindOfRuleLoads|MixturesOfKinds' -wall-rules 400 -wall-quick`},
	{name: "limits of the kernel are kept", script: `tests internal/codegen 'Limits|WhatCannotLoad|EveryTarget'`},
	{name: "look-ups in tables of rules", script: `tests internal/classify 'TableAndProgram|SmallWorlds|PriorityHolds'`},
	{name: "look-ups of endpoints", script: `tests internal/endpoint 'Program'`},
	{name: "features of the kernel", script: `tests internal/kernel .`},
}
