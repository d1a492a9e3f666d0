// Package doctor says what in a machine, a network card or a kernel costs packets, how much, how
// sure that is, and which command mends it.
//
// In go files of /proc and /sys, answers of the driver (ethtool) and of the kernel (netlink); out
// comes a list of findings, the same for the same facts. Reading and judging are apart: Read
// collects Facts, Examine judges them and touches nothing. The package must never change a setting,
// attach a program, or fail because a machine does not tell something: what is not known is said to
// be unknown.
package doctor

// State is the outcome of one check.
type State string

// The states, from the best.
const (
	OK      State = "ok"
	Unknown State = "unknown" // the machine does not tell
	Note    State = "note"    // no fault, but worth knowing before attaching or measuring
	Costs   State = "costs"   // packets or time are lost
	// a policy cannot be attached natively, or would judge packets wrongly
	Breaks State = "breaks"
)

// Sure names the source of the statement about the cost.
type Sure string

// How sure a statement is.
const (
	Counted   Sure = "read"       // a counter or setting of this machine says so
	Documents Sure = "documented" // the kernel's or the driver's source or manual says so
	Expected  Sure = "expected"   // usual, but it depends on the load: measure
)

// Finding is the result of one check. Names of JSON fields stay once shipped.
type Finding struct {
	Name  string `json:"name"`  // of the check: "lro", "governor"
	About string `json:"about"` // "device", "cpu" or "kernel"
	State State  `json:"state"`
	Value string `json:"value"`           // what was read
	Cost  string `json:"cost,omitempty"`  // what it costs, or what to know
	Sure  Sure   `json:"sure,omitempty"`  // of the cost
	Mend  string `json:"mend,omitempty"`  // a command to type
	Where string `json:"where,omitempty"` // where the statement can be checked

	Measured *Measured `json:"measured,omitempty"` // with --measure, what the advice gains,
	Untried  string    `json:"untried,omitempty"`  // or why it was not measured
}

// unless returns the finding, or all is well and the value says why.
func unless(well bool, value string, f Finding) Finding {
	if well {
		return Finding{Name: f.Name, State: OK, Value: value}
	}
	return f
}

// Examine judges the facts: first the device, then the CPUs, then the kernel. dev may be nil.
func Examine(h *Host, dev *Device) []Finding {
	var out []Finding
	if dev != nil {
		out = append(out, device(dev, h)...)
	}
	out = append(out, cpu(h, dev)...)
	return append(out, system(h, dev)...)
}

// Worst returns the worst state among the findings; unknown is better than a note.
func Worst(findings []Finding) State {
	order := map[State]int{OK: 0, Unknown: 1, Note: 2, Costs: 3, Breaks: 4}
	worst := OK
	for _, f := range findings {
		if order[f.State] > order[worst] {
			worst = f.State
		}
	}
	return worst
}
