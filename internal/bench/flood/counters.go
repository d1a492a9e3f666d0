package flood

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/lab"
	"levee/internal/lab/contender"
)

// sample holds the counters that are read at both ends of a window.
type sample struct {
	at       time.Time
	skew     time.Duration // how long reading took
	received uint64
	reached  uint64        // datagrams that the application has taken
	schedule schedule      // of the receiving thread
	thread   time.Duration // run time of the receiving thread
	app      time.Duration // run time of the application
	cpu      CPUTimes
	hardware []float64 // nil without such counters
}

// maxSkew is the longest that taking a sample may last: 0.02 % of a window of one second.
const maxSkew = 200 * time.Microsecond

// take reads the counters; it tries again when it was interrupted in between.
func (l *Lab) take() (sample, error) {
	var s sample
	for range 20 {
		before := time.Now()
		var err error
		if s.received, err = l.taken(); err != nil {
			return s, err
		}
		s.at = before
		if s.schedule, err = readSchedule(l.napi); err != nil {
			return s, err
		}
		if s.thread, err = l.threadTime.Ran(); err != nil {
			return s, err
		}
		if l.app != nil {
			if s.reached, err = l.app.Received(); err != nil {
				return s, err
			}
			if s.app, err = l.appTime.Ran(); err != nil {
				return s, err
			}
		}
		if s.hardware, err = l.hardware.counts(); err != nil {
			return s, err
		}
		if s.skew = time.Since(before); s.skew <= maxSkew {
			break
		}
	}
	var err error
	s.cpu, err = l.cpuTimes()
	return s, err
}

// taken returns what the receiver has taken from its ring, by the driver's count. The calling
// thread is in the namespace of the server.
func (l *Lab) taken() (uint64, error) {
	c, err := lab.Counters(l.device)
	n, ok := c[contender.Received]
	if ok || err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return n, err
	}
	link, err := netlink.LinkByName(l.device)
	if err != nil || link.Attrs().Statistics == nil {
		return 0, fmt.Errorf("reading the counters of %s: %w", l.device, err)
	}
	return link.Attrs().Statistics.RxPackets, nil
}

func (l *Lab) cpuTimes() (CPUTimes, error) {
	text, err := l.procStat()
	if err != nil {
		return CPUTimes{}, err
	}
	return parseCPU(text, l.ReceiverCPU)
}

// ReadCPU reads the times of a core, and of all together.
func ReadCPU(cpu int) (CPUTimes, error) {
	text, err := readProcStat()
	if err != nil {
		return CPUTimes{}, err
	}
	return parseCPU(text, cpu)
}

// schedule holds a thread's times by the scheduler: for how long it ran, and for how long it could
// have run while something else did.
type schedule struct{ ran, waited time.Duration }

// readSchedule reads the first two fields of /proc/PID/schedstat, in ns.
func readSchedule(pid int) (s schedule, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err == nil {
		_, err = fmt.Sscan(string(text), (*int64)(&s.ran), (*int64)(&s.waited))
	}
	if err != nil {
		return s, fmt.Errorf("reading the run time of thread %d: %w", pid, err)
	}
	return s, nil
}

// CPUTimes are of /proc/stat, in clock ticks.
type CPUTimes struct {
	idle, all        uint64 // of the receiving core; waiting for a disk is idle
	steal, allOfThem uint64 // of all cores
}

func readProcStat() (string, error) {
	text, err := os.ReadFile("/proc/stat")
	return string(text), err
}

// parseCPU reads the lines "cpu" and "cpuN": user nice system idle iowait irq softirq steal; guest
// times are in user already (proc_stat(5)).
func parseCPU(text string, cpu int) (CPUTimes, error) {
	var c CPUTimes
	found := 0
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 9 || f[0] != "cpu" && f[0] != fmt.Sprintf("cpu%d", cpu) {
			continue
		}
		var v [8]uint64
		var all uint64
		for i := range v {
			n, err := strconv.ParseUint(f[i+1], 10, 64)
			if err != nil {
				return c, fmt.Errorf("reading /proc/stat: %w", err)
			}
			v[i] = n
			all += n
		}
		found++
		if f[0] == "cpu" {
			c.steal, c.allOfThem = v[7], all
		} else {
			c.idle, c.all = v[3]+v[4], all
		}
	}
	if found != 2 {
		return c, fmt.Errorf("/proc/stat has no core %d", cpu)
	}
	return c, nil
}

