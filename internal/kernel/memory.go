package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Memory returns the memory of the machine, in bytes.
func Memory() (uint64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("asking for the memory of the machine: %w", err)
	}
	return uint64(info.Totalram) * uint64(info.Unit), nil
}
