// Package host reads the properties of a machine on which figures depend: kernel, processor,
// mitigations, and the versions of the tools beside levee in comparisons.
//
// Nothing goes in but the number of a core; out comes an Info, with empty fields where the machine
// does not tell. It must never change anything, and never fail: a report without a governor is
// still a report.
package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Info is the properties of a machine on which measured figures depend. What the machine does not
// tell is empty. Names of JSON fields stay once shipped.
type Info struct {
	Kernel      string            `json:"kernel"`
	Arch        string            `json:"arch"`
	CPU         string            `json:"cpu"`
	Cores       int               `json:"cores"`
	MHz         string            `json:"mhz"`
	Governor    string            `json:"governor"`
	Hypervisor  bool              `json:"hypervisor"`
	Mitigations map[string]string `json:"mitigations"` // those that apply
	JIT         string            `json:"bpf_jit_enable"`
	JITHarden   string            `json:"bpf_jit_harden"`
	Preemption  string            `json:"preemption"`
	Tools       map[string]string `json:"tools"` // versions of the peers
}

// Fingerprint reads the machine; frequency and governor are those of one core, counted from 0.
func Fingerprint(cpu int) Info {
	m := Info{
		Arch: runtime.GOARCH, Cores: runtime.NumCPU(),
		Governor: line(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor",
			cpu)),
		JIT:         line("/proc/sys/net/core/bpf_jit_enable"),
		JITHarden:   line("/proc/sys/net/core/bpf_jit_harden"),
		Mitigations: map[string]string{},
		Tools:       map[string]string{},
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Version[:])
	}
	for _, word := range strings.Fields(m.Kernel) {
		if strings.HasPrefix(word, "PREEMPT") {
			m.Preemption = word
		}
	}
	m.readCPUInfo(cpu)
	files, _ := filepath.Glob("/sys/devices/system/cpu/vulnerabilities/*")
	for _, f := range files {
		if s := line(f); s != "" && s != "Not affected" {
			m.Mitigations[filepath.Base(f)] = s
		}
	}
	for name, args := range map[string][]string{
		"nft": {"--version"}, "iptables": {"--version"}, "ipset": {"--version"},
		"xdp-filter": {"load", "--version"},
	} {
		if v := version(name, args); v != "" {
			m.Tools[name] = v
		}
	}
	return m
}

// readCPUInfo reads the block of one core in /proc/cpuinfo.
func (m *Info) readCPUInfo(cpu int) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return
	}
	for block := range strings.SplitSeq(string(text), "\n\n") {
		info := map[string]string{}
		for l := range strings.Lines(block) {
			if k, v, ok := strings.Cut(l, ":"); ok {
				info[strings.TrimSpace(k)] = strings.TrimSpace(v)
			}
		}
		if info["processor"] != fmt.Sprint(cpu) {
			continue
		}
		m.CPU, m.MHz = info["model name"], info["cpu MHz"]
		for _, f := range strings.Fields(info["flags"]) {
			m.Hypervisor = m.Hypervisor || f == "hypervisor"
		}
	}
}

func line(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	s, _, _ := strings.Cut(string(text), "\n")
	return s
}

// version returns the first line of what a program says about itself.
func version(name string, args []string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	s, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return s
}
