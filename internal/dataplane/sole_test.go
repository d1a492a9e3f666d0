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
	d := newDeciding(Deciding{Dev: "lv0", Rate: 100, Snap: 64, Begun: cancel})
	d.event, d.lost = func(Captured) bool { return true }, func(Losses) {}
	if _, err := d.watch(ctx); err != nil {
		t.Errorf("watch decisions: %v", err)
	}
	w := &watch{dev: "lv0", rules: map[uint32]generation.SlotCounter{},
		before: map[string][2]uint64{}}
	if err := w.open(t.Context()); err != nil {
		t.Errorf("watch logs: %v", err)
	}
	again := &watch{dev: "lv0", rules: map[uint32]generation.SlotCounter{},
		before: map[string][2]uint64{}}
	if err := again.open(t.Context()); err == nil {
		t.Error("two watch the logs")
	}
	again.close()
	w.close()
	for _, name := range []string{"behind", "watch"} {
		files := must2(filepath.Glob(filepath.Join(os.Getenv(store.RunEnv), "state/*", name)))
		if len(files) != 1 || must2(os.Stat(files[0])).Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %q", name, files)
		}
	}
}
