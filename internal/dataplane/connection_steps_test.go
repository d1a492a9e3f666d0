package dataplane

import (
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"levee/internal/packet"
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
		if err := bringPolicyAt(t, "lv0", Auto, text, confirm); err != nil {
			t.Fatal(err)
		}
	}
	steady := func(t *testing.T) { up(t, connectionPolicy, 0) }
	trial := func(t *testing.T) {
		steady(t)
		up(t, other, time.Hour)
	}
	expired := func(t *testing.T) {
		trial(t)
		expire(t)
	}
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
						if err := speaks(conn, 10*time.Second); err != nil {
							t.Fatalf("%s: connection %d: %v", what, j, err)
						}
					}
					if f := status(t).Flows; f == nil || f.Open < len(all) {
						t.Fatalf("%s: connections %+v", what, f)
					}
				}
			}
		})
	}
}

// TestWhatIsKnownOfFragmentsGoesWithTheirRule: a replace keeps it, also one that turns other rules
// around; a policy without the rule forgets it.
func TestWhatIsKnownOfFragmentsGoesWithTheirRule(t *testing.T) {
	n := newTestNet(t)
	other := "count udp as \"all\"\n" + fragmentPolicy
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			up := func(text string) {
				t.Helper()
				if err := bringPolicyAt(t, "lv0", mode, text, 0); err != nil {
					t.Fatal(err)
				}
			}
			wait := func(what string, passed, orphans uint64) {
				t.Helper()
				eventually(t, func() error {
					a := status(t)
					p, o := labelled(&a, "fragments"), labelled(&a, "fragment-orphan")
					if p != passed || o != orphans {
						return fmt.Errorf("%s: %d later fragments passed, %d orphans, want %d "+
							"and %d", what, p, o, passed, orphans)
					}
					return nil
				})
			}
			const open, shut = 9000, 9001
			part := func(id, port uint16, at int) {
				n.sendFrame(t, datagramPart(id, port, at))
			}
			first := func(id, port uint16, label string, want uint64) {
				t.Helper()
				part(id, port, 0)
				eventually(t, func() error {
					if a := status(t); labelled(&a, label) < want {
						return fmt.Errorf("%d packets at %q", labelled(&a, label), label)
					}
					return nil
				})
			}
			up(fragmentPolicy)
			first(1, open, "service", 1)
			first(2, shut, "default", 1)
			part(2, shut, 1)
			wait("before", 0, 1)
			up(other)
			part(1, open, 1)
			part(2, shut, 2)
			wait("after a replace", 1, 2)
			if f := status(t).Fragments; f == nil || f.Ahead != 0 || f.Datagrams != 1 {
				t.Errorf("after a replace: %+v", f)
			}
			up("pass udp port 9000\ndefault drop\n")
			if f := status(t).Fragments; f != nil {
				t.Errorf("without the rule: %+v", f)
			}
			up(fragmentPolicy)
			was := status(t)
			passed, orphans := labelled(&was, "fragments"), labelled(&was, "fragment-orphan")
			part(2, shut, 3) // nobody knows any more that its first was dropped
			wait("with the rule again", passed+1, orphans)
			if f := status(t).Fragments; f == nil || f.Ahead != 1 {
				t.Errorf("with the rule again: %+v", f)
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// datagramPart is the part of a datagram over UDP to a port that begins with byte 24 * at.
func datagramPart(id, port uint16, at int) []byte {
	const ip, l4, bytes = 14, 34, 24
	f := make([]byte, 60)
	copy(f, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 0})
	f[ip], f[ip+8], f[ip+9] = 0x45, 64, packet.ProtoUDP
	binary.BigEndian.PutUint16(f[ip+2:], 20+bytes)
	binary.BigEndian.PutUint16(f[ip+4:], id)
	binary.BigEndian.PutUint16(f[ip+6:], 0x2000|uint16(at*bytes/8))
	copy(f[ip+12:], []byte{203, 0, 113, 9, 198, 51, 100, 1})
	if at == 0 {
		binary.BigEndian.PutUint16(f[l4+2:], port)
		binary.BigEndian.PutUint16(f[l4+4:], 1000)
	}
	return f
}
