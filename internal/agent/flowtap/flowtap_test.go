package flowtap

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/stream"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// TestRecordsThatWaitAreBoundedByTheirBytes: a client makes a record of 96 KiB out of a request of
// 16 KiB.
func TestRecordsThatWaitAreBoundedByTheirBytes(t *testing.T) {
	none := func(context.Context) ([]string, error) { return nil, nil }
	in := &reading{hub: &Hub{Devs: none}, reader: &stream.Reader{}}
	long := []byte(strings.Repeat("x", 96<<10))
	const records = 1000
	for range records {
		in.put(long)
	}
	waits := len(in.lines)
	if waits == 0 || waits*len(long) > mostBytes || in.tooMuch != uint64(records-waits) {
		t.Fatalf("%d of %d records wait, %d were told as lost", waits, records, in.tooMuch)
	}
	handed := 0
	more, err := in.Poll(1<<40, func([]byte) { handed++ })
	if more || err != nil || handed != waits {
		t.Fatalf("%d records were handed on, more: %v, %v", handed, more, err)
	}
	if in.put(long); len(in.lines) != 1 {
		t.Error("there is no room for a record behind those that were handed on")
	}
}

// TestAParserThatFailsIsToldOnce, with its protocol.
func TestAParserThatFailsIsToldOnce(t *testing.T) {
	none := func(context.Context) ([]string, error) { return nil, nil }
	in := &reading{hub: &Hub{Devs: none},
		reader: &stream.Reader{Protocol: stream.Named("tls"), Failed: 2}}
	for _, want := range []bool{true, false} {
		_, err := in.Poll(1, func([]byte) {})
		if (err != nil) != want || want && !strings.Contains(err.Error(), "parser of tls failed") {
			t.Errorf("%v", err)
		}
	}
}

// TestAnInterfaceWithoutItsNameWasAnAlarm: what is known of policies is up to two seconds old, and
// an interface that was renamed or deleted had the sources of flows fail.
func TestAnInterfaceWithoutItsNameWasAnAlarm(t *testing.T) {
	if err := kernel.Privileged(); err != nil {
		t.Skip(err)
	}
	t.Setenv(store.RunEnv, filepath.Join(t.TempDir(), "run"))
	h := &Hub{Devs: func(context.Context) ([]string, error) {
		return []string{"gone-levee0"}, nil
	}}
	if err := h.read(time.Now()); err != nil {
		t.Error(err)
	}
}
