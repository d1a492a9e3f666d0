package session

import (
	"net"
	"os"
	"testing"
)

// TestAnInterfaceThatIsNotThereHasNoSessions: the command that attaches says that it is not there.
func TestAnInterfaceThatIsNotThereHasNoSessions(t *testing.T) {
	if got, err := On("nosuchdevice"); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// TestAncestorsEndBeforeTheFirstProcess: the parent is one, process 1 and this one are none.
func TestAncestorsEndBeforeTheFirstProcess(t *testing.T) {
	all := ancestors()
	if parent := os.Getppid(); parent > 1 && !all[parent] {
		t.Errorf("%v lacks the parent %d", all, parent)
	}
	if all[1] || all[0] || all[os.Getpid()] {
		t.Errorf("%v", all)
	}
	if parentOf(os.Getpid()) != os.Getppid() || parentOf(-1) != 0 {
		t.Errorf("the parent of %d is taken for %d", os.Getpid(), parentOf(os.Getpid()))
	}
}

// TestConnectionsOfTheMachineToItselfAreNoSessions, whoever holds them.
func TestConnectionsOfTheMachineToItselfAreNoSessions(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skipf("no TCP here: %v", err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all, _, err := sessions()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Remote.Addr().IsLoopback() {
			t.Errorf("%+v", s)
		}
	}
}
