package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/testscript"

	"levee/internal/lab"
)

// netnsCount makes the names of namespaces unique within the process; the pid does between
// processes.
var netnsCount atomic.Int32

// cmdNetns is `netns [NET]`: two fresh network namespaces joined by a veth pair, as $NS (interface
// lv0, 10.77.0.1/24, fd77::1/64) and $PEER (lv1, .2 and ::2), removed when the story ends. A story
// with an SSH session, and one whose peer an SSH session would keep out of sets, has another NET
// than 10.77.0 to itself: levee sees the sessions of all namespaces, and stories run side by side.
//
//	$PEER                     $NS
//	lv1 10.77.0.2 ----------- lv0 10.77.0.1   (the policy goes here)
func cmdNetns(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: netns [NET]")
	}
	net := "10.77.0"
	if len(args) == 1 {
		net = args[0]
	}
	n := netnsCount.Add(1)
	ns := fmt.Sprintf("levee-t%d-%d", os.Getpid(), n)
	peer := ns + "p"
	ts.Setenv("NS", ns)
	ts.Setenv("PEER", peer)
	for _, name := range []string{ns, peer} {
		mustIP(ts, "netns", "add", name)
		ts.Defer(func() { exec.Command("ip", "netns", "del", name).Run() })
	}
	mustIP(ts, "-n", ns, "link", "add", "lv0", "type", "veth", "peer", "name", "lv1", "netns", peer)
	for _, side := range []struct{ ns, dev, host string }{{ns, "lv0", "1"}, {peer, "lv1", "2"}} {
		mustIP(ts, "-n", side.ns, "addr", "add", net+"."+side.host+"/24", "dev", side.dev)
		mustIP(ts, "-n", side.ns, "addr", "add", "fd77::"+side.host+"/64", "dev", side.dev, "nodad")
		mustIP(ts, "-n", side.ns, "link", "set", side.dev, "up")
		mustIP(ts, "-n", side.ns, "link", "set", "lo", "up")
	}
}

// cmdLabname is `labname`: a name for a lab, as $LAB, that nobody else has; the lab is removed when
// the story ends.
func cmdLabname(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: labname")
	}
	name := fmt.Sprintf("t%d-%d", os.Getpid(), netnsCount.Add(1))
	ts.Setenv("LAB", name)
	ts.Defer(func() {
		if err := lab.Down(context.Background(), name); err != nil &&
			!errors.Is(err, lab.ErrNoLab) {
			ts.Logf("remove lab %s: %v", name, err)
		}
	})
}

func mustIP(ts *testscript.TestScript, args ...string) {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		ts.Fatalf("ip %v: %v\n%s", args, err, out)
	}
}

// cmdAwait is `await PROGRAM ARGS...`: repeats the program until it succeeds, for three minutes or
// more, and shows the output of the last time. It is for what a background command has to reach
// first. Each time costs a start of the program: what takes longer is asked for less often.
// `! await` waits for it to fail.
func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: [!] await PROGRAM [ARG...]")
	}
	until := "until"
	if neg {
		until = "while"
	}
	loop := `n=0; ` + until + ` out=$("$@" 2>&1); do
		n=$((n + 1))
		[ $n != 720 ] || { echo "$out"; exit 1; }
		[ $n -lt 10 ] && sleep 0.05 || sleep 0.25
	done; echo "$out"`
	if err := ts.Exec("sh", append([]string{"-c", loop, "await"}, args...)...); err != nil {
		ts.Fatalf("%s: waited for nothing: %v", strings.Join(args, " "), err)
	}
}
