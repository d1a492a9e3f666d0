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

# first NAME: the first value of that name in JSON of levee, which has a line for each. jq would compile its own library
# at each start, which costs twice what levee takes to say it.
first() { sed -n "0,/^ *\"$1\": /s/^ *\"$1\": \"\{0,1\}\([^\",]*\).*/\1/p"; }

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
			if [ "$1" = tcx ] || [ "$1" = clsact ] && grep -q " to ring " "$policy"; then
				! levee up "$policy" --dev v0 --mode "$1" --force 2>/tmp/err
				grep -F "a ring takes packets from XDP alone" /tmp/err
				continue
			fi
			levee up "$policy" --dev v0 --mode "$1" --force
			levee status --dev v0 --json | grep -x " *\"hook\": \"$1\","
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

# stories NAMES: those of test/script, names separated by |. Each has to run, by whichever test.
stories() {
	tests cmd/levee "^TestScripts(ThatMeasure|WithLeastRights)?\$/^($1)\$"
	for name in $(echo "$1" | tr '|' ' '); do
		grep -q "^ *--- PASS: TestScripts[A-Za-z]*/$name " /tmp/tests || { echo "story $name did not run"; return 1; }
	done
}

# cards MODULE...: the drivers of the cards, and a namespace for their other ends.
cards() {
	[ ! -e /tmp/plain.levee ] || return 0 # of the card before
	for module in "$@"; do modprobe "$module" || true; done # 6.1 has no module of that name, or it is built in
	for i in $(seq 50); do ls /sys/class/net/*/device/net >/dev/null 2>&1 && break; sleep 0.1; done
	cat >/tmp/plain.levee <<-'P'
		pass icmp as "ping"
		drop udp port 9009 as "discard"
		default pass
	P
	cat >/tmp/tags.levee <<-'P'
		drop vlan 7 as "discard"
		drop untagged udp port 9009 as "untagged"
		default pass
	P
}

# end N: the name of the interface with the MAC address that ends so.
end() { grep -l "^52:54:00:0a:$1" /sys/class/net/*/address | cut -d/ -f5 | head -1; }

# carrier: until the card has a link, and its other end has had an answer.
carrier() {
	for i in $(seq 80); do [ "$(cat "/sys/class/net/$dut/carrier" 2>/dev/null)" = 1 ] && break; sleep 0.1; done
	for i in $(seq 20); do ip netns exec peer ping -c 1 -W 1 10.9.0.2 >/dev/null && return; done
	echo "$dut has no link"
	return 1
}

# count: packets that the rule has had.
count() { levee status --dev "$dut" --json | sed -n '/"label": "discard"/,/"packets"/s/^ *"packets": \([0-9]*\).*/\1/p'; }

# judged WHEN [FLAG...]: 20 packets of the other end come to the rule.
judged() {
	when=$1
	shift
	carrier
	before=$(count)
	ip netns exec peer levee gen --dev "$peer" --own-network --to 10.9.0.2 --to-mac 52:54:00:0a:"$nr:$mac" --kind udp \
		--port 9009 --from 10.9.0.1/32 --count 20 --rate 100 --path packet "$@" >/tmp/gen
	for i in $(seq 10); do
		after=$(count)
		[ $((after - before)) -lt 20 ] || break
		sleep 0.1
	done
	[ $((after - before)) = 20 ] || { echo "$when: $((after - before)) of 20 judged"; return 1; }
	echo "$when: 20 of 20 judged"
}

# hook WANT: the policy is there; tc is what the kernel has at that place.
hook() {
	got=$(levee status --dev "$dut" --json | first hook)
	case $got in tcx | clsact) got=tc ;; esac
	echo "hook $got"
	[ "$got" = "$1" ]
}

# stack KIND: what lies on the card, or in it, is under test in its place.
stack() {
	case $1 in
	bond)
		ip link add over7 type bond mode active-backup miimon 100
		ip link set "$card" down
		ip link set "$card" master over7
		dut=over7
		;;
	bridge)
		ip link add over7 type bridge mcast_snooping 0
		ip link set "$card" up master over7
		dut=over7
		;;
	macvlan)
		mac=03
		ip link set "$card" up
		ip link add over7 link "$card" address 52:54:00:0a:"$nr:$mac" type macvlan
		dut=over7
		;;
	vf)
		mac=03
		ip link set "$card" up
		echo 1 >"/sys/class/net/$card/device/sriov_numvfs"
		for i in $(seq 50); do dut=$(ls "/sys/class/net/$card/device/virtfn0/net" 2>/dev/null) && break; sleep 0.1; done
		ip link set "$dut" address 52:54:00:0a:"$nr:$mac"
		;;
	esac
}

