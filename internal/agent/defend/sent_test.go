package defend

import (
	"testing"
	"time"
)

// TestWhatIsSentIsCountedFromTheSecondLookOn: one counter says nothing of a second.
func TestWhatIsSentIsCountedFromTheSecondLookOn(t *testing.T) {
	var s sent
	now := time.Now()
	if _, ok := s.second(now, 1000, true); ok {
		t.Error("the first time")
	}
	if rate, ok := s.second(now.Add(2*time.Second), 1500, true); !ok || rate != 250 {
		t.Errorf("the second time: %v, %v", rate, ok)
	}
	if _, ok := s.second(now.Add(3*time.Second), 10, true); ok {
		t.Error("a counter that began anew")
	}
	if _, ok := s.second(now.Add(4*time.Second), 0, false); ok || s != (sent{}) {
		t.Error("a device that is not there")
	}
	if n, ok := (namespace{}).sent("lo"); !ok || n > 1<<62 {
		t.Errorf("of lo: %d, %v", n, ok)
	}
	if _, ok := (namespace{}).sent("no-such-device"); ok {
		t.Error("of no device")
	}
}
