package resolve

import (
	"strings"
	"testing"
)

// TestASourceOfAPackedFileIsRefused: each of its lines was malformed, after `levee check` had found
// nothing.
func TestASourceOfAPackedFileIsRefused(t *testing.T) {
	const text = "set s = dynamic(max 10)\ndrop from s\ndefault pass\n" +
		`source "a" eve file "/var/log/eve.json.gz" add src_ip to s` + "\n"
	_, diags := Parse("a.levee", []byte(text), nil)
	if err := diags.Err(); err == nil || !strings.Contains(err.Error(), "is a packed file") {
		t.Error(err)
	}
	_, diags = Parse("a.levee", []byte(strings.Replace(text, ".gz", "", 1)), nil)
	if err := diags.Err(); err != nil {
		t.Error(err)
	}
}
