package lab

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// GRO tells whether generic receive offload of a device of the calling thread's namespace is on. For veth
// that also means that it receives by NAPI.
func GRO(device string) (bool, error) {
	v := [2]uint32{unix.ETHTOOL_GGRO, 0}
	if err := ethtool(device, unsafe.Pointer(&v)); err != nil {
		return false, fmt.Errorf("asking %s for its receive offload: %w", device, err)
	}
	return v[1] != 0, nil
}
