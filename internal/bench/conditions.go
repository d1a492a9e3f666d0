package bench

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"levee/internal/bench/calibration"
	"levee/internal/report"
)

// Conditions hold the speed of the machine while something was measured: a figure taken while
// neighbours had the cache is of another machine.
type Conditions struct {
	// Load is the ns of a load over a chain of 6 MB that was just visited, Step that of an
	// operation among many, Wait that of a load from the first level of cache (package
	// calibration): medians over the readings, and the least and most of the former.
	Load      float64    `json:"load_ns"`
	LoadRange [2]float64 `json:"load_range_ns"`
	Step      float64    `json:"step_ns"`
	StepRange [2]float64 `json:"step_range_ns"`
	Wait      float64    `json:"wait_ns"`
}

// ConditionsOf sums readings up, nil of none.
func ConditionsOf(readings []calibration.Reading) *Conditions {
	if len(readings) == 0 {
		return nil
	}
	var load, step, wait []float64
	for _, r := range readings {
		load, step, wait = append(load, r.Load), append(step, r.Step), append(wait, r.Wait)
	}
	c := &Conditions{LoadRange: [2]float64{slices.Min(load), slices.Max(load)},
		StepRange: [2]float64{slices.Min(step), slices.Max(step)}}
	c.Load, _, _ = report.Summary(load)
	c.Step, _, _ = report.Summary(step)
	c.Wait, _, _ = report.Summary(wait)
	return c
}

// Observer reads the machine between rounds, and keeps what it read. The caller's thread must be
// locked to its goroutine.
type Observer struct {
	Take func() calibration.Reading
	All  []calibration.Reading
}

// Observe begins. end gives the memory of it back.
func Observe() (x *Observer, end func() error, err error) {
	m, err := calibration.New()
	if err != nil {
		return nil, nil, err
	}
	return &Observer{Take: m.Read}, m.Close, nil
}

// Read takes a reading.
func (x *Observer) Read() calibration.Reading {
	r := x.Take()
	x.All = append(x.All, r)
	return r
}

// Conditions returns the conditions of all readings.
func (x *Observer) Conditions() *Conditions { return ConditionsOf(x.All) }

// Write writes the report of rounds for a person: the conditions, if there are any, and what print
// adds.
func (c *Conditions) Write(w io.Writer, h *Head, print func(*Text)) error {
	t := h.Text(fmt.Sprintf("; %d rounds, medians with 95 %% intervals", h.Rounds),
		"; these are the figures until then")
	if c != nil {
		t.Printf("memory: a chain over 6 MB took %.0f ns a load (%.0f to %.0f), the core %.3f ns "+
			"an operation (%.3f to %.3f): compare with runs of which these are the same\n",
			c.Load, c.LoadRange[0], c.LoadRange[1], c.Step, c.StepRange[0], c.StepRange[1])
	}
	print(t)
	t.Printf("\n")
	return t.End(w, h)
}

// Cell returns the load in a table.
func (c *Conditions) Cell() string {
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f (%.0f-%.0f)", c.Load, c.LoadRange[0], c.LoadRange[1])
}

// Factors within which two readings are of the same machine.
const (
	SameLoad = 1.5
	SameStep = 1.15 // above the scatter, and below what a neighbour on a core's other thread costs
)

// Set adds the conditions to what two documents must have in common.
func (c *Conditions) Set(d *report.Document) {
	if c != nil {
		d.Setup = append(d.Setup,
			report.Setting{Name: "ns of a load, chain over 6 MB",
				Value: fmt.Sprintf("%.1f", c.Load), Within: SameLoad},
			report.Setting{Name: "ns of an operation", Value: fmt.Sprintf("%.4f", c.Step),
				Within: SameStep})
	}
}

// KernelMemory returns what the kernel uses for itself, in bytes: unreclaimable slabs, virtual
// mappings and data of each CPU (/proc/meminfo). What maps, sets and rules are made of is in one of
// them.
func KernelMemory() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	var sum int64
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "SUnreclaim:", "VmallocUsed:", "Percpu:":
			kb, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("reading /proc/meminfo: %w", err)
			}
			sum += kb << 10
		}
	}
	return sum, nil
}
