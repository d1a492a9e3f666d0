package loader

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/kernel"
)

// Cost is the time that a program takes for a packet, in nanoseconds.
type Cost struct {
	NsPerPacket float64 // median over the rounds of (program - empty)
	NsEmpty     float64 // median of the empty program, the loop of BPF_PROG_RUN included
	Spread      float64 // half the distance between the quartiles of (program - empty)
	Rounds      []float64
}

// BenchRounds counts the measurements of A B B A: enough for quartiles.
const BenchRounds = 7

// Bench measures the program against an empty one of the same kind, which drops at once. Each round
// runs empty, program, program, empty over all frames, repeat times each, so that a drift of the
// clock rate falls on both alike; round 0 warms up and is thrown away. Frames are of 14 bytes or
// more. One frame takes 32 x repeat x (cost of a packet), and about a second more without the right
// to make network namespaces: the kernel then needs some 25 ms to set up and take down each run.
func (r *Runner) Bench(frames [][]byte, repeat int) (Cost, error) {
	if len(frames) == 0 || repeat < 1 {
		return Cost{}, errors.New("measure program: it needs at least one frame and one repeat")
	}
	for _, f := range frames {
		if len(f) < minFrame {
			return Cost{},
				fmt.Errorf("measure program: a frame of %d bytes cannot be run, 14 is the least",
					len(f))
		}
	}
	empty, err := emptyProgram(r.hook)
	if err != nil {
		return Cost{}, err
	}
	defer empty.Close()

	if r.hook == ebpf.XDP {
		for _, prog := range []*ebpf.Program{empty, r.Loaded.Prog} {
			if release, err := kernel.HoldDispatched(prog); err == nil { // it only saves time
				defer release()
			}
		}
	}
	var c Cost
	var base []float64
	for round := range BenchRounds + 1 {
		var ns [4]float64
		for i, p := range [4]*ebpf.Program{empty, r.Loaded.Prog, r.Loaded.Prog, empty} {
			if ns[i], err = runAll(p, frames, repeat); err != nil {
				return Cost{}, err
			}
		}
		if round > 0 {
			base = append(base, (ns[0]+ns[3])/2)
			c.Rounds = append(c.Rounds, (ns[1]+ns[2])/2-(ns[0]+ns[3])/2)
		}
	}
	sorted := slices.Sorted(slices.Values(c.Rounds))
	slices.Sort(base)
	c.NsPerPacket = sorted[len(sorted)/2]
	c.NsEmpty = base[len(base)/2]
	c.Spread = (sorted[len(sorted)*3/4] - sorted[len(sorted)/4]) / 2
	return c, nil
}

// runAll returns the mean time of one packet in ns, by the kernel's own clock, which cuts each
// frame's mean down to whole nanoseconds. A clock around the system call would include the two RCU
// grace periods in which the kernel enters the program into its XDP dispatcher and removes it.
func runAll(p *ebpf.Program, frames [][]byte, repeat int) (float64, error) {
	var total time.Duration
	for _, f := range frames {
		_, d, err := p.Benchmark(f, repeat, nil)
		if err != nil {
			return 0, runError(err, len(f))
		}
		total += d
	}
	return float64(total.Nanoseconds()) / float64(len(frames)), nil
}

func emptyProgram(hook ebpf.ProgramType) (*ebpf.Program, error) {
	ret := int32(XdpDrop)
	if hook == ebpf.SchedCLS {
		ret = TcxDrop
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "levee_empty",
		Type:         hook,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, ret), asm.Return()},
		License:      "GPL",
	})
	return p, kernel.LoadError("load the empty program", err)
}
