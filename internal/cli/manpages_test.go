package cli

import "testing"

// TestNothingInAPageIsARequestToTheFormatter that help does not mean so.
func TestNothingInAPageIsARequestToTheFormatter(t *testing.T) {
	if got := roff(".x -y `z` \\ 'q'"); got != `\&.x \-y \(gaz\(ga \e \(aqq\(aq` {
		t.Errorf("%s", got)
	}
}
