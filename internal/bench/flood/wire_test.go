package flood

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/await"
	"levee/internal/bench"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/echo"
	"levee/internal/lab/labtest"
	"levee/internal/lab/peer"
)

// TestMain is the other end of a wire where the test's binary was copied for that.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "peer" {
		if err := peer.Serve(context.Background(), peer.Serving{Version: "test"}, os.Stdin,
			os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestAFloodComesFromAnotherMachine: between two namespaces, each of which stands for a machine
// with a card, and a command in the place of ssh.
//
//	here, eth0 --------- eth0, there: the copied binary
func TestAFloodComesFromAnotherMachine(t *testing.T) {
	here, there := labtest.Machines(t)
	shell := filepath.Join(t.TempDir(), "shell")
	// by ip netns exec, whose /sys is of the namespace, as a machine's is
	if err := os.WriteFile(shell, []byte("#!/bin/sh\nexec ip netns exec $1 sh -c \"$2\"\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	o := &Options{Options: bench.Options{Window: 50 * time.Millisecond, Rounds: bench.MinRounds},
		Warmup: 20 * time.Millisecond, Wire: &Wire{Dev: "eth0", Own: true, Config: peer.Config{
			Host: there.Namespace, Shell: []string{shell}, Program: os.Args[0], Version: "test",
			Device: "eth0"}}}
	if err := o.Complete(Many); err != nil {
		t.Fatal(err)
	}
	if err := here.Do(func() error {
		if !goesBy(t.Context(), "root@198.18.0.2", "eth0") || goesBy(t.Context(), "127.0.0.1",
			"eth0") || goesBy(t.Context(), "198.18.0.2", "eth7") {
			t.Error("where packets leave is not known")
		}
		// as the command has it without --rsh
		by := *o.Wire
		by.Host, by.Shell = "root@198.18.0.2", strings.Fields("")
		if _, err := Open(t.Context(), &Options{Wire: &by}); !errors.Is(err, lab.ErrInUse) ||
			!strings.Contains(err.Error(), "goes by it") {
			t.Errorf("the interface by which ssh goes: %v", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var l *Lab
	err := here.Do(func() (err error) {
		l, err = Open(t.Context(), o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	defer func() {
		if !closed {
			l.Close()
		}
	}()
	if err := l.Listen(Port, true); err != nil {
		t.Fatal(err)
	}
	for _, d := range []contender.Defence{contender.XDPDrop(), OneRule(), contender.TCDrop(),
		contender.Recvmmsg()} {
		for try := 1; ; try++ {
			w := oneWindow(t, l, d)
			if w.Received >= minPackets && w.Refused == w.Offered-w.Received &&
				w.OffBalance() <= 0.001 {
				break
			}
			if try == 20 { // a busy machine spoils some
				t.Errorf("%s: %d offered, %d refused, %d received: %d dropped, %d passed on, %d "+
					"without room; %v", d.Name(), w.Offered, w.Refused, w.Received, w.Dropped,
					w.PassedOn, w.Overflow, w.Invalid)
				break
			}
		}
	}
	service, err := echo.Serve(l.Server, l.In().IPv4.Addr(), l.ReceiverCPU)
	if err != nil {
		t.Fatal(err)
	}
	await.OK(t, func() error { // a busy machine may take longer than these are waited for
		took, err := l.Probe(t.Context(), echo.Probes{At: []int64{0, 1e6, 2e6, 50e6}, ID: 1,
			Patience: 100 * time.Millisecond})
		if err == nil && (len(took) != 4 || slices.Max(took) < 1000) {
			err = fmt.Errorf("round trips of probes: %v", took)
		}
		return err
	})
	if err := errors.Join(service.Err(), service.Close()); err != nil {
		t.Fatal(err)
	}
	wantInvalid(t, l, contender.Nothing(), "the rung let")
	path := strings.Join(l.Path(), "\n")
	for _, want := range []string{"receiver: eth0 (veth)", "generator: eth0 (veth)", "core ",
		"live frames", "clocks: the peer's is "} {
		if !strings.Contains(path, want) {
			t.Errorf("the path does not say %q:\n%s", want, path)
		}
	}
	closed = true
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*lab.Host{here, there} {
		if err := h.Do(func() error { _, err := lab.Free("eth0"); return err }); err != nil {
			t.Errorf("%s: %v", h.Name, err)
		}
	}
	if left, _ := filepath.Glob(os.Getenv("TMPDIR") + "/*"); len(left) > 0 {
		t.Errorf("the peer has left %s", left)
	}
}
