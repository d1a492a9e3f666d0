package host

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Fact is one thing about a machine in words.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Frequency is the name of the fact that changes by itself.
const Frequency = "Frequency"

// String returns the machine in one line.
func (m *Info) String() string {
	var out []string
	if m.CPU != "" {
		out = append(out, m.CPU)
	}
	if m.Cores > 0 {
		out = append(out, fmt.Sprintf("%d cores", m.Cores))
	}
	if release, _, _ := strings.Cut(m.Kernel, " "); release != "" {
		out = append(out, "Linux "+release)
	}
	if m.Hypervisor {
		out = append(out, "virtual machine")
	}
	return strings.Join(out, ", ")
}

// Facts lists all that is known, always in the same order.
func (m *Info) Facts() []Fact {
	known := func(yes bool, value string) string {
		if !yes {
			return ""
		}
		return value
	}
	virtual := "no"
	if m.Hypervisor {
		virtual = "yes"
	}
	out := []Fact{
		{"Processor", m.CPU},
		{"Cores", known(m.Cores > 0, fmt.Sprint(m.Cores))},
		{Frequency, known(m.MHz != "", m.MHz+" MHz when looked at")},
		{"Governor", m.Governor},
		{"Virtual machine", known(m.Kernel != "", virtual)},
		{"Architecture", m.Arch},
		{"Kernel", m.Kernel},
		{"Preemption", m.Preemption},
		{"bpf_jit_enable", m.JIT},
		{"bpf_jit_harden", m.JITHarden},
	}
	for _, name := range slices.Sorted(maps.Keys(m.Tools)) {
		out = append(out, Fact{name, m.Tools[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(m.Mitigations)) {
		out = append(out, Fact{"Mitigation " + name, m.Mitigations[name]})
	}
	return slices.DeleteFunc(out, func(f Fact) bool { return f.Value == "" })
}
