package datapath

import (
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// newClock gives the kernel's jiffies and the length of one. Jiffies follow CLOCK_MONOTONIC, so the
// kernel is asked once and the clock does the rest, without a system call.
func newClock() (now func() uint64, tick time.Duration, err error) {
	start, hz, err := jiffies()
	if err != nil {
		return nil, 0, kernel.Refuse(err, "read the kernel's clock of leases and trials")
	}
	begun := time.Now()
	tick = time.Second / time.Duration(hz)
	return func() uint64 { return start + uint64(time.Since(begun)/tick) }, tick, nil
}

// jiffies is the value of the clock that a trial ends by, and its ticks a second.
func jiffies() (uint64, uint64, error) {
	var res unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &res); err != nil {
		return 0, 0, err
	}
	var half [2]uint32
	for i := range half {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
			asm.FnJiffies64.Call(), asm.RSh.Imm(asm.R0, int32(32*(1-i))), asm.Return(),
		}})
		if err != nil {
			return 0, 0, err
		}
		half[i], _, err = p.Test(make([]byte, 14))
		p.Close()
		if err != nil {
			return 0, 0, err
		}
	}
	return uint64(half[0])<<32 | uint64(half[1]), uint64(time.Second) / uint64(res.Nsec), nil
}
