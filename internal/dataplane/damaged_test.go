package dataplane

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
)

// onExpiredTrial leaves new.levee on lv0 behind its deadline, over old.levee.
func onExpiredTrial(t *testing.T) {
	t.Helper()
	bring(t, "lv0", store.Auto, named("old.levee", "odd"))
	bringOnTrial(t, named("new.levee", "odd"), time.Minute)
	expire(t)
}

// wantPolicy asks for the status, which has to tell of one policy, with notes that contain words.
func wantPolicy(t *testing.T, policy, words string) {
	t.Helper()
	all, notes, err := inspect.Status(context.Background(), false)
	if err != nil {
		t.Fatalf("%v, notes %q", err, notes)
	}
	if len(all) != 1 || all[0].Policy != policy || all[0].Trial != 0 {
		t.Errorf("%+v, want %s", all, policy)
	}
	if got := strings.Join(notes, "\n"); !strings.Contains(got, words) {
		t.Errorf("notes %q lack %q", notes, words)
	}
}

// TestStatusTellsOfAnExpiredTrialWhereNothingCanBeWritten: that the kernel has gone back is so,
// whether or not it can be noted down.
func TestStatusTellsOfAnExpiredTrialWhereNothingCanBeWritten(t *testing.T) {
	n := newTestNet(t)
	n.run(t, "full", func(t *testing.T) {
		onExpiredTrial(t)
		files, err := filepath.Glob(os.Getenv(store.RunEnv) + "/state/[0-9]*")
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		if err := os.Symlink("/dev/full",
			filepath.Join(files[0], store.CarriedFile+".tmp")); err != nil {
			t.Fatal(err)
		}
		wantPolicy(t, "/etc/old.levee", "no space left on device; it is shown as it is")
		wantPolicy(t, "/etc/old.levee", "new.levee was not confirmed in time")
	})
	n.run(t, "read-only", func(t *testing.T) {
		_, _ = Down(context.Background(), "lv0")
		onExpiredTrial(t)
		dir := os.Getenv(store.RunEnv)
		writable := readOnly(t, dir)
		wantPolicy(t, "/etc/old.levee", "read-only file system; it is shown as it is")
		var told error // in one line, with what to do
		err := store.OnHost(func() error {
			told = store.WriteJSON(filepath.Join(dir, "state", "x.json"), 1)
			return nil
		})
		if err != nil || told == nil || strings.Contains(told.Error(), "\n") ||
			!strings.Contains(told.Error(), "is "+dir+"/state mounted read-only?") {
			t.Errorf("%v, %v", told, err)
		}
		writable()
		wantPolicy(t, "/etc/old.levee", "new.levee was not confirmed in time")
	})
}

// readOnly has a directory mounted read-only until the function that it returns is called.
func readOnly(t *testing.T, dir string) (writable func()) {
	t.Helper()
	onHost := func(fn func() error) {
		if err := store.OnHost(fn); err != nil {
			t.Fatal(err)
		}
	}
	onHost(func() error {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
		return unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	})
	return func() { onHost(func() error { return unix.Unmount(dir, unix.MNT_DETACH) }) }
}

// TestDownWhereNothingCanBeWritten leaves the policy in force, and what was kept for it: it took
// the program off, and then said that it had failed.
func TestDownWhereNothingCanBeWritten(t *testing.T) {
	newTestNet(t)
	bring(t, "lv0", store.Auto, named("old.levee", "odd"))
	writable := readOnly(t, os.Getenv(store.RunEnv))
	_, err := Down(context.Background(), "lv0")
	if err == nil || !strings.Contains(err.Error(), "mounted read-only?") {
		t.Errorf("down where nothing can be written: %v", err)
	}
	wantPolicy(t, "/etc/old.levee", "")
	writable()
	wantPolicy(t, "/etc/old.levee", "")
	if _, err := Down(context.Background(), "lv0"); err != nil {
		t.Error(err)
	}
}

// TestAnUnmountedFileSystemIsTold: the policy has gone with it, and nothing else said so.
func TestAnUnmountedFileSystemIsTold(t *testing.T) {
	newTestNet(t)
	bring(t, "lv0", store.Auto, named("old.levee", "odd"))
	bpf := os.Getenv(store.RunEnv) + "/bpf"
	if err := store.OnHost(func() error { return unix.Unmount(bpf, 0) }); err != nil {
		t.Fatal(err)
	}
	all, notes, err := inspect.Status(context.Background(), false)
	if err != nil || len(all) != 0 || len(notes) != 1 ||
		!strings.Contains(notes[0], "the bpf file system at "+bpf+" has been unmounted") ||
		!strings.Contains(notes[0], "old.levee") {
		t.Errorf("%v, %q, %v", all, notes, err)
	}
}
