package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Oldest is the oldest Linux that levee is tried on (`make kernels`). Older ones are not refused by
// their number, since distributors bring what is newer to them; but what they do refuse is no
// surprise.
const Oldest = "6.1"

// Release returns the running kernel's, such as "6.1.0-56-amd64".
func Release() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "" // cannot fail: the memory is ours
	}
	return unix.ByteSliceToString(name.Release[:])
}

// TooOld says of a kernel older than Oldest that it is, and nothing of others, or if the release is
// none.
func TooOld(release string) string {
	var has, needs [2]int
	if _, err := fmt.Sscanf(release, "%d.%d", &has[0], &has[1]); err != nil {
		return ""
	}
	if _, err := fmt.Sscanf(Oldest, "%d.%d", &needs[0], &needs[1]); err != nil {
		return ""
	}
	if has[0] > needs[0] || has[0] == needs[0] && has[1] >= needs[1] {
		return ""
	}
	return fmt.Sprintf("this machine runs Linux %d.%d, and levee needs %s or newer", has[0], has[1],
		Oldest)
}
