package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// jitSwitch turns the compiler of eBPF programs on and off for the whole machine: 0 for off.
const jitSwitch = "/proc/sys/net/core/bpf_jit_enable"

// Interpreted runs f, which loads programs, while the compiler of eBPF programs (JIT) is off: they
// are interpreted for as long as they live. What others load meanwhile is, too; what was loaded
// before is not. The switch is back when f is over, whatever becomes of it; a process that is
// killed within f leaves it off. The error matches ErrRefused where the kernel has no interpreter.
func Interpreted(f func() error) error { return interpreted(jitSwitch, f) }

func interpreted(path string, f func() error) (err error) {
	s, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return Refuse(err, "this kernel has no compiler of eBPF programs that could be off")
	}
	if err != nil {
		return fmt.Errorf("turning the compiler of eBPF programs off: %w", err)
	}
	defer s.Close()
	// Whoever came second would take the 0 of the first for what the machine had.
	if err := unix.Flock(int(s.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("waiting for who has turned the compiler of eBPF programs off: %w", err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading whether eBPF programs are compiled: %w", err)
	}
	was := strings.TrimSpace(string(text))
	if was == "0" {
		return f()
	}
	// At once, and not in the place that reading has come to.
	put := func(v string) error { _, err := s.WriteAt([]byte(v+"\n"), 0); return err }
	if err := put("0"); err != nil {
		if errors.Is(err, unix.EINVAL) {
			return Refuse(nil, "this kernel has no interpreter of eBPF programs "+
				"(CONFIG_BPF_JIT_ALWAYS_ON): the JIT cannot be off; Debian's kernels have one")
		}
		return fmt.Errorf("turning the compiler of eBPF programs off: %w", err)
	}
	defer func() {
		if back := put(was); back != nil {
			err = errors.Join(err, fmt.Errorf("turning the compiler of eBPF programs on: %w; "+
				"sysctl net.core.bpf_jit_enable=%s does", back, was))
		}
	}()
	return f()
}
