package flood

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCoreTimesComeFromTheRightLines(t *testing.T) {
	const before = "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 90 0 90 20 0 0 0 0 0 0\ncpu1 10 0 10 " +
		"780 0 0 0 0 0 0\nintr 1\n"
	const after = "cpu  200 0 200 980 10 0 0 10 0 0\ncpu0 100 0 100 110 0 0 0 0 0 0\ncpu1 100 0 " +
		"100 780 10 0 0 10 0 0\nintr 1\n"
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
	if got := b.Stolen(a); got != 0.025 { // 10 of 400
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

func TestStopwatchAndSchedulerAgreeOnAThreadThatIsAlone(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w := NewStopwatch(os.Getpid())
	defer w.Close()
	first, err := w.Ran()
	if err != nil {
		t.Fatal(err)
	}
	last, err := w.Ran()
	if err != nil || last < first {
		t.Errorf("%v after %v, %v", last, first, err)
	}
	plain := &Stopwatch{tids: []int{os.Getpid()}} // where the kernel has no perf
	if d, err := plain.Ran(); err != nil || d <= 0 {
		t.Errorf("by the scheduler: %v, %v", d, err)
	}
	if _, err := (&Stopwatch{tids: []int{-1}}).Ran(); err == nil {
		t.Error("a thread that is not there gave no error")
	}
}

func TestCountersOfACore(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: counts a whole core")
	}
	h := openEvents(0, unix.PERF_TYPE_SOFTWARE, []uint64{unix.PERF_COUNT_SW_CPU_CLOCK})
	defer h.close()
	if h.why != "" {
		t.Skipf("this kernel has no perf: %s", h.why)
	}
	a, err := h.counts()
	if err != nil {
		t.Fatal(err)
	}
	b, err := h.counts()
	if err != nil || len(b) != 1 || b[0] <= a[0] {
		t.Errorf("%v after %v, %v", b, a, err)
	}
	none := openEvents(0, unix.PERF_TYPE_SOFTWARE, []uint64{1 << 40})
	if c, err := none.counts(); none.why == "" || c != nil || err != nil {
		t.Errorf("an event that there is not: %v, %v, %q", c, err, none.why)
	}
}

func TestRowsPerCore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stat")
	if err := os.WriteFile(path, []byte("entries  drop early_drop\n00000001  0000000a "+
		"00000000\n00000001  00000001 000000ff\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rows, err := readPerCPU(path)
	if err != nil || len(rows) != 2 || rows[0]["drop"] != 10 || rows[1]["early_drop"] != 255 {
		t.Errorf("%v, %v", rows, err)
	}
	if err := os.WriteFile(path, []byte("entries drop\n00000001\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readPerCPU(path); err == nil {
		t.Error("a row without its values gave no error")
	}
	if rows, err := readPerCPU(path + "-none"); err != nil || rows != nil {
		t.Errorf("no file: %v, %v", rows, err)
	}
}
