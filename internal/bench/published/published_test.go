package published

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"levee/internal/report"
)

func TestSourcesAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Sources() {
		if seen[s.ID] || s.Title == "" || s.By == "" || s.Year < 1990 ||
			!strings.HasPrefix(s.Where, "https://") || s.Hardware == "" || s.Checked == "" ||
			s.Bench == "" {
			t.Errorf("%+v", s)
		}
		seen[s.ID] = true
		if (len(s.Figures) > 1) == (s.Says != "") {
			t.Errorf("%s: two figures or more, or what it says, and not both", s.ID)
		}
		if !slices.IsSortedFunc(s.Figures,
			func(a, b Figure) int { return int(a.Value - b.Value) }) {
			t.Errorf("%s: the figures do not go from slow to fast", s.ID)
		}
		for _, f := range s.Figures {
			if f.Value <= 0 || f.What == "" || len(f.Names) == 0 || s.Unit == "" {
				t.Errorf("%s: %+v", s.ID, f)
			}
		}
	}
}

func TestRatiosStayWithinTheirSource(t *testing.T) {
	d := &report.Document{Bench: "ladder"}
	c := d.Chart(report.Chart{ID: "ladder-pps", Kind: report.Bar})
	c.Add("the mix",
		report.Value(0, 5e6).Between(4e6, 6e6).Bound(true).Of("xdp drop"),
		report.Value(0, 1e6).Between(8e5, 1.25e6).Of("iptables INPUT"),
		report.Gap(0, "not installed").Of("nft netdev ingress"))
	got := Against(d)
	if len(got.Ratios) != 1 {
		t.Fatalf("%d ratios, want XDP over iptables INPUT alone: %+v", len(got.Ratios), got.Ratios)
	}
	r := got.Ratios[0]
	if r.Source.ID != "cloudflare-2018" || *r.Measured.Y != 5 || !r.Measured.AtLeast ||
		*r.Measured.Low != 4e6/1.25e6 || *r.Measured.High != 7.5 {
		t.Errorf("%+v", r)
	}
	if want := 10e6 / 608e3; r.Published != want {
		t.Errorf("published %v, want %v", r.Published, want)
	}
	text := got.Text()
	for _, want := range []string{"published 16.4, measured >=5 (3.2-7.5)",
		"nftables netdev ingress: no figure here", "do not carry over", "Majkowski"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	got.Draw(d)
	var page bytes.Buffer
	if err := d.HTML(&page); err != nil {
		t.Error(err)
	}
	if !strings.Contains(page.String(), "Ratios: published and measured") {
		t.Error("the page does not have the ratios")
	}
}

func TestRatiosOfAMeasurementThatHasThemAreTaken(t *testing.T) {
	d := &report.Document{Bench: "ladder"}
	d.Chart(report.Chart{ID: "ladder-pps", Kind: report.Bar}).Add("ipv4",
		report.Value(0, 5e6).Bound(true).Of("xdp drop"), report.Value(0, 1e6).Of("iptables INPUT"))
	d.Chart(report.Chart{ID: "ladder-ratio", Kind: report.Bar}).Add("ipv4",
		report.Value(0, 1).Between(1, 1).Of("xdp drop"),
		report.Value(0, 0.125).Between(0.1, 0.2).Of("iptables INPUT"))
	got := Against(d)
	if len(got.Ratios) != 1 || *got.Ratios[0].Measured.Y != 8 || got.Ratios[0].Measured.AtLeast ||
		*got.Ratios[0].Measured.Low != 5 || *got.Ratios[0].Measured.High != 10 {
		t.Fatalf("%+v, want XDP over iptables INPUT by the ratios, 8 from 5 to 10", got.Ratios)
	}
	if text := got.Text(); !strings.Contains(text, "measured 8 (5-10)") ||
		!strings.Contains(text, "least was disturbed") {
		t.Error(text)
	}
	got.Draw(d)
	if last := d.Charts[len(d.Charts)-1]; !strings.Contains(last.What, "least was disturbed") {
		t.Errorf("the chart says %q", last.What)
	}
}

func TestAMeasurementWithoutFiguresSaysWhatIsKnown(t *testing.T) {
	for bench, want := range map[string]string{"sets": "Poptrie",
		"rules": "nftables is slower than iptables", "hash": "no source"} {
		d := &report.Document{Bench: bench}
		if text := Against(d).Text(); !strings.Contains(text, want) {
			t.Errorf("%s: no %q in\n%s", bench, want, text)
		}
	}
}

// TestThePageHasEveryFigure: docs/explanation/published.md has a row for each figure, with its
// ratio to the slowest of its source.
func TestThePageHasEveryFigure(t *testing.T) {
	page, err := os.ReadFile("../../../docs/explanation/published.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range Sources() {
		if year := fmt.Sprint(s.Year); !strings.Contains(string(page), year) {
			t.Errorf("%s: the page has no source of %s", s.ID, year)
		}
		for _, f := range s.Figures {
			over := f.Value / s.Figures[0].Value
			row := fmt.Sprintf("| %s | %s | ", f.What, thousands(f.Value))
			_, ratio, ok := strings.Cut(string(page), row)
			ratio, _, _ = strings.Cut(ratio, " |")
			if r, err := strconv.ParseFloat(ratio, 64); !ok || err != nil ||
				math.Abs(r-over) > over/200 {
				t.Errorf("%s: the page has no row %q of %.3g, but %q", s.ID, row, over, ratio)
			}
		}
	}
}

// thousands is a number as pages write it.
func thousands(v float64) string {
	text := strconv.Itoa(int(v))
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
