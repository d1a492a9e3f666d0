package lab

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// jitSwitch turns the compiler of eBPF programs on and off for the whole machine: 0 for off.
const jitSwitch = "/proc/sys/net/core/bpf_jit_enable"

// Interpreted runs f, which loads programs, while the compiler of eBPF programs (JIT) is off: they
// are interpreted for as long as they live. What others load meanwhile is, too; what was loaded
// before is not. The switch is back when f is over, whatever becomes of it; that of a process that
// is killed within f is back with the next lab, Sweep or Interpreted. The error matches
// kernel.ErrRefused where the kernel has no interpreter.
func Interpreted(f func() error) error { return interpreted(jitSwitch, f) }

func interpreted(path string, f func() error) (err error) {
	s, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return kernel.Refuse(err, "this kernel has no compiler of eBPF programs that could be off")
	}
	if err != nil {
		return fmt.Errorf("turning the compiler of eBPF programs off: %w", err)
	}
	defer s.Close()
	// Whoever came second would take the 0 of the first for what the machine had.
	if err := unix.Flock(int(s.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("waiting for who has turned the compiler of eBPF programs off: %w", err)
	}
	l, err := lend("jit", func(l *loan) (err error) {
		l.JIT = path
		l.Was, err = jit(path)
		return err
	})
	if err != nil {
		return fmt.Errorf("noting whether eBPF programs are compiled: %w", err)
	}
	if l.Was == "0" {
		l.over()
		return f()
	}
	if err := putJIT(s, "0"); err != nil {
		l.over()
		if errors.Is(err, unix.EINVAL) {
			return kernel.Refuse(nil, "this kernel has no interpreter of eBPF programs "+
				"(CONFIG_BPF_JIT_ALWAYS_ON): the JIT cannot be off; Debian's kernels have one")
		}
		return fmt.Errorf("turning the compiler of eBPF programs off: %w", err)
	}
	defer func() {
		if back := putJIT(s, l.Was); back != nil {
			err = errors.Join(err, fmt.Errorf("turning the compiler of eBPF programs on: %w; "+
				"sysctl net.core.bpf_jit_enable=%s does", back, l.Was), l.file.Close())
			return
		}
		l.over()
	}()
	return f()
}

func jit(path string) (string, error) {
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

// putJIT writes at once, and not in the place that reading has come to.
func putJIT(s *os.File, v string) error {
	_, err := s.WriteAt([]byte(v+"\n"), 0)
	return err
}

// jitBack turns the compiler on as it was, unless somebody has done so.
func jitBack(path, was string) error {
	if now, err := jit(path); err != nil || now != "0" {
		return err
	}
	s, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(putJIT(s, was), s.Close())
}
