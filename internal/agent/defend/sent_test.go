package defend

import (
	"testing"
	"time"
)

// TestWhatIsSentIsCountedFromTheSecondLookOn: one counter says nothing of a second.
func TestWhatIsSentIsCountedFromTheSecondLookOn(t *testing.T) {
	var s sent
	now := time.Now()
	if _, ok := s.second("lo", now); ok {
		t.Error("the first time")
	}
	if rate, ok := s.second("lo", now.Add(time.Second)); !ok || rate < 0 {
		t.Errorf("the second time: %v, %v", rate, ok)
	}
	if _, ok := s.second("no-such-device", now); ok || s != (sent{}) {
		t.Error("a device that is not there")
	}
}
