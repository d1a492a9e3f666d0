package local

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// groups are the netlink groups that report changes of what Prefixes reads.
var groups = []uint{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE,
	unix.RTNLGRP_IPV6_RULE}

// Watch sends a word whenever Prefixes may have changed since the last one was taken, until ctx
// ends. Changes that follow each other are one word. The channel is closed where the kernel tells
// no more.
//
// Not told is what makes a route of another table than `local` one that delivers no more in one
// step (ip route replace): whoever watches looks from time to time as well.
func Watch(ctx context.Context) (<-chan struct{}, error) {
	sock, err := subscribe()
	if err != nil {
		return nil, kernel.Refuse(err, "watch the addresses and routes of this network namespace")
	}
	out := make(chan struct{}, 1)
	end := context.AfterFunc(ctx, sock.Close)
	go func() {
		defer close(out)
		defer func() {
			if end() {
				sock.Close()
			}
		}()
		for {
			_, _, err := sock.Receive()
			if err != nil && !errors.Is(err, unix.ENOBUFS) { // lost messages are a word, too
				return
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out, nil
}

func subscribe() (*nl.NetlinkSocket, error) {
	sock, err := nl.Subscribe(unix.NETLINK_ROUTE, groups...)
	if err != nil {
		return nil, err
	}
	if err := onlyLocal(sock.GetFd()); err != nil {
		sock.Close()
		return nil, err
	}
	return sock, nil
}

// onlyLocal keeps routes that cannot matter from a socket: a router may learn a million others.
func onlyLocal(fd int) error {
	// of struct nlmsghdr, and of struct rtmsg behind it
	const typeAt, tableAt, routeTypeAt = 4, unix.NLMSG_HDRLEN + 4, unix.NLMSG_HDRLEN + 7
	half := func(v uint16) uint32 { // as the filter loads it, of the machine's byte order
		return uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, v)))
	}
	load := func(size uint16, at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | size | unix.BPF_ABS, K: at}
	}
	is := func(v uint32, then, otherwise uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: v, Jt: then,
			Jf: otherwise}
	}
	f := []unix.SockFilter{
		load(unix.BPF_H, typeAt),
		is(half(unix.RTM_NEWROUTE), 1, 0),
		is(half(unix.RTM_DELROUTE), 0, 6), // no route: take it
		load(unix.BPF_B, routeTypeAt),
		is(uint32(delivering[0]), 4, 0),
		is(uint32(delivering[1]), 3, 0),
		is(uint32(delivering[2]), 2, 0),
		load(unix.BPF_B, tableAt), // one that has taken the place of a local one
		is(unix.RT_TABLE_LOCAL, 0, 1),
		{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1},
		{Code: unix.BPF_RET | unix.BPF_K},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]})
}
