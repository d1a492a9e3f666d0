package agent_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"levee/internal/agent"
	"levee/internal/agent/defend"
	"levee/internal/agent/incident"
	"levee/internal/dataplane/status"
	"levee/internal/monitor/mpegts"
	"levee/internal/openmetrics"
)

// TestMetricsAreDocumentedAndReadable holds docs/reference/metrics.md to the metrics that there
// are, and them to what Prometheus takes: it refuses a whole text where a name does not end in its
// unit.
func TestMetricsAreDocumentedAndReadable(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, f := range slices.Concat(status.Metrics(&status.Report{}, false),
		agent.Families(), incident.Metrics(nil), []openmetrics.Family{defend.Metrics(nil)},
		new(mpegts.Report).Metrics()) {
		if f.Unit != "" && !strings.HasSuffix(f.Name, "_"+f.Unit) {
			t.Errorf("%s does not end in its unit, %s", f.Name, f.Unit)
		}
		name := f.Name + map[openmetrics.Type]string{openmetrics.Counter: "_total",
			openmetrics.Info: "_info"}[f.Type]
		if known[name] {
			t.Errorf("there are two %s", name)
		}
		known[name] = true
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/reference/metrics.md lacks %s", name)
		}
	}
	for _, m := range regexp.MustCompile("`((levee|process)_[a-z_]+)`").FindAllStringSubmatch(
		string(page), -1) {
		if !known[m[1]] {
			t.Errorf("docs/reference/metrics.md has %s, which is no metric", m[1])
		}
	}
}
