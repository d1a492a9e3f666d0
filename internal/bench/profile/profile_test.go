package profile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/bench"
	"levee/internal/bench/benchtest"
	"levee/internal/bench/flood"
	"levee/internal/bench/ladder"
	"levee/internal/kernel"
)

// record is a struct perf_event_header with its body.
func record(kind uint32, misc uint16, body ...uint64) []byte {
	b := binary.NativeEndian.AppendUint32(nil, kind)
	b = binary.NativeEndian.AppendUint16(b, misc)
	b = binary.NativeEndian.AppendUint16(b, uint16(8+8*len(body)))
	for _, w := range body {
		b = binary.NativeEndian.AppendUint64(b, w)
	}
	return b
}

const (
	markKernel = ^uint64(127) // PERF_CONTEXT_KERNEL
	inKernel   = unix.PERF_RECORD_MISC_KERNEL
	inUser     = unix.PERF_RECORD_MISC_USER
)

func TestRecordsAreRead(t *testing.T) {
	text := slices.Concat(
		record(unix.PERF_RECORD_SAMPLE, inKernel, 0xffff1, 7, 3, markKernel, 0xffff1, 0xffff0),
		record(unix.PERF_RECORD_COMM, 0, 1, 2),
		record(unix.PERF_RECORD_LOST, 0, 99, 5),
		record(unix.PERF_RECORD_SAMPLE, inUser, 0x1000, 8, 2, ^uint64(511), 0x1000),
		record(unix.PERF_RECORD_SAMPLE, inKernel, 0xffff1, 0, 0),
	)
	got, lost, err := parseRecords(text)
	if err != nil || lost != 5 || len(got) != 3 {
		t.Fatalf("%d samples, %d lost, %v", len(got), lost, err)
	}
	if s := got[0]; s.pid != 7 || s.user || !slices.Equal(s.stack, []uint64{0xffff1, 0xffff0}) {
		t.Errorf("kernel sample %+v", s)
	}
	if s := got[1]; s.pid != 8 || !s.user || s.stack != nil {
		t.Errorf("user sample %+v", s)
	}
}

func TestBrokenRecordsAreRefused(t *testing.T) {
	whole := record(unix.PERF_RECORD_SAMPLE, inKernel, 1, 7, 2, 1, 2)
	for name, b := range map[string][]byte{
		"half a header":    whole[:5],
		"half a record":    whole[:20],
		"no length":        make([]byte, 16),
		"a long chain":     record(unix.PERF_RECORD_SAMPLE, inKernel, 1, 7, 3, 1, 2),
		"a huge chain":     record(unix.PERF_RECORD_SAMPLE, inKernel, 1, 7, 1<<61, 1),
		"a short sample":   record(unix.PERF_RECORD_SAMPLE, inKernel, 1, 7),
		"a sample of none": record(unix.PERF_RECORD_SAMPLE, inKernel),
	} {
		if _, _, err := parseRecords(b); err == nil {
			t.Errorf("%s gave no error", name)
		}
	}
}

func FuzzRecords(f *testing.F) {
	f.Add(record(unix.PERF_RECORD_SAMPLE, inKernel, 1, 7, 2, 1, 2))
	f.Add(record(unix.PERF_RECORD_LOST, 0, 1, 7))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, _, _ := parseRecords(b)
		for _, s := range out {
			if len(s.stack) > maxStack {
				t.Errorf("a stack of %d", len(s.stack))
			}
		}
	})
}

const kallsyms = `ffffffff81000000 T _stext
ffffffff81000100 t __pfx_do_idle
ffffffff81000110 t do_idle
ffffffff81000200 D data
ffffffff81000300 T nft_do_chain
ffffffff81000400 T asm_sysvec_apic_timer_interrupt
ffffffff81000500 W memcpy
ffffffff81000600 t run_ksoftirqd
ffffffffc0000000 t veth_poll	[veth]
ffffffffc0000100 t helper_of_veth	[veth]
ffffffffc0200000 t bpf_prog_6deef7357e7b4530_x	[bpf]
`

