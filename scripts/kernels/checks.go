package main

// check is a script for the guest's shell, run with -eu in a tree of the repository's files, with
// levee in the path and the functions of prelude.sh. The tests of a package are built for the guest
// if the script has `tests PACKAGE`.
type check struct {
	name   string
	from   version // the first kernel that it is for; zero is the oldest supported
	before version // the first kernel that it is not for; zero is none
	script string
}

// supported is the oldest kernel that has to pass.
var supported = version{6, 1}

var checks = []check{
	{name: "examples: their tests through both engines",
		script: `levee test --engine both examples/*.levee`},
	{name: "examples: generated packets through both engines",
		script: `tests internal/filter/difftest ExamplesAgree`},
	{name: "the policies of the language load", script: `
		# An empty capture: the header of a pcap file.
		printf '\324\303\262\241\002\000\004\000\000\000\000\000\000\000\000\000\377\377\000\000\001\000\000\000' >/tmp/empty.pcap
		for policy in test/policy/valid/*.levee; do levee eval "$policy" --pcap /tmp/empty.pcap --engine both --summary; done`},
	{name: "examples attached natively", script: `attached xdp-native`},
	{name: "examples attached generically", script: `attached xdp-generic`},
	{name: "examples attached at TCX", from: version{6, 6}, script: `attached tcx`},
	{name: "examples attached by a filter of tc", script: `attached clsact`},
	{name: "TCX is refused where there is none", before: version{6, 6}, script: `
		pair
		says 3 'this kernel has no TCX (Linux 6.6 or newer); --mode clsact runs it at the same place' ip netns exec ns levee up examples/web.levee --dev v0 --mode tcx`},
	{name: "older kernels are refused in one sentence", from: version{5, 10}, before: supported,
		script: `
		pair
		says 3 'and levee needs 6.1 or newer' ip netns exec ns levee up examples/web.levee --dev v0
		says 3 'and levee needs 6.1 or newer' levee test --engine bpf examples/web.levee
		levee doctor --sample 0s >/tmp/doctor || [ $? = 1 ]
		grep -F 'levee needs 6.1 or newer' /tmp/doctor`},
	{name: "devices of every kind", from: version{6, 6}, script: `
		# What the kernel of a check does not have is skipped in the tests; these it has.
		for module in bonding 8021q ipvlan geneve ip_gre ip6_gre ipip sit ip6_tunnel wireguard ppp_generic pppoe tun; do modprobe $module || echo "no $module"; done
		sometests internal/dataplane 'TestEveryKindOfDevice|TestDevicesThatBegin'`},
	{name: "stories: up, replace, counters", script: `stories '^(up|moved|names|lockout)$'`},
	{name: "stories: confirm and rollback", script: `stories '^confirm$'`},
	{name: "stories: sets and leases", script: `stories '^(set|set-endpoints)$'`},
	{name: "stories: eval, test, explain, cost, doctor",
		script: `stories '^(eval|test|explain|cost|doctor|import)$'`},
	{name: "stories: generator and lab", script: `stories '^(gen|lab)$'`},
	{name: "generated policies through both engines", script: `
		tests internal/filter/difftest Big -seed 1 -policies 60 -packets 30000
		tests internal/filter/difftest Big -seed 1 -policies 30 -packets 15000 -records`},
	{name: "sets of filters through both engines", script: `
		tests internal/filter/difftest 'GeneratedRules|ClassBench/filters'
		[ -z "$(ls data)" ] || tests internal/filter/difftest 'ClassBench/^[a-z]' -classbench '/levee/data/classbench/*'`},
	{name: "every kind of rule loads",
		script: `tests internal/filter/codegen 'EveryKindOfRuleLoads|MixturesOfKinds' -wall-rules 400 -wall-quick`},
	{name: "rules that look at the packet",
		script: `tests internal/filter/codegen 'RulesLookAtThePacket'`},
	{name: "limits of the kernel are kept",
		script: `tests internal/filter/codegen 'Limits|WhatCannotLoad|EveryTarget'`},
	{name: "look-ups in tables of rules",
		script: `tests internal/filter/ruletree 'TableAndProgram|SmallWorlds|PriorityHolds'`},
	{name: "look-ups of endpoints", script: `tests internal/filter/endpoint 'Program'`},
	{name: "features of the kernel", script: `tests internal/kernel .`},
}
