package dataplane

import (
	"context"
	"errors"
	"strings"
	"testing"

	"levee/internal/await"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
)

func bring(t testing.TB, dev string, mode store.Mode, p *policy.Policy) *Report {
	t.Helper()
	r, err := Up(context.Background(),
		UpOptions{Dev: dev, Mode: mode, PolicyPath: "/etc/" + p.File,
			Source: []byte("x")}, compileHand(p))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestUpAttachesInEveryModeAndDownLeavesNothing(t *testing.T) {
	n := newTestNet(t)
	for _, mode := range append(allModes(t), store.Auto) {
		n.run(t, string(mode), func(t *testing.T) {
			before := kernelObjects(t)
			r := bring(t, "lv0", mode, handPolicy("odd", action.Pass))
			want := mode
			if mode == store.Auto {
				want = store.XDPNative
			}
			if r.Mode != want || r.Generation != 1 {
				t.Errorf("report %+v, want mode %s, generation 1", r, want)
			}
			n.send(t, 7, 1)
			n.send(t, 5, 2)
			wantPackets(t, "odd", 7)
			a := status(t)
			if packets(&a, "default") < 5 {
				t.Errorf("default counted %d, want 5 or more", packets(&a, "default"))
			}
			if a.Dev != "lv0" || a.Mode != want || a.Program.Name != handName() ||
				a.Program.XlatedLen == 0 || a.Trial != 0 {
				t.Errorf("status %+v", a)
			}
			if _, err := Down(context.Background(), "lv0"); err != nil {
				t.Fatal(err)
			}
			await.OK(t, func() error { return nothingAdded(t, before) })
			runDirIsGone(t)
		})
	}
}

func TestUpFallsBackWhereTheDriverHasNoNativeXDP(t *testing.T) {
	newTestNet(t)
	addIfb(t, "ifb0")
	r := bring(t, "ifb0", store.Auto, handPolicy("odd", action.Pass))
	t.Log(r.Reason)
	tc := must2(attach.TCIngress())
	want := "has no native XDP; using " + string(tc)
	if r.Mode != tc || !strings.Contains(r.Reason, want) {
		t.Errorf("mode %s, reason %q", r.Mode, r.Reason)
	}
	if _, err := Down(context.Background(), "ifb0"); err != nil {
		t.Fatal(err)
	}
	_, err := Up(context.Background(), UpOptions{Dev: "ifb0", Mode: store.XDPNative},
		compileHand(handPolicy("odd", action.Pass)))
	if !errors.Is(err, kernel.ErrRefused) || !strings.Contains(err.Error(), "has no native XDP") {
		t.Errorf("native XDP forced: %v", err)
	}
	runDirIsGone(t)
}
