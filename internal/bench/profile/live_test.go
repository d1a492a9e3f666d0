package profile

import (
	"context"
	"errors"
	"io"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"levee/internal/bench"
	"levee/internal/bench/benchtest"
	"levee/internal/dataplane/inspect"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/gen"
	"levee/internal/lab/labtest"
	"levee/internal/usage"
)

// TestAnInterfaceInServiceIsProfiled: its packets are judged as before, by the same program.
func TestAnInterfaceInServiceIsProfiled(t *testing.T) {
	labtest.NeedTwoCores(t)
	l := labtest.New(t)
	server, world := l.Host(lab.Server), l.Host(lab.World)
	dev := server.Devices[0].Name
	site := contender.Site{Host: server, Device: dev}
	up := contender.Levee("live.levee", []byte("drop udp as \"all of it\"\ndefault pass\n"))
	if err := up.Install(t.Context(), site); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := up.Remove(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	sending, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := gen.Run(sending, gen.Config{Namespace: world.Namespace,
			Device: world.Devices[0].Name, CPU: -1,
			Floods: []gen.Flood{{To: server.Devices[0].IPv4.Addr(),
				Sources: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}},
			Duration: time.Minute, Dropped: true})
		ended <- err
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	var r *Report
	program := func() (id uint32) {
		all, _, err := inspect.Status(t.Context(), false)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		return all[0].Program.ID
	}
	err := server.Do(func() (err error) {
		before := program()
		r, err = RunLive(t.Context(), LiveOptions{Dev: dev,
			Options: bench.Options{Rounds: 8, Window: 200 * time.Millisecond, Command: "levee"}})
		if after := program(); after != before {
			t.Errorf("program %d became %d", before, after)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Live.Policy != "live.levee" || r.Live.Hook != "xdp-native" || r.Live.Driver != labDriver ||
		len(r.Live.Cores) < 2 || r.Live.Took < 8*200*time.Millisecond || len(r.PPS) != 8 {
		t.Errorf("%+v, %d windows with packets", r.Live, len(r.PPS))
	}
	if slices.Max(r.PPS) == 0 {
		t.Error("no packet was seen")
	}
	sum := 0.0
	for _, s := range r.Shares {
		sum += mean(s.Windows)
	}
	if math.Abs(sum-100) > 1e-6 {
		t.Errorf("shares add up to %g", sum)
	}
	if len(r.Live.PerPacket) == 0 == (r.Live.WhyNone == "") {
		t.Errorf("%v ns a packet, and %q", r.Live.PerPacket, r.Live.WhyNone)
	}
	benchtest.Output(t, r, dev+": veth, policy live.levee at xdp-native",
		"packets a second arrived and were judged", "core, %", "of the time of the cores",
		"nothing was sent or attached")
	if svg := string(r.Flame(nil)); !strings.Contains(svg, dev+" in service") {
		t.Error("the flame graph does not say what it is of")
	}
}

// marker writes a mark whenever the profile waits for one.
func marker(marks ...string) (io.Reader, func(bench.Progress)) {
	in, out := io.Pipe()
	written := 0
	return in, func(p bench.Progress) {
		if p.Step <= written || !strings.Contains(p.Doing, "a line of standard input") {
			return
		}
		written = p.Step
		go func() { // nobody reads yet
			if p.Step > len(marks) {
				out.Close()
				return
			}
			_, _ = io.WriteString(out, marks[p.Step-1]+"\n")
		}()
	}
}

func TestAProfileGoesFromAMarkToAMark(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		name  string
		marks []string
		want  string
	}{
		{"two lines", []string{" quiet ", "flood"}, `from mark "quiet" to "flood"`},
		{"the end of the lines", []string{"quiet"}, `from mark "quiet" to ""`},
		{"a long name", []string{strings.Repeat("ä", 100), "x"},
			`from mark "` + strings.Repeat("ä", longestMark) + `" to "x"`},
		{"lines without a name", []string{"", ""}, "no policy of levee's"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, tell := marker(c.marks...)
			r, err := RunLive(t.Context(), LiveOptions{Dev: "lo", Marks: in, CPUs: []int{0},
				Options: bench.Options{Command: "levee", Progress: tell}})
			if err != nil {
				t.Fatal(err)
			}
			benchtest.Output(t, r, c.want, "no policy of levee's is in force on lo")
			if r.Live.Took <= 0 || len(r.Live.Cores) != 1 {
				t.Errorf("%+v", r.Live)
			}
		})
	}
}

func TestAProfileInServiceThatCannotBeIsRefused(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		o    LiveOptions
		want string
		is   error
	}{
		{LiveOptions{Dev: "nosuch0"}, "no interface", kernel.ErrRefused},
		{LiveOptions{Dev: "lo", CPUs: []int{9999}}, "there is no core 9999: online are 0",
			usage.ErrWrong},
		{LiveOptions{Dev: "lo", Marks: strings.NewReader("")}, "standard input has no mark",
			usage.ErrWrong},
		{LiveOptions{Dev: "lo", Frequency: 5}, "samples a second", usage.ErrWrong},
		{LiveOptions{Dev: "lo", Options: bench.Options{Rounds: 601}}, "601 rounds",
			usage.ErrWrong},
	} {
		r, err := RunLive(t.Context(), c.o)
		if r != nil || !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, %v", c.o, r, err)
		}
	}
}

