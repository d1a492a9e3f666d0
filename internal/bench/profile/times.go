package profile

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// times of a core in clock ticks (proc_stat(5)); waiting for a disk is idle.
type times struct{ idle, all uint64 }

func readTimes(cpu int) (times, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return times{}, err
	}
	return parseTimes(string(text), cpu)
}

// parseTimes reads user nice system idle iowait irq softirq steal; guest times are in user already.
func parseTimes(text string, cpu int) (t times, err error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 9 || f[0] != fmt.Sprintf("cpu%d", cpu) {
			continue
		}
		for i, word := range f[1:9] {
			n, err := strconv.ParseUint(word, 10, 64)
			if err != nil {
				return t, fmt.Errorf("reading /proc/stat: %w", err)
			}
			t.all += n
			if i == 3 || i == 4 {
				t.idle += n
			}
		}
		return t, nil
	}
	return t, fmt.Errorf("/proc/stat has no core %d", cpu)
}

// coresIn lists the cores of /proc/stat: those that are online.
func coresIn(text string) (all []int, err error) {
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, " ")
		number, isCore := strings.CutPrefix(name, "cpu")
		if !isCore || number == "" {
			continue
		}
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("reading /proc/stat: %w", err)
		}
		all = append(all, n)
	}
	if len(all) == 0 {
		return nil, errors.New("/proc/stat names no core")
	}
	return all, nil
}

// idleSince returns the share of the time, 0 to 1.
func (t times) idleSince(before times) float64 {
	if t.all <= before.all || t.idle < before.idle {
		return 0
	}
	return min(1, float64(t.idle-before.idle)/float64(t.all-before.all))
}
