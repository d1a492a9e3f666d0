package dataplane

import (
	"fmt"
	"testing"
	"time"

	"levee/internal/dataplane/store"
)

// TestALiveGreylistComesWithItsMemory: no live rule before had one, which the policy in force may
// lack.
func TestALiveGreylistComesWithItsMemory(t *testing.T) {
	newTestNet(t)
	upOver(t, store.Auto, "default pass\n")
	from := "192.0.2.1"
	for i := range 255 {
		from += fmt.Sprintf(", 198.51.%d.%d", i/100, 1+2*(i%100))
	}
	for _, rule := range []string{
		"greylist udp not from { " + from + " } to 203.0.113.1 port 27015 after 100ms within 60s " +
			`above 200/s as "flood-1"`,
		`greylist tcp not syn after 100ms within 60s above 200/s as "flood-2"`,
		`drop udp port 9 as "flood-3"`,
	} {
		begun := time.Now()
		if err := live(t, rule, time.Hour); err != nil {
			t.Errorf("%.40s: %v", rule, err)
		}
		t.Logf("%.40s after %v", rule, time.Since(begun).Round(time.Millisecond))
	}
}
