package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"levee/internal/lab/contender"
)

// Place is the family and the hook of a table of nftables.
type Place struct {
	family string // as the command nft names it
	code   uint8  // as the kernel does
	hook   contender.Hook
}

// The first hooks of two families.
var (
	NetdevIngress = Place{"netdev", unix.NFPROTO_NETDEV, contender.NetdevIn}
	IPPrerouting  = Place{"ip", unix.NFPROTO_IPV4, contender.LocalIn}
)

// NFTTable returns the name of a contender's table. Each has its own: a table that took long to
// load stays, dormant, while the others are measured.
func NFTTable(name string) string { return "levee_" + strings.ReplaceAll(name, " ", "_") }

// NFT returns a table, NFTTable(name), with one named counter c of what is dropped. A dormant table
// keeps its rules and sets and sees no packet. input writes what nft loads, change is a command of
// nft.
func NFT(at Place, name, what string, input func(device string) []byte, change string) Spec {
	table := NFTTable(name)
	nft := func(command string) func(context.Context, contender.Site) error {
		return func(ctx context.Context, s contender.Site) error {
			_, err := contender.Run(ctx, s.Host, []byte(command+"\n"), "nft", "-f", "-")
			return err
		}
	}
	var text []byte
	return Spec{
		Name: name, What: what, Hook: at.hook, Needs: [][2]string{{"nft", "nftables"}},
		Prepare: func(s contender.Site) { text = input(s.Device) },
		Install: func(ctx context.Context, s contender.Site) error {
			_, err := contender.Run(ctx, s.Host, text, "nft", "-f", "-")
			return err
		},
		Off: nft("add table " + at.family + " " + table + " { flags dormant; }"),
		On:  nft("add table " + at.family + " " + table),
		Change: func(ctx context.Context, s contender.Site) error {
			_, err := contender.Run(ctx, s.Host, nil, "nft", change)
			return err
		},
		Dropped: func(_ context.Context, s contender.Site) (packets uint64, err error) {
			err = s.Host.Do(func() error {
				packets,
					err = nftCounter(at.code, table, "c")
				return err
			})
			return packets, err
		},
		// Declared first, so that deleting what is not there is no error.
		Remove: nft("table " + at.family + " " + table + " {}\ndelete table " + at.family + " " +
			table),
	}
}

// nftCounter asks the kernel for the packets of a named counter. The command nft would list all
// sets and rules first, which for a million entries takes longer than everything else here.
func nftCounter(family uint8, table, name string) (uint64, error) {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETOBJ, 0)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	r.AddData(nl.NewRtAttr(unix.NFTA_OBJ_TABLE, nl.ZeroTerminated(table)))
	r.AddData(nl.NewRtAttr(unix.NFTA_OBJ_NAME, nl.ZeroTerminated(name)))
	r.AddData(nl.NewRtAttr(unix.NFTA_OBJ_TYPE,
		binary.BigEndian.AppendUint32(nil, unix.NFT_OBJECT_COUNTER)))
	answers, err := r.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return 0, fmt.Errorf("ask nftables for its counter: %w", err)
	}
	for _, a := range answers {
		if data := attribute(a[nl.SizeofNfgenmsg:], unix.NFTA_OBJ_DATA); data != nil {
			if packets := attribute(data, unix.NFTA_COUNTER_PACKETS); len(packets) == 8 {
				return binary.BigEndian.Uint64(packets), nil
			}
		}
	}
	return 0, errors.New("ask nftables for its counter: the answer has none")
}

// attribute returns the value of the first netlink attribute of a type, nil if there is none.
func attribute(b []byte, typ uint16) []byte {
	list, err := nl.ParseRouteAttr(b)
	for _, a := range list {
		if err == nil && a.Attr.Type&nl.NLA_TYPE_MASK == typ {
			return a.Value
		}
	}
	return nil
}