// busy returns the share of the core's time since an earlier reading in which it did something.
func (c CPUTimes) busy(before CPUTimes) float64 {
	return 1 - ratio(c.idle-before.idle, c.all-before.all)
}

// Stolen returns the share of all cores' time since an earlier reading that the hypervisor took.
func (c CPUTimes) Stolen(before CPUTimes) float64 {
	return ratio(c.steal-before.steal, c.allOfThem-before.allOfThem)
}

// stack holds the counters of a namespace's network stack.
type stack struct {
	received  uint64 // packets that reached IP, both families
	delivered uint64 // packets that IP handed to a protocol of this host
	overflow  uint64 // datagrams for which their socket had no room
	martians  uint64 // packets that IP dropped because of their addresses
	tracker   uint64 // flows that conntrack refused or threw out, its table being full
}

// readStack reads /proc/net of the calling thread's namespace; martians are those of a core.
func readStack(cpu int) (stack, error) {
	var s stack
	for _, file := range []string{"snmp", "netstat"} {
		c, err := readTable("/proc/thread-self/net/" + file)
		if err != nil {
			return s, err
		}
		s.received += c["Ip.InReceives"]
		s.delivered += c["Ip.InDelivers"]
		s.overflow += c["Udp.RcvbufErrors"] + c["Udp.MemErrors"]
		s.martians += c["Ip.InHdrErrors"] + c["Ip.InAddrErrors"] + c["IpExt.InNoRoutes"] +
			c["TcpExt.IPReversePathFilter"]
	}
	six, err := readPairs("/proc/thread-self/net/snmp6")
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // no IPv6
		return s, err
	}
	s.received += six["Ip6InReceives"]
	s.delivered += six["Ip6InDelivers"]
	s.overflow += six["Udp6RcvbufErrors"] + six["Udp6MemErrors"]
	s.martians += six["Ip6InHdrErrors"] + six["Ip6InAddrErrors"] + six["Ip6InNoRoutes"]
	routes, err := readPerCPU("/proc/thread-self/net/stat/rt_cache")
	if err != nil {
		return s, err
	}
	// One row a core, and the counts of all namespaces: other cores do not count.
	if cpu < len(routes) {
		s.martians += routes[cpu]["in_martian_src"] + routes[cpu]["in_martian_dst"]
	}
	tracker, err := readPerCPU("/proc/thread-self/net/stat/nf_conntrack")
	for _, c := range tracker {
		s.tracker += c["drop"] + c["early_drop"]
	}
	return s, err
}

// readPerCPU reads a line of names, and below it one of hexadecimal values for each core; nothing
// where there is no such file.
func readPerCPU(path string) ([]map[string]uint64, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	names := strings.Fields(lines[0])
	var out []map[string]uint64
	for _, l := range lines[1:] {
		values := strings.Fields(l)
		if len(values) != len(names) {
			return nil, fmt.Errorf("%s has an unknown form", path)
		}
		row := map[string]uint64{}
		for i, v := range values {
			n, err := strconv.ParseUint(v, 16, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			row[names[i]] = n
		}
		out = append(out, row)
	}
	return out, nil
}

// readTable reads lines of names, each followed by one of values under the same heading.
func readTable(path string) (map[string]uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]uint64{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		names := strings.Fields(lines.Text())
		if !lines.Scan() {
			break
		}
		values := strings.Fields(lines.Text())
		if len(names) != len(values) || len(names) == 0 || names[0] != values[0] {
			return nil, fmt.Errorf("%s has an unknown form", path)
		}
		for i := 1; i < len(names); i++ {
			// Some values are negative (-1 for "no limit"); none of those is used here.
			n, _ := strconv.ParseUint(values[i], 10, 64)
			out[strings.TrimSuffix(names[0], ":")+"."+names[i]] = n
		}
	}
	return out, lines.Err()
}

// readPairs reads lines of a name and a number.
func readPairs(path string) (map[string]uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 {
			n, err := strconv.ParseUint(f[1], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			out[f[0]] = n
		}
	}
	return out, nil
}
