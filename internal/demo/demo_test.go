package demo

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test's own binary play the roles of the demo.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "role" {
		if err := Role(context.Background(), os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestTry(t *testing.T) {
	if os.Getenv("TRY") == "" {
		t.Skip()
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT)
	defer stop()
	o := Options{Self: []string{"/proc/self/exe", "role"}, Out: os.Stdout, Act: 6 * time.Second, Picture: "/tmp/demo.svg"}
	o.Self[0], _ = os.Executable()
	if p := os.Getenv("POLICY"); p != "" {
		o.Policy, _ = os.ReadFile(p)
		o.Name = "demo.levee"
	}
	o.Capture = os.Getenv("CAP")
	o.Terminal = os.Getenv("TERMINAL") != ""
	if err := Run(ctx, o); err != nil {
		t.Error(err)
	}
}
