package dataplane

import (
	"testing"
	"time"

	"levee/internal/dataplane/store"
)

func TestPolicyOfKnowsOwnPrograms(t *testing.T) {
	newTestNet(t)
	if got := PolicyOf("lv0", 1); got != "" {
		t.Errorf("nothing is attached, and program 1 is %q", got)
	}
	bring(t, "lv0", store.Auto, named("a.levee", "one"))
	own := status(t).Program.ID
	if got := PolicyOf("lv0", own); got != "/etc/a.levee" {
		t.Errorf("levee's program is %q", got)
	}
	if got := PolicyOf("lv0", own+1000) + PolicyOf("lv0", 0) + PolicyOf("lo", own) +
		PolicyOf("nowhere", own); got != "" {
		t.Errorf("another program or interface is %q", got)
	}
	r := bringOnTrial(t, named("b.levee", "one"), time.Minute)
	if got := PolicyOf("lv0", r.Program); got != "/etc/b.levee" {
		t.Errorf("the program on trial is %q", got)
	}
}
