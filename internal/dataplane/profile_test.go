package dataplane

import (
	"net"
	"slices"
	"testing"

	"levee/internal/dataplane/store"
)

// TestAProfileInForceServesARealClient: a client of A2S proves itself to a policy that has nothing
// but the profile, and status counts that under the profile's name.
func TestAProfileInForceServesARealClient(t *testing.T) {
	n := newTestNet(t)
	giveBothFamilies(t, n)
	serveA2S(t, n.here, "198.51.100.1:27015")
	n.run(t, "profile", func(t *testing.T) {
		const policy = "use source-engine port { 27015-27030 }\ndefault drop\n"
		if err := bringPolicyAt(t, "lv0", store.XDPNative, policy, 0); err != nil {
			t.Fatal(err)
		}
		client := in(t, n.peer, func() (net.Conn, error) {
			return net.Dial("udp", "198.51.100.1:27015")
		})
		t.Cleanup(func() { client.Close() })
		reply := ask(t, client, queryInfo, hangs)
		if len(reply) != 9 || reply[4] != 'A' {
			t.Fatalf("the first query gets %q", reply)
		}
		if got := ask(t, client, slices.Concat(queryPlayer, reply[5:]), hangs); got == nil {
			t.Error("who sends the challenge back gets nothing")
		}
		st := status(t)
		for _, label := range []string{"source-engine/stranger", "source-engine/proven"} {
			if got := labelled(&st, label); got != 1 {
				t.Errorf("status counts %d packets of %q", got, label)
			}
		}
		if e := st.Echoes; e == nil || e.Flows != 1 || len(e.Proves) != 3 ||
			e.Proves[1].Name != "source-engine/query" {
			t.Errorf("status says %+v", e)
		}
	})
}