func TestFunctionsAreFoundByAddress(t *testing.T) {
	s, err := parseKallsyms(strings.NewReader(kallsyms))
	if err != nil {
		t.Fatal(err)
	}
	s.programs = []program{{0xffffffffc0200000, 0xffffffffc0200100, "bpf_prog_x", 7}}
	for ip, want := range map[uint64]string{
		0: "[unknown]", 0xffffffff80ffffff: "[unknown]", 0xffffffff81000000: "_stext",
		0xffffffff81000105: "_stext",
		0xffffffff810002ff: "do_idle", 0xffffffff81000300: "nft_do_chain",
		0xffffffffc0000050: "veth_poll", 0xffffffffc02000ff: "bpf_prog_x",
		0xffffffffc0200100: "[unknown]", 0xffffffff81010601: "[unknown]",
		math.MaxUint64: "[unknown]",
	} {
		if got := s.at(ip); got.name != want {
			t.Errorf("%#x is in %s, want %s", ip, got.name, want)
		}
	}
	if s.hidden() {
		t.Error("addresses that are there are called hidden")
	}
	if s, err := parseKallsyms(strings.NewReader("0000000000000000 T _stext\n0000000000000000 T " +
		"do_idle\n")); err != nil || !s.hidden() {
		t.Errorf("addresses that are all zero are not called hidden: %v", err)
	}
	if _, err := parseKallsyms(strings.NewReader("zz T x\n")); err == nil {
		t.Error("an address that is none gave no error")
	}
}

func TestSamplesAreClassed(t *testing.T) {
	s, err := parseKallsyms(strings.NewReader(kallsyms))
	if err != nil {
		t.Fatal(err)
	}
	s.programs = []program{{0xffffffffc0200000, 0xffffffffc0200100, "bpf_prog_x", 7}}
	c := classifier{symbols: s, drivers: []string{"veth"}, own: []uint32{5, 6}}
	const (
		stext, idle, nft, irq, memcpy = 0xffffffff81000001, 0xffffffff81000120, 0xffffffff81000310,
			0xffffffff81000410, 0xffffffff81000510
		softirqd                    = 0xffffffff81000610
		veth, inVeth, prog, nowhere = 0xffffffffc0000010, 0xffffffffc0000110, 0xffffffffc0200010,
			0xffffffffd0000000
	)
	for _, v := range []struct {
		name string
		s    sample
		want Class
	}{
		{"user space", sample{pid: 5, user: true}, User},
		{"a program", sample{pid: 5, stack: []uint64{prog, veth}}, Program},
		{"what a program calls", sample{pid: 5, stack: []uint64{memcpy, stext, prog, veth}},
			Helper},
		{"an interrupt of a program", sample{pid: 5, stack: []uint64{memcpy, irq, prog, veth}},
			Kernel},
		{"netfilter", sample{pid: 5, stack: []uint64{nft, stext, veth}}, Netfilter},
		{"what netfilter calls", sample{pid: 5, stack: []uint64{memcpy, nft, veth}}, Netfilter},
		{"a program within netfilter", sample{pid: 5, stack: []uint64{prog, nft}}, Program},
		{"the driver by name", sample{pid: 5, stack: []uint64{veth, stext}}, Driver},
		{"the driver by module", sample{pid: 5, stack: []uint64{inVeth, stext}}, Driver},
		{"what the driver calls", sample{pid: 5, stack: []uint64{memcpy, veth}}, Kernel},
		{"idle", sample{stack: []uint64{idle, stext}}, Idle},
		{"an interrupt of idle", sample{stack: []uint64{memcpy, irq, idle}}, Kernel},
		{"the driver in an interrupt of idle", sample{stack: []uint64{veth, irq, idle}}, Driver},
		{"a program in an interrupt of idle", sample{stack: []uint64{prog, veth, irq, idle}},
			Program},
		{"nowhere", sample{pid: 5, stack: []uint64{nowhere, stext}}, Unknown},
		{"no stack", sample{pid: 5}, Unknown},
		{"another task in user space", sample{pid: 7, user: true}, Others},
		{"another task's netfilter", sample{pid: 7, stack: []uint64{nft, stext}}, Others},
		{"another task's program", sample{pid: 7, stack: []uint64{prog, stext}}, Others},
		{"an interrupt of another task", sample{pid: 7, stack: []uint64{memcpy, irq, nft}}, Kernel},
		{"the driver in an interrupt of another task",
			sample{pid: 7, stack: []uint64{veth, irq, stext}}, Driver},
		{"the thread of soft interrupts", sample{pid: 8, stack: []uint64{prog, veth, softirqd}},
			Program},
	} {
		if got, _ := c.class(&v.s, c.resolve(&v.s)); got != v.want {
			t.Errorf("%s is %s, want %s", v.name, got, v.want)
		}
	}
}

