package ladder

import (
	"bytes"
	"strings"
	"testing"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/report"
)

// TestDocumentOfALadder draws up a report of two rungs, one without a figure: figures carry their
// rounds, the other its reason, and the certificate says the grounds of the figures.
func TestDocumentOfALadder(t *testing.T) {
	good := &flood.Rung{Name: "xdp drop"}
	for round := range bench.MinRounds {
		good.Windows = append(good.Windows, flood.Window{
			Round: round, Family: flood.IPv4, Traffic: "udp", Seconds: 1, Packets: 1e6,
			PPS: 1e6 + float64(round), NsPerPacket: 90,
			Offered: 2e6, Refused: 1e6 - 1000, Received: 1e6, Dropped: 1e6, CoreBusy: 0.995,
			Saturated: round > 0, Limit: "the ring refused nothing",
		})
	}
	r := reportOf(bench.MinRounds, udp4,
		&flood.Rung{Name: "nft netdev ingress", Missing: "nft is not installed"}, good)
	r.all.Incomplete = true
	r.summarise()
	d := r.Document()
	var b bytes.Buffer
	if err := d.JSON(&b, r.Raw()); err != nil {
		t.Fatal(err)
	}
	back, err := report.Read(&b, "ladder.json")
	if err != nil {
		t.Fatal(err)
	}
	points := back.Charts[0].Series[0].Points
	if points[0].Label != "xdp drop" || len(points[0].Rounds) != bench.MinRounds ||
		!points[0].AtLeast || points[0].Low == nil {
		t.Errorf("%+v, want the fastest first, with its rounds, its interval and that it is a "+
			"lower bound", points[0])
	}
	if points[1].Y != nil || points[1].Why != "nft is not installed" ||
		back.Refusals[0].Why != points[1].Why {
		t.Errorf("%+v, %+v: want a gap with its reason", points[1], back.Refusals)
	}
	if c := back.Charts[2]; c.ID != "ladder-ratio" || c.Steady != 0.1 ||
		*c.Series[0].Points[0].Y != 1 || c.Series[0].Points[1].Y != nil || !back.Charts[1].Ranked {
		t.Errorf("%+v, want the ratio to xdp drop, steady, and places in an order", c)
	}
	if row := back.Tables[0].Rows[0]; row[4].Text != "5" || row[7].Text != "0.0500" {
		t.Errorf("certificate %+v, want 5 windows saturated and 0.05 %% off balance", row)
	}
	if !strings.HasPrefix(back.Incomplete, "interrupted") {
		t.Errorf("incomplete is %q", back.Incomplete)
	}
}
