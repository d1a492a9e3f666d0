package dataplane

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"levee/internal/dataplane/store"
)

// TestFailureOrDeathAtAnyStepEndsNoConnection: TCP connections that either side began go on
// whatever becomes of a command, under a policy that drops all that it does not know.
func TestFailureOrDeathAtAnyStepEndsNoConnection(t *testing.T) {
	n := newTestNet(t)
	giveAddress(t, n.here, "lv0", "198.51.100.1/24")
	giveAddress(t, n.peer, "lv1", "198.51.100.2/24")
	echoServer(t, n.here, "198.51.100.1:9000")
	echoServer(t, n.peer, "198.51.100.2:9001")
	const other = connectionPolicy + "# another\n"
	up := func(t *testing.T, text string, confirm time.Duration) {
		t.Helper()
		if err := bringPolicyAt(t, "lv0", store.Auto, text, confirm); err != nil {
			t.Fatal(err)
		}
	}
	steady, trial, expired := stages(
		func(t *testing.T) { up(t, connectionPolicy, 0) },
		func(t *testing.T) { up(t, other, time.Hour) })
	for _, c := range []struct {
		name    string
		prepare func(*testing.T)
		do      order
		expire  bool // before it is looked at
		kill    []bool
	}{
		{"replace", steady, order{Do: "up", Text: other}, false, []bool{false}},
		{"replace on a short trial", steady, order{Do: "up", Text: other, Confirm: time.Hour}, true,
			[]bool{true}},
		{"confirm", trial, order{Do: "confirm"}, false, []bool{true}},
		{"roll back", expired, order{Do: "status"}, false, []bool{true}},
	} {
		n.run(t, c.name, func(t *testing.T) {
			c.do.Dev, c.do.File = "lv0", filepath.Join(t.TempDir(), "new.levee")
			c.prepare(t)
			all := []net.Conn{dial(t, n.peer, "198.51.100.1:9000"),
				dial(t, n.here, "198.51.100.2:9001")}
			steps := record(t, c.do)
			if c.do.Do == "up" && !slices.Contains(steps, "swap") {
				t.Fatal(steps)
			}
			for i, step := range steps {
				for _, kill := range c.kill {
					what := fmt.Sprintf("step %d (%s), kill %v", i, step, kill)
					c.prepare(t)
					inject(t, c.do, i, kill)
					if c.expire {
						expire(t)
					}
					for j, conn := range all {
						if err := speaks(conn); err != nil {
							t.Fatalf("%s: connection %d: %v", what, j, err)
						}
					}
					if f := status(t).Connections; f == nil || f.Open < len(all) {
						t.Fatalf("%s: connections %+v", what, f)
					}
				}
			}
		})
	}
}