# network N HOOK TAGHOOK [KIND]: a policy on card N, or on what is stacked on it, takes the hook, and judges each packet after
# whatever happens to the card. One that asks for tags takes the other, where the card has VLANs.
network() {
	nr=$1 card=$(end "$1:01") peer=$(end "$1:02") mac=01
	dut=$card
	trap unplug EXIT
	ip netns add peer
	ip link set "$peer" netns peer
	ip -n peer addr add 10.9.0.1/24 dev "$peer"
	ip -n peer link set "$peer" up
	stack "${4-}"
	ip link set "$dut" up
	ip addr add 10.9.0.2/24 dev "$dut"
	tagged=yes
	ip link add link "$dut" name tagged7 type vlan id 7 || tagged= # cards drop tags that nobody asks for; e100 has none
	[ -z "$tagged" ] || ip link set tagged7 up
	carrier
	levee up /tmp/plain.levee --dev "$dut"
	hook "$2"
	judged up
	ip link set "$dut" down
	ip link set "$dut" up
	judged 'link down, up'
	for event in "ip link set $dut mtu 1400" "ip link set $dut mtu 1500" "ethtool -G $dut rx 128" \
		"ethtool -L $dut combined 1" "ethtool -K $dut gro off"; do
		$event || continue # not every driver does all
		judged "$event"
	done
	[ -z "$tagged" ] || tags "$3"
	levee down --dev "$dut"
}

# tags HOOK: a policy that asks for them takes the hook, and what status prints of tags is true.
tags() {
	was=$(levee status --dev "$dut" --json | first hook)
	levee up /tmp/tags.levee --dev "$dut" 2>/tmp/err
	cat /tmp/err
	hook "$1"
	case "$was $(ethtool -i "$card" | head -1)" in # the last native program goes
	xdp-native*igb) grep -F 'the link goes down for some seconds' /tmp/err ;;
	esac
	judged 'tag' --vlan 7
	ethtool -K "$card" rxvlan off || true
	judged 'tag, rxvlan off' --vlan 7
	ethtool -K "$card" rxvlan on || true
}

# told [yes]: whoever asks for native XDP for a policy about tags is told what makes it right there, where it is not: on the port.
told() {
	levee up /tmp/tags.levee --dev "$dut" --mode xdp-native >/tmp/out 2>&1
	cat /tmp/out
	if [ -n "${1-}" ]; then
		grep -F "ethtool -K $card rxvlan off" /tmp/out
		ethtool -K "$card" rxvlan off
	else
		! grep -F rxvlan /tmp/out
	fi
	judged 'tag, as told' --vlan 7
	! levee status --dev "$dut" | grep -F rxvlan
	ethtool -K "$card" rxvlan on || true
	levee down --dev "$dut"
}

# merging: LRO, which the driver or the kernel ends for a program, is back when it has gone.
merging() {
	ip link del tagged7 # a card with a VLAN has no LRO (netdev_sync_upper_features)
	tagged=
	for mode in xdp-generic xdp-native; do
		ethtool -K "$dut" lro on
		ethtool -k "$dut" | grep -x 'large-receive-offload: on'
		levee up /tmp/plain.levee --dev "$dut" --mode $mode || continue # 6.1 has no native XDP there
		ethtool -k "$dut" | grep 'large-receive-offload: off'
		levee down --dev "$dut"
		ethtool -k "$dut" | grep -x 'large-receive-offload: on'
	done
}

# bounces: `up` and `down` say before that the link goes down. Up to which MTU the driver goes is as `status` says.
bounces() {
	levee up /tmp/plain.levee --dev "$dut" --confirm 3s >/tmp/out 2>/tmp/err || true
	cat /tmp/err
	grep -F 'the link goes down for some seconds; the time to confirm begins when it is back' /tmp/err
	grep -F 'goes down' /tmp/err | wc -l | grep -x 1
	mtus 1500 1510
	mtus 1511 3046
	ip link set "$dut" mtu 3047
	! levee up /tmp/plain.levee --dev "$dut" --mode xdp-native 2>/tmp/err
	grep -F 'a native program takes packets of up to about 3046' /tmp/err
	ip link set "$dut" mtu 1500
}

# mtus MTU LARGEST: with the MTU at up, the driver takes the largest and no more, and that is what status says.
mtus() {
	ip link set "$dut" mtu "$1"
	levee up /tmp/plain.levee --dev "$dut" --mode xdp-native
	[ "$(levee status --dev "$dut" --json | first largest_mtu)" = "$2" ]
	levee doctor --dev "$dut" | grep -F "above $2 the driver refuses"
	! ip link set "$dut" mtu $(($2 + 1))
	ip link set "$dut" mtu "$2"
	levee down --dev "$dut" 2>/tmp/err
	grep -F 'goes down' /tmp/err
}

