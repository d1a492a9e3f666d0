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

// SetGRO turns generic receive offload of a device of the calling thread's namespace on or off.
func SetGRO(device string, on bool) error {
	value := uint32(0)
	if on {
		value = 1
	}
	if err := ethtoolSet(device, unix.ETHTOOL_SGRO, value); err != nil {
		return fmt.Errorf("%s: turning GRO %s: %w", device, map[bool]string{true: "on", false: "off"}[on], err)
	}
	return nil
}
