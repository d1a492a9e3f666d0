package gen

import (
	"encoding/json"
	"net/netip"
	"testing"

	"levee/internal/packet/template"
)

// FuzzFloods: who measures says a peer by JSON what to send. Whatever it says, the peer refuses it
// or has a program for it, of frames that its device takes.
func FuzzFloods(f *testing.F) {
	f.Add([]byte(`[{"To":"198.18.0.1","Sources":["10.0.0.0/8"],"Ports":[53,80],` +
		`"Lengths":[28,1500]}]`))
	f.Add([]byte(`[{"Kind":1,"To":"2001:db8::1","Sources":["2001:db8:1::/64"],"Linux":true},` +
		`{"Kind":4,"To":"2001:db8::1","Sources":["::/0"],"VLANs":[7,8]}]`))
	f.Add([]byte(`[{"Kind":2,"To":"::ffff:1.2.3.4","TCPOptions":"AAAA","Flags":255,` +
		`"Sources":[""]}]`))
	f.Fuzz(func(t *testing.T, says []byte) {
		var floods []Flood
		if json.Unmarshal(says, &floods) != nil || len(floods) > 8 {
			return
		}
		dev := device{mtu: 1500, inLab: true, to4: netip.MustParseAddr("198.18.0.1"),
			to6: netip.MustParseAddr("2001:db8::1")}
		var c Config
		for _, f := range floods {
			if f.complete(dev) != nil {
				return
			}
			c.Template = append(c.Template, f.packet())
		}
		all, err := template.Compile(c.Template, template.Defaults{To4: dev.to4, To6: dev.to6}, 1)
		if err != nil {
			return
		}
		if n := all.Longest(); n > dev.mtu+maxTags {
			t.Fatalf("%s: a frame of %d bytes", says, n)
		}
		_, _ = all.Program(c.slack(), true) // one that is too large is refused
	})
}