// TestAnInterfaceGoesWhileItIsProfiled: the report would be of another one, or of none.
func TestAnInterfaceGoesWhileItIsProfiled(t *testing.T) {
	l := labtest.New(t)
	err := l.Host(lab.World).Do(func() error {
		d := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "gone0"}, PeerName: "gone1"}
		if err := netlink.LinkAdd(d); err != nil {
			return err
		}
		_, err := RunLive(t.Context(), LiveOptions{Dev: "gone0", Options: bench.Options{
			Progress: func(bench.Progress) { _ = netlink.LinkDel(d) }}})
		return err
	})
	if !errors.Is(err, kernel.ErrRefused) || !strings.Contains(err.Error(), "which has gone") {
		t.Errorf("%v", err)
	}
}

func TestAnInterruptedProfileInServiceSaysSo(t *testing.T) {
	needRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := RunLive(ctx, LiveOptions{Dev: "lo", Options: bench.Options{Command: "levee",
		Rounds: 600, Window: 100 * time.Millisecond, Progress: func(p bench.Progress) {
			if p.Step > 4 {
				cancel()
			}
		}}})
	if !errors.Is(err, context.Canceled) || r == nil {
		t.Fatal(r, err)
	}
	benchtest.Output(t, r, "INCOMPLETE: interrupted")
}

// at is what is counted under a policy's generation.
func at(generation int, packets uint64) *reading {
	return &reading{policy: "p", generation: generation, packets: packets,
		programs: []ebpf.ProgramID{7, 0}}
}

func TestNanosecondsOfAPacketAreThoseOfThePolicyItself(t *testing.T) {
	x := newWindow(0.5)
	x.samples, x.programs[7], x.programs[8] = 1000, 100, 300
	l := Live{Dev: "eth0"}
	for range 2 {
		l.packets(x, at(1, 0), at(1, 1e6), time.Second, 2)
	}
	l.end(&liveRun{LiveOptions: &LiveOptions{}, all: true, before: *at(1, 2e6)})
	// a tenth of half the time of two cores, for a million
	if !slices.Equal(l.PerPacket, []float64{100, 100}) {
		t.Errorf("%v ns: %s", l.PerPacket, l.WhyNone)
	}
	for _, c := range []struct {
		name string
		do   func(*Live)
		want string
	}{
		{"of some cores", func(l *Live) { l.packets(x, at(1, 0), at(1, 1e6), time.Second, 1) },
			"leave --cpu out"},
		{"replaced", func(l *Live) { l.packets(x, at(1, 0), at(2, 1e6), time.Second, 2) },
			"replaced"},
		{"came", func(l *Live) { l.packets(x, &reading{}, at(2, 1e6), time.Second, 2) }, "came"},
		{"no packet", func(l *Live) { l.packets(x, at(1, 5), at(1, 5), time.Second, 2) },
			"no packet"},
		{"few", func(l *Live) {
			few := newWindow(0)
			few.samples, few.programs[7] = 1000, 3
			l.packets(few, at(1, 0), at(1, 5), time.Second, 2)
		}, "3 samples of it are too few"},
	} {
		l := Live{Dev: "eth0"}
		c.do(&l)
		l.end(&liveRun{LiveOptions: &LiveOptions{}, all: c.name != "of some cores",
			before: *at(1, 0)})
		if len(l.PerPacket) > 0 || !strings.Contains(l.WhyNone, c.want) {
			t.Errorf("%s: %v ns, %q", c.name, l.PerPacket, l.WhyNone)
		}
	}
}