# raised: with a larger MTU than the program takes, packets are lost, as status and doctor say; another `up` takes them.
raised() {
	levee up /tmp/plain.levee --dev "$dut"
	ip link set "$dut" mtu 4000
	ip -n peer link set "$peer" mtu 4000
	carrier
	! ip netns exec peer ping -M "do" -c 1 -W 1 -s 3900 10.9.0.2
	! levee status --dev "$dut" >/tmp/out
	grep -F 'the MTU is 4000' /tmp/out
	levee doctor --dev "$dut" | grep -F 'the MTU is 4000'
	levee up /tmp/plain.levee --dev "$dut"
	carrier
	ip netns exec peer ping -M "do" -c 1 -W 5 -s 3900 10.9.0.2
	levee down --dev "$dut"
	ip link set "$dut" mtu 1500
	ip -n peer link set "$peer" mtu 1500
}

# generates: live frames count as sent when the driver takes them, which it does with an XDP program, or never; auto sends by
# another path then.
generates() {
	sends live 1 0
	sends auto 0 packet
	[ "${1-}" = xdp ] || return 0
	levee up /tmp/plain.levee --dev "$dut" --mode xdp-native
	carrier
	sends live 0 live
	levee down --dev "$dut"
}

# sends PATH STATUS TAKEN: what the report says to be sent has come to the other end.
sends() {
	carrier
	before=$(ip netns exec peer cat "/sys/class/net/$peer/statistics/rx_packets") got=0
	levee gen --dev "$dut" --own-network --to 10.9.0.1 --to-mac 52:54:00:0a:"$nr":02 --kind udp --port 9009 --from 10.9.0.2/32 \
		--count 500 --rate 2000 --path "$1" --json >/tmp/gen 2>/tmp/err || got=$?
	cat /tmp/err
	[ "$got" = "$2" ] || { echo "exit status $got, want $2"; return 1; }
	[ "$got" = 0 ] || { grep -F 'takes no frames of XDP programs' /tmp/err; return; }
	grep -E '^  "(sent|refused|errors|path)": ' /tmp/gen
	[ "$(first path </tmp/gen)" = "$3" ]
	sent=$(($(first sent </tmp/gen) - $(first refused </tmp/gen)))
	for i in $(seq 20); do
		came=$(($(ip netns exec peer cat "/sys/class/net/$peer/statistics/rx_packets") - before))
		[ "$came" -lt "$sent" ] || break
		sleep 0.1
	done
	[ "$sent" -gt 0 ] && [ "$came" -ge "$sent" ] && [ "$came" -lt $((sent + 20)) ] || { echo "sent $sent, came $came"; return 1; }
}

# because TEXT: why `up` does not take native XDP, in the driver's words.
because() {
	levee up /tmp/plain.levee --dev "$dut" | tee /tmp/out
	levee down --dev "$dut"
	grep -F "$1" /tmp/out
}

# unasked: whoever asks for the hook at which the driver asks nobody is told.
unasked() { says 3 'mrg_rxbuf' levee up /tmp/plain.levee --dev "$dut" --mode xdp-native; }

# locked: the driver's own reason is said, and generic XDP, where the kernel would warn, is refused.
locked() {
	levee up /tmp/plain.levee --dev "$dut" | grep -F 'host is implementing'
	levee down --dev "$dut"
	says 3 'merges packets' levee up /tmp/plain.levee --dev "$dut" --mode xdp-generic
	! dmesg | grep 'failed to disable GRO_HW'
}

# forgotten: the driver asks no more once the link was down; a keeper moves the policy, which judges again.
forgotten() {
	levee up /tmp/plain.levee --dev "$dut" --mode xdp-native --keep >/tmp/keep 2>&1 &
	keeper=$!
	for i in $(seq 100); do levee status --dev "$dut" >/tmp/status 2>&1 && break; sleep 0.1; done
	case $(uname -r) in 6.[1-5].*) wait $keeper || true; grep -F 'XDP' /tmp/keep; return ;; esac
	judged 'asked for native'
	hook xdp-native
	ip link set "$dut" down
	ip link set "$dut" up
	carrier
	for i in $(seq 100); do
		ip netns exec peer ping -c 2 -i 0.2 -W 1 10.9.0.2 >/tmp/ping || true
		[ "$(levee status --dev "$dut" --json | first hook)" = xdp-native ] || break
	done
	cat /tmp/keep
	hook tc
	judged 'moved'
	kill -TERM $keeper
	wait $keeper || true
	levee down --dev "$dut" || true
}

# left: nothing of levee is.
left() { [ ! -e /run/levee ] || { find /run/levee; return 1; }; }

# unplug leaves the machine as it was, for the next card.
unplug() {
	levee down --dev "$dut" >/dev/null 2>&1 || true
	ip netns del peer
	[ -z "${tagged-}" ] || ip link del tagged7
	ip addr flush dev "$dut"
	[ "$dut" != over7 ] || ip link del over7
	[ ! -e "/sys/class/net/$card/device/virtfn0" ] || echo 0 >"/sys/class/net/$card/device/sriov_numvfs"
	ip link set "$card" down
}
