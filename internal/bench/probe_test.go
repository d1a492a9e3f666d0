package bench

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCoreTimesComeFromTheRightLines(t *testing.T) {
	const before = "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 90 0 90 20 0 0 0 0 0 0\ncpu1 10 0 10 780 0 0 0 0 0 0\nintr 1\n"
	const after = "cpu  200 0 200 980 10 0 0 10 0 0\ncpu0 100 0 100 110 0 0 0 0 0 0\ncpu1 100 0 100 780 10 0 0 10 0 0\nintr 1\n"
	a, err := parseCPU(before, 1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := parseCPU(after, 1)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.busy(a); got != 0.95 { // 10 of 200 ticks waiting for a disk
		t.Errorf("busy %g, want 0.95", got)
	}
	if got := b.stolen(a); got != 0.025 { // 10 of 400
		t.Errorf("steal %g, want 0.025", got)
	}
	if _, err := parseCPU(before, 7); err == nil {
		t.Error("a core that is not there gave no error")
	}
}

func TestTablesOfProcNet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snmp")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("Ip: InReceives InDelivers\nIp: 7 5\nTcp: MaxConn\nTcp: -1\n")
	m, err := readTable(path)
	if err != nil || m["Ip.InReceives"] != 7 || m["Ip.InDelivers"] != 5 {
		t.Errorf("%v, %v", m, err)
	}
	write("Ip: InReceives InDelivers\nIp: 7\n")
	if _, err := readTable(path); err == nil {
		t.Error("a line without its values gave no error")
	}
	write("Ip6InReceives                   \t3\n")
	if m, err := readPairs(path); err != nil || m["Ip6InReceives"] != 3 {
		t.Errorf("%v, %v", m, err)
	}
}
