package dataplane

import (
	"testing"

	"github.com/safchain/ethtool"
)

func TestADeviceSaysThatItTakesTagsOff(t *testing.T) {
	newTestNet(t)
	e, err := ethtool.NewEthtool()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, on := range []bool{true, false, true} {
		if err := e.Change("lv0", map[string]bool{featureRxVLAN: on}); err != nil {
			t.Fatal(err)
		}
		if got := TakesTagsOff("lv0"); got != on {
			t.Errorf("rx-vlan-offload %t: %t", on, got)
		}
	}
	if TakesTagsOff("nosuchdevice") {
		t.Error("a device that is not there takes tags off")
	}
	if got := driver("lv0"); got != "driver veth" {
		t.Errorf("lv0 has %q", got)
	}
}
