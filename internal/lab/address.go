package lab

import (
	"errors"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// details holds the attributes of an address besides its prefix.
type details struct {
	Peer      string `json:",omitempty"` // with its prefix length
	Broadcast net.IP `json:",omitempty"` // 0.0.0.0 where there is none
	Label     string `json:",omitempty"`
	Flags     int    `json:",omitempty"`
	Scope     int    `json:",omitempty"`
	// Seconds that it is valid and preferred, from when it was read; forever of one that is not
	// leased.
	Valid, Preferred uint32
}

// forever is INFINITY_LIFE_TIME of include/net/addrconf.h.
const forever = ^uint32(0)

// ownFlags are the flags that a program may set when it adds an address; the kernel sets the others
// itself.
const ownFlags = unix.IFA_F_NODAD | unix.IFA_F_HOMEADDRESS | unix.IFA_F_MANAGETEMPADDR |
	unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_MCAUTOJOIN

// detailsOf returns what else there is of an address.
func detailsOf(a *netlink.Addr) details {
	d := details{Broadcast: a.Broadcast, Label: a.Label, Flags: a.Flags & ownFlags, Scope: a.Scope,
		Valid: uint32(a.ValidLft), Preferred: uint32(a.PreferedLft)}
	if a.Peer != nil {
		d.Peer = a.Peer.String()
	}
	if d.Broadcast == nil {
		d.Broadcast = net.IPv4zero // else one is made up
	}
	return d
}

// put gives a link an address again, some seconds later. The lease of one may have ended meanwhile:
// it then stays away.
func (d *details) put(link netlink.Link, prefix string, later uint32) error {
	a, err := netlink.ParseAddr(prefix)
	if err != nil {
		return err
	}
	a.Broadcast, a.Label, a.Flags, a.Scope = d.Broadcast.To4(), d.Label, d.Flags, d.Scope
	if d.Peer != "" {
		if a.Peer, err = netlink.ParseIPNet(d.Peer); err != nil {
			return err
		}
	}
	left := func(of uint32) uint32 {
		if of == forever {
			return of
		}
		return of - min(of, later)
	}
	a.ValidLft, a.PreferedLft = int(left(d.Valid)), int(left(d.Preferred))
	if d.Valid > 0 && a.ValidLft == 0 {
		return nil
	}
	return netlink.AddrReplace(link, a)
}

// sinceBoot is in seconds, with those that the machine was suspended.
func sinceBoot() (int64, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return t.Sec, err
}

// cookieOf returns the number that no other network namespace has until the machine boots, which
// its inode may have again; 0 before Linux 5.14. It is of the calling thread's.
func cookieOf() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	n, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return 0, nil
	}
	return n, err
}
