package eve

import "testing"

// TestWhatSuricataWritesOfTLSIsKnown: of drafts of TLS 1.3 it was said that no version writes them,
// and of the numbers of versions without a name.
func TestWhatSuricataWritesOfTLSIsKnown(t *testing.T) {
	f, _ := Named("tls.version")
	for text, want := range map[string]bool{"TLS 1.3": true, "TLS 1.3 draft-28": true,
		"TLS 1.3 draft-23-fb": true, "0x7f02": true, "32514": true, "TLSv1.2": false, "0x": false} {
		if is, _ := f.Known("is", text); is != want {
			t.Errorf("%q: %v", text, is)
		}
	}
}