// TestACoreThatSleepsHadAsMuchSayAsOneThatWorks: where the hardware counts cycles both may give as
// many samples a second, and those of all cores shared what was not idle.
func TestACoreThatSleepsHadAsMuchSayAsOneThatWorks(t *testing.T) {
	asleep, awake := newWindow(0.9), newWindow(0)
	for x, class := range map[*window]Class{asleep: Program, awake: Kernel} {
		x.samples = 1000
		x.stacks[string(class)] = &stack{functions: []string{string(class)}, class: class,
			count: 1000}
	}
	asleep.programs[7] = 1000
	r := &Report{Live: &Live{CPUs: []int{0, 3}}}
	r.Live.core(0, asleep)
	r.Live.core(1, awake)
	r.begin()
	x := together([]*window{asleep, awake})
	r.add(x)
	r.Live.packets(x, at(1, 0), at(1, 1e6), time.Second, 2)
	r.end()
	r.Live.end(&liveRun{LiveOptions: &LiveOptions{}, all: true, before: *at(1, 1e6)})
	for _, s := range r.Shares {
		want := map[Class]float64{Program: 5, Kernel: 50, Idle: 45}[s.Class]
		if math.Abs(s.Windows[0]-want) > 1e-9 {
			t.Errorf("%s has %g %% of two cores, want %g", s.Class, s.Windows[0], want)
		}
	}
	if p := r.Live.PerPacket; len(p) != 1 || math.Abs(p[0]-100) > 1e-9 || r.Samples != 2000 {
		t.Errorf("%v ns a packet of %d samples, want 100 of 2000", p, r.Samples)
	}
	none := together([]*window{newWindow(1), newWindow(1)})
	if none.samples != 0 || none.idle != 1 {
		t.Errorf("two that slept give %+v", none)
	}
}

// TestTheTableOfCoresWasWiderThanATerminal of 80 columns.
func TestTheTableOfCoresWasWiderThanATerminal(t *testing.T) {
	l := &Live{Dev: "eth0", CPUs: []int{0, 100}}
	for _, cpu := range l.CPUs {
		shares := map[Class]float64{}
		for _, class := range Classes {
			shares[class] = 100
		}
		l.Cores = append(l.Cores, Core{CPU: cpu, Shares: shares,
			counts: map[Class]float64{Driver: 1}})
	}
	var b strings.Builder
	if err := (&Report{Rung: "eth0", Live: l}).Text(&b); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(b.String(), "core, %")
	for line := range strings.Lines("core, %" + table) {
		if len(line) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}

// TestFiltersInServiceCountWhoeverSends: in the lab other tasks have nothing to do with a rung, and
// in service their packets meet filters.
func TestFiltersInServiceCountWhoeverSends(t *testing.T) {
	text := kallsyms + "ffffffff81000700 t virtnet_poll\nffffffff81000800 t napi_threaded_poll\n"
	s, err := parseKallsyms(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	const prog = 0xffffffffc0200010
	s.programs = []program{{0xffffffffc0200000, 0xffffffffc0200100, "bpf_prog_x", 7}}
	c := classifier{symbols: s, drivers: []string{"virtio_net"}, live: true}
	const stext, nft, memcpy, poll, threaded = 0xffffffff81000001, 0xffffffff81000310,
		0xffffffff81000510, 0xffffffff81000710, 0xffffffff81000810
	for _, v := range []struct {
		name  string
		stack []uint64
		want  Class
		of    ebpf.ProgramID
	}{
		{"a program of who sends", []uint64{prog, stext}, Program, 7},
		{"what it calls", []uint64{memcpy, prog, stext}, Helper, 7},
		{"netfilter of who sends", []uint64{memcpy, nft, stext}, Netfilter, 0},
		{"his own work", []uint64{memcpy, stext}, Others, 0},
		{"a thread that receives", []uint64{memcpy, threaded}, Kernel, 0},
		{"its driver, by its functions", []uint64{poll, threaded}, Driver, 0},
	} {
		smp := sample{pid: 9, stack: v.stack}
		if got, of := c.class(&smp, c.resolve(&smp)); got != v.want || of != v.of {
			t.Errorf("%s is %s of %d, want %s of %d", v.name, got, of, v.want, v.of)
		}
	}
	user := sample{pid: 9, user: true}
	if got, _ := c.class(&user, nil); got != Others {
		t.Errorf("a task outside the kernel is %s", got)
	}
}

func TestCoresAreThoseOfTheMachine(t *testing.T) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	if all, err := coresIn(string(text)); err != nil || !slices.Contains(all, 0) {
		t.Errorf("%v, %v", all, err)
	}
	got, err := coresIn("cpu  1 2\ncpu0 1\ncpu2 1\nintr 5\n")
	if err != nil || !slices.Equal(got, []int{0, 2}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "cpu 1 2\n", "cpux 1\n"} {
		if got, err := coresIn(text); err == nil {
			t.Errorf("%q has cores %v", text, got)
		}
	}
}

// TestTheMemoryForSamplesIsAPowerOfTwo: perf_event_open(2) takes no other, and it holds what comes
// between two looks.
func TestTheMemoryForSamplesIsAPowerOfTwo(t *testing.T) {
	for _, f := range []int{50, 997, maxFrequency} {
		n := ringPages(f, time.Second)
		if n&(n-1) != 0 || n*pageSize < f*maxSample || n*pageSize > 4*f*maxSample {
			t.Errorf("%d pages for %d samples", n, f)
		}
	}
}