func TestSharesAddUp(t *testing.T) {
	for _, idle := range []float64{0, 0.25, 1} {
		x := window{samples: 6, idle: idle}
		split := x.split(map[Class]float64{Driver: 3, Program: 2, Unknown: 1})
		sum := 0.0
		for _, v := range split {
			sum += v
		}
		if math.Abs(sum-100) > 1e-9 {
			t.Errorf("idle %g: %g %%", idle, sum)
		}
	}
}

func TestIdleTimeInTheFlameGraph(t *testing.T) {
	for _, v := range []struct {
		w    window
		want int
	}{{window{samples: 75, idle: 0.25}, 25}, {window{samples: 75}, 0},
		{window{samples: 1, idle: 1}, 0}} {
		if got := v.w.idleSamples(); got != v.want {
			t.Errorf("%+v: %d, want %d", v.w, got, v.want)
		}
	}
}

func TestIdleTimeIsRead(t *testing.T) {
	a, err := parseTimes("cpu  9 9 9 9 9 9 9 9\ncpu1 10 0 10 20 5 0 5 0 0 0\n", 1)
	if err != nil || a.idle != 25 || a.all != 50 {
		t.Fatalf("%+v, %v", a, err)
	}
	if got := (times{idle: 35, all: 90}).idleSince(a); got != 0.25 {
		t.Errorf("idle %g", got)
	}
	if got := a.idleSince(a); got != 0 {
		t.Errorf("idle of no time %g", got)
	}
	for _, text := range []string{"", "cpu1 1 2\n", "cpu1 a 0 0 0 0 0 0 0\n"} {
		if _, err := parseTimes(text, 1); err == nil {
			t.Errorf("%q gave no error", text)
		}
	}
}

func TestRungsAreFoundByTheirBeginning(t *testing.T) {
	names := []string{"xdp drop", "xdp-filter", "levee", "nft netdev ingress (one rule)",
		"nft netdev ingress", "tc (one)", "tc (two)"}
	for asked, want := range map[string]string{"levee": "levee", "lev": "levee",
		"nft": "nft netdev ingress", "nft netdev ingress (": "nft netdev ingress (one rule)",
		"xdp d": "xdp drop"} {
		if got, err := rung(asked, names); err != nil || got != want {
			t.Errorf("%s: %q, %v", asked, got, err)
		}
	}
	for asked, want := range map[string]string{"": "which rung", "xdp": "any of", "tc": "any of",
		"ipfw": "there is no rung"} {
		if _, err := rung(asked, names); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", asked, err)
		}
	}
}

func TestReasonsAreGrouped(t *testing.T) {
	got := grouped([]string{"took 83.5 % of it", "took 7 % of it", "a socket", "took 12 % of it"})
	if !slices.Equal(got, []string{"a socket", "took 83.5 % of it (and 2 more such)"}) {
		t.Errorf("%q", got)
	}
}

