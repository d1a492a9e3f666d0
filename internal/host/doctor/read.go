package doctor

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"levee/internal/host/lost"
)

// tree is a root directory with /proc and /sys in it: "" for this machine's.
type tree string

func (t tree) path(p string) string { return string(t) + p }

// line returns the first line of a file, "" if there is none.
func (t tree) line(p string) string {
	text, err := os.ReadFile(t.path(p))
	if err != nil {
		return ""
	}
	s, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(s)
}

// number returns the number in a file.
func (t tree) number(p string) (int, bool) {
	n, err := strconv.Atoi(t.line(p))
	return n, err == nil
}

func (t tree) glob(pattern string) []string {
	files, err := filepath.Glob(t.path(pattern))
	if err != nil {
		return nil // the pattern is ours
	}
	for i := range files {
		files[i] = strings.TrimPrefix(files[i], string(t))
	}
	return files
}

// ReadHost reads the machine, as the calling thread's network namespace sees it. Steal is taken
// over the time given; ctx ends that wait early, and steal is then unknown.
func ReadHost(ctx context.Context, sample time.Duration) *Host { return tree("").host(ctx, sample) }

func (t tree) host(ctx context.Context, sample time.Duration) *Host {
	h := &Host{
		CPUs: runtime.NumCPU(), Page: os.Getpagesize(),
		Governors:    map[string]int{},
		Linux:        t.line("/proc/sys/kernel/osrelease"),
		JIT:          t.line("/proc/sys/net/core/bpf_jit_enable"),
		Harden:       t.line("/proc/sys/net/core/bpf_jit_harden"),
		Unprivileged: t.line("/proc/sys/kernel/unprivileged_bpf_disabled"),
	}
	for _, f := range t.glob("/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor") {
		h.Governors[t.line(f)]++
	}
	for _, f := range t.glob("/sys/devices/system/cpu/vulnerabilities/*") {
		if h.Mitigations == nil {
			h.Mitigations = map[string]string{}
		}
		if v := t.line(f); strings.HasPrefix(v, "Mitigation") ||
			strings.HasPrefix(v, "Vulnerable") {
			h.Mitigations[filepath.Base(f)] = v
		}
	}
	if v, ok := t.number("/sys/devices/system/cpu/intel_pstate/no_turbo"); ok {
		on := v == 0
		h.Turbo = &on
	} else if v, ok := t.number("/sys/devices/system/cpu/cpufreq/boost"); ok {
		on := v == 1
		h.Turbo = &on
	}
	if v, ok := t.number("/sys/devices/system/cpu/smt/active"); ok {
		h.Threads = v == 1
	}
	h.IdleStates = t.idleStates()
	h.Conntrack = t.conntrack()
	h.Sockets = t.packetSockets()
	h.IRQBalance = t.running("irqbalance")
	h.Processes = t.line("/proc/1/comm") != ""
	h.Softnet = t.softnet()
	h.BusyPoll = t.line("/proc/sys/net/core/busy_read")
	h.Netfilter, h.Audit = netfilter(t), audit()
	h.Steal = t.steal(ctx, sample)
	return h
}

func (t tree) idleStates() (out []IdleState) {
	for _, dir := range t.glob("/sys/devices/system/cpu/cpu0/cpuidle/state[0-9]*") {
		latency, ok := t.number(dir + "/latency")
		if !ok {
			continue
		}
		out = append(out, IdleState{
			Name: t.line(dir + "/name"), ExitMicros: latency,
			Disabled: t.line(dir+"/disable") == "1",
		})
	}
	return out
}

func (t tree) conntrack() *Conntrack {
	count, ok := t.number("/proc/sys/net/netfilter/nf_conntrack_count")
	limit, ok2 := t.number("/proc/sys/net/netfilter/nf_conntrack_max")
	if !ok || !ok2 {
		return nil
	}
	c := &Conntrack{Count: count, Max: limit}
	for _, row := range t.rows("/proc/net/stat/nf_conntrack") {
		c.Dropped += hex(row["drop"]) + hex(row["early_drop"])
	}
	return c
}

// rows reads a table whose first line names the columns.
func (t tree) rows(p string) (out []map[string]string) {
	var names []string
	t.lines(p, func(line string) {
		f := strings.Fields(line)
		if names == nil {
			names = f
			return
		}
		row := map[string]string{}
		for i := range min(len(f), len(names)) {
			row[names[i]] = f[i]
		}
		out = append(out, row)
	})
	return out
}

func (t tree) lines(p string, each func(string)) {
	f, err := os.Open(t.path(p))
	if err != nil {
		return
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		each(s.Text())
	}
}

func hex(s string) uint64 {
	n, _ := strconv.ParseUint(s, 16, 64) // no such column is 0
	return n
}

// packetSockets reads /proc/net/packet (net/packet/af_packet.c, packet_seq_show) and finds who has
// each.
func (t tree) packetSockets() (out []PacketSocket) {
	inode := map[string]int{}
	for _, row := range t.rows("/proc/net/packet") {
		if hex(row["Proto"]) == 0 {
			continue // bound to no protocol: it sees nothing
		}
		device, _ := strconv.Atoi(row["Iface"])
		inode["socket:["+row["Inode"]+"]"] = len(out)
		out = append(out, PacketSocket{Device: device})
	}
	if len(out) == 0 {
		return nil
	}
	for _, link := range t.glob("/proc/[0-9]*/fd/*") {
		to, err := os.Readlink(t.path(link))
		if err != nil {
			continue
		}
		if i, ok := inode[to]; ok && out[i].Process == "" {
			pid := strings.Split(link, "/")[2]
			out[i].Process = fmt.Sprintf("%s (%s)", t.line("/proc/"+pid+"/comm"), pid)
		}
	}
	return out
}

// running tells whether a process has this name.
func (t tree) running(name string) bool {
	return slices.ContainsFunc(t.glob("/proc/[0-9]*/comm"),
		func(f string) bool { return t.line(f) == name })
}

// softnet adds up what the CPUs say of their backlogs.
func (t tree) softnet() *Softnet {
	all := lost.Backlogs(string(t))
	if all == nil {
		return nil
	}
	s := &Softnet{}
	for _, b := range all {
		s.Dropped += b.Dropped
		s.Squeezed += b.Squeezed
	}
	return s
}

// steal returns the share of CPU time stolen within the time.
func (t tree) steal(ctx context.Context, sample time.Duration) *float64 {
	before, all, ok := t.cpuTimes()
	if !ok || sample <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(sample):
	}
	after, all2, ok := t.cpuTimes()
	if !ok || all2 <= all {
		return nil
	}
	share := float64(after-before) / float64(all2-all)
	return &share
}

// cpuTimes reads the line "cpu" of /proc/stat: user nice system idle iowait irq softirq steal
// (proc_stat(5)).
func (t tree) cpuTimes() (stolen, all uint64, ok bool) {
	f := strings.Fields(t.line("/proc/stat"))
	if len(f) < 9 || f[0] != "cpu" {
		return 0, 0, false
	}
	for i, s := range f[1:9] {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return 0, 0, false
		}
		all += n
		if i == 7 {
			stolen = n
		}
	}
	return stolen, all, true
}
