package main

// check is a script for the guest's shell, run with -eu in a tree of the repository's files, with
// levee in the path and the functions of prelude.sh. The tests of a package are built for the guest
// if the script has `tests PACKAGE`; `handed NAME PACKAGE` also has the host compute before what
// these tests can be handed.
type check struct {
	name   string
	from   version // the first kernel that it is for; zero is the oldest supported
	before version // the first kernel that it is not for; zero is none
	long   bool    // only with -long
	clock  clock   // what the guest's goes by; none is by instructions
	script string
}

// supported is the oldest kernel that has to pass.
var supported = version{6, 1}

// checks are all of them. What one leaves to another (-test.skip) is run once.
var checks = []check{
	{name: "examples: their tests through both engines", clock: host,
		script: `levee test --engine both examples/*.levee`},
	{name: "profiles: their tests through both engines, in policies", clock: host,
		script: `tests internal/profile 'ProfilesKeep|AProfileInAPolicy'`},
	{name: "examples: generated packets through both engines", clock: host,
		script: `tests internal/filter/difftest ExamplesAgree`},
	{name: "the policies of the language load", clock: host, script: `
		# An empty capture: the header of a pcap file.
		printf '\324\303\262\241\002\000\004\000\000\000\000\000\000\000\000\000\377\377\000\000\001\000\000\000' >/tmp/empty.pcap
		for policy in test/policy/valid/*.levee; do echo "$policy"; levee eval "$policy" --pcap /tmp/empty.pcap --engine both --summary --verbose; done`},
	{name: "examples attached natively", clock: host, script: `attached xdp-native`},
	{name: "examples attached generically", clock: host, script: `attached xdp-generic`},
	{name: "examples attached at TCX", clock: host, from: version{6, 6}, script: `attached tcx`},
	{name: "examples attached by a filter of tc", clock: host, script: `attached clsact`},
	{name: "TCX is refused where there is none", clock: host, before: version{6, 6}, script: `
		pair
		says 3 'this kernel has no TCX (Linux 6.6 or newer); --mode clsact runs it at the same place' ip netns exec ns levee up examples/web.levee --dev v0 --mode tcx`},
	{name: "the way to tc ingress that the kernel has", clock: host, script: `
		want=tcx
		ip link add ifb9 type ifb
		levee doctor --sample 0s --all --json >/tmp/doctor || [ $? = 1 ]
		case $(uname -r) in 6.[1-5].*) want=clsact ;; esac
		jq -e --arg want $want '.findings[] | select(.name == "tc_ingress").value == $want' /tmp/doctor
		levee up examples/web.levee --dev ifb9 --force
		levee status --dev ifb9 --json | jq -e --arg want $want '.interfaces[0].hook == $want'
		levee down --dev ifb9`},
	{name: "filters of tc: order, others' filters, what is taken away", script: `tests internal/dataplane 'Filter|Qdisc|AutoTakes' -test.skip AtEgress`},
	{name: "what `on error` asks for, where the decoder is refused",
		script: `tests internal/dataplane OnErrorIsInForceWhereTheDecoderIsRefused`},
	{name: "transport streams are followed as the oracle does", clock: host, script: `sometests internal/monitor/mpegts/live 'EachFault|Spoilt|PIDsOfAllPlaces|APlaceHas'`},
	{name: "policies replaced under a flood", script: `tests internal/dataplane ReplaceUnderFlood -replaces 8`},
	{name: "older kernels are refused in one sentence", clock: host, from: version{5, 10},
		before: supported,
		script: `
		pair
		says 3 'and levee needs 6.1 or newer' ip netns exec ns levee up examples/web.levee --dev v0
		says 3 'and levee needs 6.1 or newer' levee test --engine bpf examples/web.levee
		levee doctor --sample 0s >/tmp/doctor || [ $? = 1 ]
		grep -F 'levee needs 6.1 or newer' /tmp/doctor`},
	{name: "devices of every kind", from: version{6, 6}, script: `
		# What the kernel of a check does not have is skipped in the tests; these it has.
		devices
		sometests internal/dataplane 'TestEveryKindOfDevice|TestDevicesThatBegin'`},
	{name: "uplinks of every kind, and what VRFs deliver", script: `
		devices
		modprobe vrf; modprobe bridge
		tests internal/host/local .
		sometests internal/dataplane 'UplinksAtDifferentHooks|JudgedTwice'`},
	{name: "stories: up, replace, counters", script: `stories 'up|moved|names|lockout'`},
	{name: "stories: confirm and rollback", script: `stories confirm`},
	{name: "stories: sets and leases", script: `stories 'set|set-endpoints'`},
	{name: "stories: eval, test, explain, cost, doctor",
		script: `stories 'eval|test|explain|cost|doctor|import'`},
	{name: "stories: generator and lab", script: `stories 'gen|lab'`},
	{name: "generated policies through both engines", clock: host, script: `
		tests internal/filter/difftest Big -seed 1 -policies 10 -packets 3000
		tests internal/filter/difftest Big -seed 1 -policies 5 -packets 1500 -records`},
	{name: "sets of filters through both engines", clock: host, script: `
		handed sets internal/filter/difftest 'GeneratedRules|ClassBench/filters'
		[ -z "$(ls data)" ] || handed published internal/filter/difftest 'ClassBench/^[a-z]' -classbench '/levee/data/classbench/*'`},
	{name: "the largest policies", clock: host, script: `
		handed largest internal/filter/difftest GeneratedRules -generated 100000 -generated-packets 300
		[ -z "$(ls data)" ] || tests internal/filter/difftest View -view /levee/data/prefixes/full-view.txt.gz -view-step 500 -view-random 1000`},
	{name: "every kind of rule loads", clock: host,
		script: `tests internal/filter/codegen EveryKindOfRuleLoads -wall-rules 100 -wall-quick`},
	{name: "800 rules with a set of endpoints each", clock: host, script: `
		tests internal/filter/codegen EveryKindOfRuleLoads -wall-rules 800 -wall-quick \
			-wall-kinds 'a static set of endpoints each'`},
	{name: "rules that look at the packet", clock: host,
		script: `tests internal/filter/codegen 'RulesLookAtThePacket'`},
	{name: "as many terms on the payload as there may be", clock: host,
		script: `tests internal/filter/codegen 'AsManyTermsOnThePayload|ASearch|AsManySearches'`},
	{name: "limits", script: `tests internal/dataplane 'LimitIsExact|AFullLimit|LimitForgets|KeysAreTold'`},
	{name: "connections: oracle and program", clock: host, script: `tests internal/filter/difftest Connections`},
	{name: "connections of real hosts",
		script: `tests internal/dataplane '^TestConnections$|AreOlder|HandshakesBesideUp'`},
	{name: "programs at egress, by links and by filters", script: `
		tests internal/dataplane 'TestPolicyOfTwoLinks|ReplacesOfTwoLinks|AtEgress' -test.skip TestAShadow`},
	{name: "what leaves, and what answers it: oracle and program", clock: host,
		script: `tests internal/filter/difftest 'WhatLeaves|WhatAnswers'`},
	{name: "who sends what leaves", script: `
		for module in vxlan macvlan ipvlan smc; do modprobe $module || echo "no $module"; done
		tests internal/dataplane 'WhoSent|StartedAgain|AnswersOfAService|WhatIsForwarded|OfAnotherName|AUserAdded'
		tests internal/dataplane 'AnotherNamespace|EachWayToSend'
		sometests internal/dataplane SentBySocketsOfTheKernel`},
	// Before, BPF_PROG_RUN of a program for cgroups does not say where the packet ends; its real
	// packets have it ("at their cgroups").
	{name: "services: oracle and program", clock: host, from: version{6, 18},
		script: `tests internal/filter/difftest Services`},
	{name: "services: at their cgroups, at sockets", script: `
		mkdir -p /sys/fs/cgroup
		mount -t cgroup2 none /sys/fs/cgroup
		trap 'umount /sys/fs/cgroup' EXIT
		# What a death at any step leaves is files and links, on any kernel.
		tests internal/dataplane/service . -test.skip AtAnyStep
		tests internal/wrap 'SocketsThatAreHandedOn/Go|TheFirstVisitor|Multipath'
		stories wrap`},
	{name: "cookies: answers, proofs, real clients", script: `
		modprobe 8021q
		tests internal/dataplane 'Cookie(Answers|Proves|Above|Refuses|Clients|OverATag)|TransferDuring'
		tests internal/dataplane 'NamesOfQueries|BudgetsOfZones|ResolversAsk'`},
	{name: "fragments: oracle and program", clock: host,
		script: `tests internal/filter/difftest Fragments`},
	{name: "fragments of real datagrams", script: `tests internal/dataplane FragmentsOfReal`},
	{name: "what is diverted: oracle and program", clock: host,
		script: `tests internal/filter/difftest WhatIsDiverted`},
	{name: "streams: oracle and program, in segments", clock: host, script: `
		tests internal/filter/difftest 'AStream|AConnectionOfTheSame'
		tests internal/dataplane AStreamIsSearched`},
	{name: "greylists, and clients that prove themselves", script: `
		tests internal/dataplane 'WhoComesAgain|ClientOfA2SProves|ClientsSendTheNumber|AProfileInForce|RulesKnowWho'`},
	{name: "rings: readers that come, lose and go", clock: host,
		script: `tests internal/dataplane 'ARingIsRead|AReaderLoses|ReadersComeAndGo|TCHasNoRings'`},
	{name: "connections that reach a trap", script: `
		modprobe 8021q; modprobe bridge
		tests internal/dataplane 'Divert'`},
	{name: "captures in every mode, with filters", script: `
		tests internal/filter/capture .
		tests internal/dataplane Capture -test.skip BesideAShadow`},
	{name: "tunnels: bytes counted", clock: host, script: `tests internal/filter/difftest Tunnel`},
	{name: "tunnels: packets within packets", script: `tests internal/dataplane Tunnel`},
	{name: "a dispatcher of libxdp is joined and left", script: `
		tests internal/dataplane/dispatcher .
		tests internal/dataplane Join`},
	{name: "policies in a dispatcher of libxdp", script: `
		tests internal/dataplane '(TestTrial|TestCapture$|TestShadow$|TestReplaceUnder)/xdp-native' -joined -replaces 8`},
	{name: "xdp-loader, xdp-filter and levee on one interface", clock: host, script: `
		mkdir -p /sys/fs/bpf
		mount -t bpf bpf /sys/fs/bpf
		ip link add v0 type veth peer name v1
		trap 'ip link del v0; umount /sys/fs/bpf' EXIT
		calls() {
			xdp-loader status v0
			[ "$(xdp-loader status v0 | sed -n 's/^ => *[0-9]* *\([^ ]*\).*/\1/p' | xargs)" = "$*" ]
		}
		xdp-loader load --mode native v0 /usr/lib/*/bpf/xdp-dispatcher.o --prog-name xdp_pass
		levee up examples/web.levee --dev v0 --force >/tmp/up 2>&1
		cat /tmp/up
		calls levee xdp_pass
		case $(uname -r) in
		6.1.*)
			xdp-filter load v0
			calls levee xdpfilt_alw_all xdp_pass
			levee up examples/dns.levee --dev v0 --force
			xdp-filter unload v0 ;;
		*)
			grep 'tools of libxdp before 1.5.5' /tmp/up
			! xdp-filter load v0 >/tmp/filter 2>&1
			grep 'Failed to attach program levee' /tmp/filter ;;
		esac
		calls levee xdp_pass
		levee down --dev v0
		calls xdp_pass
		levee up examples/web.levee --dev v0 --force
		xdp-loader unload v0 --all
		levee status 2>&1 | grep 'was detached from v0 by something else than levee'
		[ -z "$(ls /sys/fs/bpf/xdp)" ]`},
	{name: "shadows: oracles and programs", clock: host,
		script: `tests internal/filter/difftest Shadow`},
	{name: "shadows in every mode", script: `
		# What a death at any step leaves is files and links, on any kernel: -long has it.
		tests internal/dataplane 'TestShadow($|On|Shares)|TestAShadow|CaptureBeside'`},
	{name: "decisions and logs watched",
		script: `tests internal/dataplane 'Decision|AFloodLeaves|WhoWatches|TestWatch|TestAWatch'`},
	{name: "large sets: followed, changed", clock: host,
		script: `tests internal/filter/prefix 'Bulk|AnEndedEntry'`},
	{name: "large sets are merged", script: `tests internal/dataplane LargeSetsAreMerged`},
	{name: "stories: agent, watch, shadow", script: `stories 'agent|agent-detect|agent-lease|watch|shadow'`},
	{name: "programs without the careful decoder", clock: host, script: `tests internal/filter/codegen Plain`},
	{name: "look-ups in tables of rules", clock: host,
		script: `tests internal/filter/ruletree 'TableAndProgram|SmallWorlds|PriorityHolds'`},
	{name: "look-ups of endpoints", clock: host, script: `tests internal/filter/endpoint 'Program'`},
	{name: "features of the kernel", clock: host, script: `tests internal/kernel .`},
	{name: "programs without the kernel's compiler", script: `tests internal/bench/rules OneByOneRun`},
	{name: "more generated policies", clock: host, long: true, script: `
		tests internal/filter/difftest Big -seed 2 -policies 60 -packets 30000
		tests internal/filter/difftest Big -seed 2 -policies 30 -packets 15000 -records`},
	{name: "all stories of the agent", long: true, script: `stories 'agent.*'`},
	{name: "the tests of code generation", long: true, script: `tests internal/filter/codegen .`},
	{name: "the tests of the data plane", long: true, script: `
		# Skipped are those of two processors, of the long run, and of devices that the kernel lacks.
		devices
		sometests internal/dataplane .`},
}
