package app

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/await"
	"levee/internal/lab"
	"levee/internal/lab/labtest"
)

// newApplication is an application on a lab's server.
func newApplication(t *testing.T) (*Application, *lab.Lab) {
	t.Helper()
	l := labtest.New(t)
	s, err := Listen(l.Host(lab.Server), 9999, -1, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, l
}

// wait returns the count once it is want or more.
func wait(t *testing.T, s *Application, want uint64) (n uint64) {
	t.Helper()
	await.OK(t, func() (err error) {
		if n, err = s.Received(); err == nil && n < want {
			err = fmt.Errorf("%d of %d datagrams were received", n, want)
		}
		return err
	})
	return n
}

func TestItCountsEveryDatagramOfBothFamilies(t *testing.T) {
	s, l := newApplication(t)
	labtest.Send(t, l, s.Port(), 100)
	if n := wait(t, s, 200); n != 200 {
		t.Errorf("received %d, want 200", n)
	}
	if n := len(s.Threads()); n != 2 {
		t.Errorf("%d threads, want one a family", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing it again: %v", err)
	}
}

func TestAFilterKeepsEverythingOutUntilItIsTakenOff(t *testing.T) {
	s, l := newApplication(t)
	seen, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8,
		MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Close()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SocketFilter, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMapValue(asm.R1, seen.FD(), 0),
			asm.Mov.Imm(asm.R2, 1),
			asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
			asm.Mov.Imm(asm.R0, 0), // keep 0 bytes
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := s.Attach(p.FD()); err != nil {
		t.Fatal(err)
	}
	labtest.Send(t, l, s.Port(), 50)
	await.OK(t, func() error {
		var n uint64
		if err := seen.Lookup(uint32(0), &n); err != nil || n < 100 {
			return fmt.Errorf("the filter saw %d of 100: %v", n, err)
		}
		return nil
	})
	await.OK(t, func() error {
		if n, err := s.Lost(); err != nil || n != 100 {
			return fmt.Errorf("the sockets have lost %d of 100: %v", n, err)
		}
		return nil
	})
	if err := s.Detach(); err != nil {
		t.Fatal(err)
	}
	if err := s.Detach(); err != nil {
		t.Errorf("taking off what is not there: %v", err)
	}
	labtest.Send(t, l, s.Port(), 10)
	if n := wait(t, s, 20); n != 20 {
		t.Errorf("received %d, want the 20 that came without the filter", n)
	}
}

func TestAPortThatIsTakenIsAnError(t *testing.T) {
	s, l := newApplication(t)
	if _, err := Listen(l.Host(lab.Server), s.Port(), -1, false); err == nil {
		t.Error("two applications on one port")
	}
}
