# What checks share.

# says STATUS TEXT COMMAND...: the command ends with the status, and its complaint is one line that has the text.
says() {
	status=$1 text=$2
	shift 2
	got=0
	"$@" >/tmp/out 2>/tmp/err || got=$?
	cat /tmp/out /tmp/err
	[ "$got" = "$status" ] || { echo "exit status $got, want $status: $*"; return 1; }
	[ "$(wc -l </tmp/err)" = 1 ] || { echo "not one line: $*"; return 1; }
	grep -qF "$text" /tmp/err || { echo "not said: $text"; return 1; }
}

# pair makes a namespace ns with a device v0, whose peer is v1 of the namespace peer.
pair() {
	ip netns add ns
	ip netns add peer
	ip -n ns link add v0 type veth peer name v1 netns peer
	ip -n ns addr add 10.77.0.1/24 dev v0
	ip -n peer addr add 10.77.0.2/24 dev v1
	ip -n ns link set v0 up
	ip -n peer link set v1 up
	trap 'ip netns del ns; ip netns del peer' EXIT
}

# attached HOOK: each example can be put in force at the hook, is shown with it, and taken away.
attached() {
	pair
	ip netns exec ns sh -eu -c '
		for policy in examples/*.levee; do
			echo "$policy $1"
			levee up "$policy" --dev v0 --mode "$1" --force
			levee status --dev v0 --json | jq -e --arg hook "$1" ".interfaces[0].hook == \$hook"
			levee down --dev v0
		done' sh "$1"
}

# tests PACKAGE PATTERN [FLAG...]: runs tests of a package where `go test` would, at the length of /levee/length; none may be
# skipped but those that ask for data.
tests() {
	package=$1 pattern=$2
	shift 2
	(cd "/levee/$package" && ./guest.test $(cat /levee/length) -test.run "$pattern" -test.timeout 2h -test.v "$@" >/tmp/tests) || {
		grep -vE '^ *--- PASS|^=== ' /tmp/tests
		return 1
	}
	grep -E '^ *--- |[a-z]_test.go' /tmp/tests
	grep -q '^--- PASS' /tmp/tests || { echo "no test ran"; return 1; }
	! grep -A2 '^ *--- SKIP' /tmp/tests
}

# handed NAME PACKAGE PATTERN [FLAG...]: as tests, which compare what the host wrote with -hand: the oracle's verdicts on frames.
handed() {
	name=$1
	shift
	tests "$@" -handed "/levee/handed/$name"
}

# devices has what the kernel has of devices of every kind.
devices() {
	for module in bonding 8021q ipvlan geneve ip_gre ip6_gre ipip sit ip6_tunnel wireguard ppp_generic pppoe tun; do modprobe $module || echo "no $module"; done
}

# sometests PACKAGE PATTERN: as tests, with what was skipped said.
sometests() {
	(cd "/levee/$1" && ./guest.test $(cat /levee/length) -test.run "$2" -test.timeout 2h -test.v >/tmp/tests) || {
		grep -vE '^ *--- PASS|^=== ' /tmp/tests
		return 1
	}
	grep -E '^ *--- SKIP' /tmp/tests || true
}

# stories PATTERN: those of test/script.
stories() { tests cmd/levee "^TestScripts(ThatMeasure)?\$/$1"; }
