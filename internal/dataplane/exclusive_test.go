package dataplane

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/logging"
)

// TestNobodyHoldsAWatchUpButAnother: what said that somebody watches, or captures, was the name of
// an abstract socket, which any user of the machine could take.
func TestNobodyHoldsAWatchUpButAnother(t *testing.T) {
	newTestNet(t)
	if err := bringPolicy(t, "lv0", decisionPolicy, 0); err != nil {
		t.Fatal(err)
	}
	link := must2(attach.FindDevice("lv0"))
	for _, name := range []string{"capture", "watch"} {
		defer must2(net.Listen("unix", "@levee/"+name+"/"+link.Key())).Close()
	}
	ctx, cancel := context.WithCancel(t.Context())
	d := tap.NewDeciding(tap.Deciding{Dev: "lv0", Rate: 100, Snap: 64, Begun: cancel})
	d.Event, d.Lost = func(tap.Captured) bool { return true }, func(tap.Losses) {}
	if _, err := d.Watch(ctx); err != nil {
		t.Errorf("watch decisions: %v", err)
	}
	w := &tap.Watching{Dev: "lv0", Rules: map[uint32]generation.SlotCounter{},
		Before: map[string]logging.Losses{}}
	if err := w.Open(t.Context()); err != nil {
		t.Errorf("watch logs: %v", err)
	}
	again := &tap.Watching{Dev: "lv0", Rules: map[uint32]generation.SlotCounter{},
		Before: map[string]logging.Losses{}}
	if err := again.Open(t.Context()); err == nil {
		t.Error("two watch the logs")
	}
	again.Close()
	w.Close()
	for _, name := range []string{"behind", "watch"} {
		files := must2(filepath.Glob(filepath.Join(os.Getenv(store.RunEnv), "state/*", name)))
		if len(files) != 1 || must2(os.Stat(files[0])).Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %q", name, files)
		}
	}
}
