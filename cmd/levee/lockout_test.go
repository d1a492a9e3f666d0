package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"levee/internal/cli"
	"levee/internal/dataplane/store"
	"levee/internal/host/session"
	"levee/internal/packet"
)

// upEnv is an environment that may load programs, of a machine with a session.
func upEnv(t *testing.T, text string, args ...string) (e *env, errs func() string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "edge.levee")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e, _, out, _ := testEnv(false, append([]string{"up", file, "--dev", "nosuchdevice"},
		args...)...)
	e.Privileged = func() error { return nil }
	e.Signals = func() (context.Context,
		context.CancelFunc) {
		return context.WithCancel(t.Context())
	}
	e.interfaces = func(names []string, _ bool) ([]string, error) { return names, nil }
	e.link = func(string) (packet.Link, error) { return packet.Ethernet, nil }
	t.Setenv(store.RunEnv, t.TempDir())
	e.sessions = func(dev string) ([]session.Session, error) {
		if dev != "nosuchdevice" {
			t.Errorf("sessions of %s were looked for", dev)
		}
		return []session.Session{{
			Local:  netip.MustParseAddrPort("198.51.100.1:22"),
			Remote: netip.MustParseAddrPort("192.0.2.7:50000"), What: "an SSH session",
			Again: true,
		}}, nil
	}
	return e, out.String
}

// TestUpRefusesToCutASession: before the machine is touched, with the rule and the way out.
func TestUpRefusesToCutASession(t *testing.T) {
	e, errs := upEnv(t, "default drop\n")
	want := "levee: refused: an SSH session, from 192.0.2.7:50000 to 198.51.100.1:22, would be " +
		"dropped by the default (edge.levee:1); " +
		"let it pass (`protect from 192.0.2.7 tcp port 22`), or use --force\n"
	if got := run(e); got != cli.ExitNo || errs() != want {
		t.Errorf("exit status %d, %q\nwant %q", got, errs(), want)
	}
}

// TestTheNextLoginWasLockedOutInSilence: the session that is open goes on, so nobody saw it.
func TestTheNextLoginWasLockedOutInSilence(t *testing.T) {
	const want = "levee: warning: who is logged in stays so, and cannot log in again: a new " +
		"connection such as an SSH session, from 192.0.2.7:50000 to 198.51.100.1:22, would be " +
		"dropped by the default (edge.levee:2); " +
		"let it pass (`protect from 192.0.2.7 tcp port 22`)\n"
	for text, warned := range map[string]bool{
		"pass established\ndefault drop\n":                       true,
		"pass established\npass tcp syn port 22\ndefault drop\n": false,
	} {
		e, errs := upEnv(t, text)
		run(e) // which ends with an error, as there is no such device
		if strings.Contains(errs(), want) != warned || strings.Contains(errs(), "refused") ||
			!warned && strings.Contains(errs(), "warning") {
			t.Errorf("%q: %q", text, errs())
		}
	}
	e, errs := upEnv(t, "pass established\ndefault drop\n")
	e.sessions = func(string) ([]session.Session, error) { return nil, nil } // a console, a boot
	if run(e); strings.Contains(errs(), "warning") {
		t.Errorf("without a session: %q", errs())
	}
}

// TestUpGoesOnWhereSessionsAreNotKnown: --confirm is the net below.
func TestUpGoesOnWhereSessionsAreNotKnown(t *testing.T) {
	e, errs := upEnv(t, "default drop\n")
	e.sessions = func(string) ([]session.Session, error) { return nil, errors.New("no sock_diag") }
	run(e)
	if got := errs(); !strings.HasPrefix(got,
		"levee: cannot look for SSH sessions that the policy might cut: no sock_diag\n") ||
		strings.Contains(got, "refused") || strings.Count(got, "sock_diag") != 1 {
		t.Errorf("%q", got)
	}
}

// TestUpWithForceLooksForNoSessions, and says nothing of them.
func TestUpWithForceLooksForNoSessions(t *testing.T) {
	e, errs := upEnv(t, "default drop\n", "--force")
	e.sessions = func(string) ([]session.Session, error) {
		t.Error("sessions were looked for")
		return nil, nil
	}
	if run(e); strings.Contains(errs(), "session") {
		t.Errorf("%q", errs())
	}
}
