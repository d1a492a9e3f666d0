package main

import "testing"

// A packet for each rule that can be reached, and no more than are measured.
func TestPacketsOfAPolicy(t *testing.T) {
	for _, name := range []string{"demo", "web"} {
		packets, err := packetsOf("../../examples/" + name + ".levee")
		if err != nil || len(packets) < 10 || len(packets) > most {
			t.Errorf("%s: %d packets, %v", name, len(packets), err)
		}
	}
	if _, err := packetsOf("main.go"); err == nil {
		t.Error("what is no policy has packets")
	}
}
