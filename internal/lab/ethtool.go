package lab

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ifreq is struct ifreq of include/uapi/linux/if.h with its pointer member.
type ifreq struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

// ethtool issues SIOCETHTOOL for a device of the calling thread's namespace.
func ethtool(device string, arg unsafe.Pointer) error {
	if len(device) >= unix.IFNAMSIZ {
		return fmt.Errorf("device name %q is too long", device)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening a socket: %w", err)
	}
	defer unix.Close(fd)
	req := ifreq{data: arg}
	copy(req.name[:], device)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	runtime.KeepAlive(&req)
	if errno != 0 {
		return errno
	}
	return nil
}

// ethtoolSet sets one of the values that struct ethtool_value carries.
func ethtoolSet(device string, cmd, value uint32) error {
	v := [2]uint32{cmd, value}
	return ethtool(device, unsafe.Pointer(&v))
}

// Of include/uapi/linux/ethtool.h.
const (
	statsStrings = 1      // ETH_SS_STATS
	stringLen    = 32     // ETH_GSTRING_LEN
	flagRxVLAN   = 1 << 8 // ETH_FLAG_RXVLAN
)

// maxCounters bounds what a driver is believed about its number of counters.
const maxCounters = 1 << 16

// Counters reads the driver's own counters (`ethtool -S`) of a device in the calling thread's
// namespace. Those of veth are in drivers/net/veth.c.
func Counters(device string) (map[string]uint64, error) {
	fail := func(err error) (map[string]uint64, error) {
		return nil, fmt.Errorf("reading the counters of %s: %w", device, err)
	}
	// struct ethtool_sset_info with room for one set.
	info := struct {
		cmd, reserved uint32
		mask          uint64
		n             uint32
	}{cmd: unix.ETHTOOL_GSSET_INFO, mask: 1 << statsStrings}
	if err := ethtool(device, unsafe.Pointer(&info)); err != nil {
		return fail(err)
	}
	if info.mask == 0 || info.n == 0 {
		return nil, nil
	}
	if info.n > maxCounters {
		return fail(fmt.Errorf("the driver claims %d of them", info.n))
	}
	n := int(info.n)
	// struct ethtool_gstrings and struct ethtool_stats: a header, then n entries.
	names := make([]byte, 12+n*stringLen)
	binary.NativeEndian.PutUint32(names, unix.ETHTOOL_GSTRINGS)
	binary.NativeEndian.PutUint32(names[4:], statsStrings)
	binary.NativeEndian.PutUint32(names[8:], uint32(n))
	if err := ethtool(device, unsafe.Pointer(&names[0])); err != nil {
		return fail(err)
	}
	values := make([]byte, 8+n*8)
	binary.NativeEndian.PutUint32(values, unix.ETHTOOL_GSTATS)
	binary.NativeEndian.PutUint32(values[4:], uint32(n))
	if err := ethtool(device, unsafe.Pointer(&values[0])); err != nil {
		return fail(err)
	}
	m := make(map[string]uint64, n)
	for i := range n {
		name, _, _ := bytes.Cut(names[12+i*stringLen:12+(i+1)*stringLen], []byte{0})
		m[string(name)] = binary.NativeEndian.Uint64(values[8+i*8:])
	}
	return m, nil
}
