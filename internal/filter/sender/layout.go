package sender

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf/btf"
)

// Layout says where members of the kernel's structures lie, in bytes.
type Layout whoSenderLayout

// LayoutOf looks them up in the types of the running kernel.
func LayoutOf(types *btf.Spec) (*Layout, error) {
	var l Layout
	var err error
	at := func(in string, names ...string) *btf.Member {
		var s *btf.Struct
		if e := types.TypeByName(in, &s); e != nil {
			err = errors.Join(err, fmt.Errorf("struct %s: %w", in, e))
			return &btf.Member{}
		}
		for _, name := range names {
			if m := member(s.Members, name, 0); m != nil {
				return m
			}
		}
		err = errors.Join(err, fmt.Errorf("struct %s has no member %s", in, names[0]))
		return &btf.Member{}
	}
	offset := func(in string, names ...string) uint32 { return at(in, names...).Offset.Bytes() }
	l.SkbSk = offset("sk_buff", "sk")
	l.SockState = offset("sock_common", "skc_state")
	l.SockCgroup = offset("sock", "sk_cgrp_data") + offset("sock_cgroup_data", "cgroup")
	l.SockSocket = offset("sock", "sk_socket")
	l.RequestListener = offset("sock_common", "skc_listener")
	l.SocketFile = offset("socket", "file")
	l.FileCred = offset("file", "f_cred")
	l.CredGid = offset("cred", "fsgid")
	l.CgroupNode = offset("cgroup", "kn")
	l.NodeName = offset("kernfs_node", "name")
	l.NodeParent = offset("kernfs_node", "__parent", "parent") // before Linux 6.15
	l.SockType = offset("sock", "sk_type")
	l.SockProtocol = offset("sock", "sk_protocol")
	var none *btf.Struct
	if types.TypeByName("mptcp_subflow_context", &none) == nil {
		is := at("tcp_sock", "is_mptcp")
		l.TcpMptcp, l.TcpMptcpIs = uint32(is.Offset)/8, 1<<(uint32(is.Offset)%8)
		l.TcpSubflow = offset("inet_connection_sock", "icsk_ulp_data")
		l.SubflowOf = offset("mptcp_subflow_context", "conn")
	}
	var net *btf.Typedef
	if types.TypeByName("possible_net_t", &net) == nil {
		if in, ok := btf.UnderlyingType(net).(*btf.Struct); ok && len(in.Members) > 0 {
			socket, dev := offset("sock_common", "skc_net"), offset("sk_buff", "dev")
			device := offset("net_device", "nd_net")
			if socket|dev > math.MaxUint8 || device > math.MaxUint16 {
				err = errors.Join(err, fmt.Errorf("the network namespaces of sockets and devices "+
					"lie at %d, %d and %d, which is too far", socket, dev, device))
			}
			l.SockNet, l.SkbDev, l.DeviceNet = uint8(socket), uint8(dev), uint16(device)
		}
	}
	kernel := at("sock", "sk_kern_sock")
	l.SockKernel = uint32(kernel.Offset) / 8
	l.SockKernelIs = 1 << (uint32(kernel.Offset) % 8)
	if err != nil {
		return nil, err
	}
	return &l, nil
}

// member finds one by its name, with its place in the whole: also within members without a name.
func member(all []btf.Member, name string, from btf.Bits) *btf.Member {
	for _, m := range all {
		m.Offset += from
		if m.Name == name {
			return &m
		}
		if m.Name != "" {
			continue
		}
		var in []btf.Member
		switch t := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			in = t.Members
		case *btf.Union:
			in = t.Members
		}
		if found := member(in, name, m.Offset); found != nil {
			return found
		}
	}
	return nil
}