// keepBusy has a core work for some time.
func keepBusy(t *testing.T, cpu int, d time.Duration) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread and its affinity end with the goroutine
		var set unix.CPUSet
		set.Set(cpu)
		err := unix.SchedSetaffinity(0, &set)
		for begun := time.Now(); err == nil && time.Since(begun) < d; {
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// seen is a window with samples of a program, idle for some percent of it.
func seen(samples, idle int) *window {
	w := newWindow(float64(idle) / 100)
	w.samples = samples
	w.stacks["p"] = &stack{functions: []string{"napi_poll", "bpf_prog_x"}, class: Program,
		count: float64(samples)}
	return w
}

func TestSharesAreOfValidWindowsOnly(t *testing.T) {
	w := &observer{Options: &Options{}}
	rung := &flood.Rung{Name: "levee", What: "it"}
	for i := range 6 {
		w.windows = append(w.windows, seen(90-i, 10+i), seen(1000, 0))
		rung.Windows = append(rung.Windows, flood.Window{PPS: 1e6},
			flood.Window{Invalid: []string{fmt.Sprintf("steal of %d %%", i)}})
	}
	w.windows = append(w.windows, seen(5, 0)) // interrupted after its samples were taken
	r := &Report{Rung: "levee", Event: clockEvent}
	r.judge(w, rung)
	if r.Samples != 525 || len(r.PPS) != 6 || len(r.Shares) != len(Classes) ||
		!slices.Equal(r.Why, []string{"steal of 0 % (and 5 more such)"}) {
		t.Errorf("%d samples, %d windows, shares %v, why %q", r.Samples, len(r.PPS), r.Shares,
			r.Why)
	}
	for _, s := range r.Shares {
		if want := map[Class]float64{Program: 87.5,
			Idle: 12.5}[s.Class]; math.Abs(mean(s.Windows)-want) > 1e-9 {
			t.Errorf("%s: %g %%, want %g", s.Class, mean(s.Windows), want)
		}
	}
	if f := r.Functions[0]; f.Name != "bpf_prog_x" || f.Share != 87.5 {
		t.Errorf("first function %+v", f)
	}
	if svg := string(r.Flame(nil)); !strings.Contains(svg,
		"<title>napi_poll: 87.50 %, 525 samples</title>") {
		t.Errorf("no such frame in\n%s", svg)
	}
	var b strings.Builder
	if err := r.Text(&b); err != nil ||
		!strings.Contains(b.String(), "1.00 Mpps (1.00-1.00) while sampled, 6 windows") ||
		!strings.Contains(b.String(), "85.0-90.0") {
		t.Errorf("%v:\n%s", err, b.String())
	}
	if err := r.Document().JSON(io.Discard, nil); err != nil {
		t.Errorf("as a document: %v", err)
	}

	w.windows = w.windows[:3] // no longer told apart
	r = &Report{Rung: "levee"}
	r.judge(w, rung)
	if len(r.Shares) != 0 || !strings.Contains(strings.Join(r.Why, "; "), "cannot be told apart") {
		t.Errorf("shares %v, why %q", r.Shares, r.Why)
	}
}

// TestSharesAreToldByRate: each rate has the windows of its own traffic.
func TestSharesAreToldByRate(t *testing.T) {
	w := &observer{Options: &Options{}}
	rung := &flood.Rung{Name: "levee"}
	rates := []float64{250e3, 1e6, 4e6}
	for range 6 {
		for i, rate := range rates[:2] {
			w.windows = append(w.windows, seen(20+60*i, 80-60*i))
			rung.Windows = append(rung.Windows, flood.Window{PPS: rate,
				Traffic: ladder.AtRate(traffic, rate)})
		}
	}
	r := &Report{Rung: "levee", Event: clockEvent}
	for _, rate := range rates {
		r.Rates = append(r.Rates, &Rate{Rate: rate})
	}
	r.judge(w, rung)
	for i, want := range []map[Class]float64{{Program: 20, Idle: 80}, {Program: 80, Idle: 20}} {
		at := r.Rates[i]
		if len(at.PPS) != 6 || len(at.Shares) != len(Classes) {
			t.Fatalf("%g: %d windows, %d shares", at.Rate, len(at.PPS), len(at.Shares))
		}
		for _, s := range at.Shares {
			if math.Abs(mean(s.Windows)-want[s.Class]) > 1e-9 {
				t.Errorf("%g, %s: %g %%, want %g", at.Rate, s.Class, mean(s.Windows), want[s.Class])
			}
		}
	}
	if got := r.Lacking(); !slices.Equal(got, []string{"4M packets/s"}) {
		t.Errorf("lacking is %q", got)
	}
	benchtest.Output(t, r, "packets/s offered", "250k", "all rates together")
}

func needRoot(t *testing.T) {
	t.Helper()
	if err := kernel.Privileged(); err != nil {
		t.Skip("needs root: ", err)
	}
}

func TestSamplesOfACoreAreTaken(t *testing.T) {
	needRoot(t)
	s, err := newSampler(0, 997, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	names, err := readKernel()
	if err != nil {
		t.Fatal(err)
	}
	if err := names.readPrograms(); err != nil {
		t.Fatal(err)
	}
	if err := s.on(); err != nil {
		t.Fatal(err)
	}
	keepBusy(t, 0, 300*time.Millisecond) // an idle core need not give samples
	if err := s.off(); err != nil {
		t.Fatal(err)
	}
	got, err := s.take()
	if err != nil {
		t.Fatal(err)
	}
	if s.event == clockEvent && (len(got) < 30 || len(got) > 1000) { // 300 without disturbance
		t.Errorf("%d samples in 300 ms at 997 a second", len(got))
	}
	unknown, c := 0, classifier{symbols: names, drivers: []string{labDriver}}
	for i := range got {
		if class, _ := c.class(&got[i], c.resolve(&got[i])); class == Unknown {
			unknown++
		}
	}
	if unknown > len(got)/10 {
		t.Errorf("%d of %d samples are unknown", unknown, len(got))
	}
	if again, err := s.take(); err != nil || len(again) != 0 {
		t.Errorf("the same samples again: %d, %v", len(again), err)
	}
}

func TestAnInterruptedProfileSaysSoAndLeavesNothing(t *testing.T) {
	needRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	after := time.AfterFunc(time.Hour, cancel)
	defer after.Stop()
	progress := func(p bench.Progress) {
		if p.Step == 1 {
			after.Reset(2 * time.Second) // of eight or more
		}
	}
	r, err := Run(ctx, Options{Options: bench.Options{Quick: true, Command: "levee bench profile",
		Progress: progress}, Rung: "xdp drop"})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want that it was interrupted", err)
	}
	if names, err := filepath.Glob(fmt.Sprintf("/run/netns/levee-%d-*", os.Getpid())); err != nil ||
		len(names) > 0 {
		t.Errorf("left namespaces %q, %v", names, err)
	}
	if r == nil {
		t.Fatal("no report")
	}
	var b strings.Builder
	if err := r.Text(&b); err != nil || !strings.Contains(b.String(), "INCOMPLETE: interrupted") ||
		!strings.Contains(b.String(), "repeat: levee bench profile") {
		t.Errorf("%v:\n%s", err, b.String())
	}
	svg := string(r.Flame(nil))
	if d := r.Document(); d.Incomplete == "" {
		t.Errorf("document %+v", d)
	}
	if len(r.Shares) == 0 { // others used the core: the rules leave no window
		if len(r.Why) == 0 {
			t.Errorf("neither shares nor a reason:\n%s", b.String())
		}
		return
	}
	sum := 0.0
	for _, s := range r.Shares {
		sum += mean(s.Windows)
	}
	if math.Abs(sum-100) > 1e-6 {
		t.Errorf("shares add up to %g:\n%s", sum, b.String())
	}
	if d := r.Document(); len(d.Charts[0].Series[0].Points) != len(Classes) {
		t.Errorf("document %+v", d)
	}
	if !strings.Contains(svg, "napi_threaded_poll") {
		t.Error("a flame graph without the receiving thread")
	}
}

func TestOptionsThatCannotBeMeasuredAreRefused(t *testing.T) {
	for _, o := range []Options{
		{Rung: "ipfw"}, {}, {Rung: "levee", Options: bench.Options{Rounds: 5}},
		{Rung: "levee", Options: bench.Options{Rounds: 51}},
		{Rung: "levee", Options: bench.Options{Window: time.Minute}},
		{Rung: "levee", Frequency: 5}, {Rung: "levee", Frequency: 1e6},
		{Rung: "levee", Policy: []byte("drop everything"), PolicyName: "bad.levee"},
	} {
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	err := refusal(unix.EACCES)
	if !errors.Is(err, kernel.ErrRefused) ||
		!strings.Contains(err.Error(), "kernel.perf_event_paranoid is") ||
		!strings.Contains(err.Error(), "run it as root") {
		t.Errorf("%v", err)
	}
}
