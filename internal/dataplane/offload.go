package dataplane

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers of include/uapi/linux/ethtool.h.
const (
	ethtoolGetFlags = 0x25   // ETHTOOL_GFLAGS
	flagRxVLAN      = 1 << 8 // ETH_FLAG_RXVLAN
)

// TakesTagsOff reports whether a device hands frames on with their outermost VLAN tag beside them
// (rx-vlan-offload, as ethtool -k shows it). XDP programs then see an untagged frame; programs at TCX
// are told of the tag. A device that does not say counts as one that leaves frames as they are.
func TakesTagsOff(name string) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	value := struct{ cmd, data uint32 }{cmd: ethtoolGetFlags}
	request := struct { // struct ifreq: a name and a union of 24 bytes
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [24 - unsafe.Sizeof(uintptr(0))]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	return errno == 0 && value.data&flagRxVLAN != 0
}
