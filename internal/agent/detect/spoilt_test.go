package detect

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"
)

// TestABaselineWithAnyByteChangedStopsNothing: files of levee before they had a sum are read as
// they are, whatever stands in them.
func TestABaselineWithAnyByteChangedStopsNothing(t *testing.T) {
	some := func(n float32) (out []rates) {
		for i := range 3 {
			out = append(out, rates{n, 2 * n, float32(i)})
		}
		return out
	}
	learned := Learned{Day: some(100), Week: some(90), Hour: some(80), Last: some(70), At: monday}
	text, err := json.Marshal(&Baseline{Kinds: numRates, At: monday, Syn: 0.25, Fresh: 30,
		All: learned, Networks: []Network{
			{Prefix: netip.PrefixFrom(server, 32), Seen: monday, Learned: learned},
			{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Source: true, Seen: monday,
				Learned: learned}}})
	if err != nil {
		t.Fatal(err)
	}
	restored := 0
	for at := range text {
		for _, with := range []byte{1, 4, 0x10, 0x40} {
			spoilt := append([]byte{}, text...)
			spoilt[at] ^= with
			var b Baseline
			if json.Unmarshal(spoilt, &b) != nil {
				continue
			}
			d, now := New(Options{}), monday.Add(time.Minute)
			if !d.Restore(&b, now) {
				continue
			}
			restored++
			for range 3 {
				p := udp(backups, server, 53, 4000)
				d.Add(now, &p, 1000, 100)
				now = now.Add(time.Second)
				d.Tick(now)
			}
			_, _ = b.Text(), d.Baseline(now)
		}
	}
	if restored < len(text) {
		t.Errorf("only %d of the changed texts were gone on with", restored)
	}
}
