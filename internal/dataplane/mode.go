package dataplane

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/store"
	"levee/internal/kernel"
	"levee/internal/packet"
)

// TCIngress is how this kernel runs programs at tc ingress: TCX from Linux 6.6 on, before it
// Clsact. It is an error if this process may not try.
func TCIngress() (store.Mode, error) {
	err := kernel.TCX.Check()
	switch {
	case err == nil:
		return store.TCX, nil
	case errors.Is(err, ebpf.ErrNotSupported):
		return store.Clsact, nil
	}
	return "", err
}

// linearMTU is the largest MTU for which one buffer of a page holds the frame with the headroom
// that XDP asks for (XDP_PACKET_HEADROOM 256, skb_shared_info 320, Ethernet header and tags). Above
// it drivers take only programs that know fragments.
const linearMTU = 4096 - 256 - 320 - 22

// try is one way of attaching.
type try struct {
	mode  store.Mode
	frags bool
}

// tries lists the ways in the order in which they are tried: native XDP costs least, tc ingress is
// faster than generic XDP and sees what the driver's offloads made of the packet; tc is how this
// kernel has it. Native XDP is tried without xdp.frags first where the MTU allows, because the
// program is cheaper so.
//
// No driver runs XDP on packets without an Ethernet header. XDP of the network stack begins at the
// IP header there, as tc ingress does.
func tries(m store.Mode, d *device, tc store.Mode) []try {
	native := []try{{store.XDPNative, false}, {store.XDPNative, true}}
	if d.mtu > linearMTU {
		native[0], native[1] = native[1], native[0]
	}
	generic := []try{{store.XDPGeneric, false}, {store.XDPGeneric, true}}
	switch m {
	case store.XDPNative:
		return native
	case store.TCX, store.Clsact:
		return []try{{m, false}}
	case store.XDPGeneric:
		return generic
	}
	if d.link != packet.Ethernet {
		return append([]try{{tc, false}}, generic...)
	}
	return append(append(native, try{tc, false}), generic...)
}

// attach attaches a program for the first time.
func attach(s *store.Store, key string, d *device, g *store.Description, p *ebpf.Program) (hold,
	error) {
	if g.Joined {
		return join(s, key, d, g, p)
	}
	switch g.Mode {
	case store.Clsact:
		return attachFilter(d, &filter{index: d.index, made: g.MadeQdisc}, p)
	case store.TCX:
		// traffic changes here
		return link.AttachTCX(link.TCXOptions{Interface: d.index, Program: p,
			Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	}
	flags := link.XDPDriverMode
	if g.Mode == store.XDPGeneric {
		flags = link.XDPGenericMode
	}
	return endingOffloads(s, key, d, func() (hold, error) {
		// traffic changes here
		l, err := link.AttachXDP(link.XDPOptions{Interface: d.index, Program: p, Flags: flags})
		if err != nil {
			if notThisWay(err) {
				err = d.said(err, p, int(flags))
			}
			return nil, err
		}
		return l, nil
	})
}

// saidError is a refusal of the kernel in its own words.
type saidError struct {
	error
	words string
}

func (e *saidError) Error() string { return e.words }

func (e *saidError) Unwrap() error { return e.error }

// said adds to a refusal of XDP what the driver says of it. Links do not hand that on, requests of
// rtnetlink do: the same is asked of that once more.
func (d *device) said(why error, p *ebpf.Program, flags int) error {
	l, err := netlink.LinkByIndex(d.index)
	if err != nil {
		return why
	}
	err = netlink.LinkSetXdpFdWithFlags(l, p.FD(), flags|nl.XDP_FLAGS_UPDATE_IF_NOEXIST)
	if err == nil { // it has changed its mind: nothing holds this one
		return errors.Join(why, netlink.LinkSetXdpFdWithFlags(l, -1, flags))
	}
	// net/core/dev.c says no more than the number does.
	const none = "Underlying driver does not support XDP in native mode"
	if words := kernel.Words(err); words != "" && words != none {
		return &saidError{why, strings.TrimPrefix(words, d.card().Driver+": ")}
	}
	return why
}

// notThisWay reports whether an attach error means that the interface does not take this kind of
// program, so that another may be tried.
func notThisWay(err error) bool {
	for _, e := range []error{unix.EOPNOTSUPP, unix.EINVAL, unix.ERANGE, unix.E2BIG, unix.ENOSPC,
		unix.ENOMEM, ebpf.ErrNotSupported} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// whyNot is one clause for the report: why a way of attaching was not taken.
func whyNot(d *device, t try, err error) string {
	cause := flat(err)
	switch {
	case t.mode == store.XDPGeneric && errors.As(err, new(*unfitError)):
		return "generic XDP: " + cause
	case errors.As(err, new(*unheardError)), errors.As(err, new(*unfitError)):
		return cause
	case t.mode == store.Clsact:
		return fmt.Sprintf("tc clsact: %v", err)
	case errors.Is(err, ebpf.ErrNotSupported) && t.mode == store.TCX:
		return "this kernel has no TCX (Linux 6.6 or newer)"
	case errors.Is(err, ebpf.ErrNotSupported) && t.frags:
		return "this kernel has no XDP with fragments (Linux 5.18 or newer)"
	case errors.Is(err, ebpf.ErrNotSupported):
		return "this kernel has no XDP links (Linux 5.9 or newer)"
	case t.mode == store.TCX:
		return "TCX: " + cause
	case t.mode == store.XDPGeneric:
		return "generic XDP: " + cause
	case errors.As(err, new(*saidError)):
		return fmt.Sprintf("%s refuses native XDP%s: %s", d.driver, d.ports(), cause)
	case errors.Is(err, unix.EOPNOTSUPP) && d.mtu > linearMTU:
		return fmt.Sprintf("%s has no native XDP, or none at MTU %d", d.driver, d.mtu)
	case errors.Is(err, unix.EOPNOTSUPP):
		return d.driver + " has no native XDP"
	case t.frags:
		return fmt.Sprintf("%s takes no native XDP with fragments: %s", d.driver, cause)
	}
	return fmt.Sprintf("%s takes no native XDP at MTU %d without fragments: %s", d.driver, d.mtu,
		cause)
}

// ports are those of a bond, for a sentence: it takes what all of them take.
func (d *device) ports() string {
	if !d.card().Bond {
		return ""
	}
	var ports []string
	for _, p := range d.card().Ports {
		ports = append(ports, fmt.Sprintf("%s: %s", p.Name, p.Driver))
	}
	return fmt.Sprintf(" (ports %s)", cmp.Or(strings.Join(ports, ", "), "none"))
}

// flat is the innermost message of an error.
func flat(err error) string {
	var errno unix.Errno
	if said := (*saidError)(nil); errors.As(err, &said) {
		return said.words
	}
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

// attachError is the error for an attempt that no other may follow.
func attachError(d *device, err error) error {
	switch {
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENOLINK):
		return kernel.Refuse(err, "interface %s vanished while the policy was being attached",
			d.name)
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return kernel.Refuse(err,
			"%s got an XDP program of somebody else while levee was attaching; it stays", d.name)
	case errors.Is(err, unix.EPERM):
		return unable(kernel.LoadError("attach to "+d.name, err))
	}
	return unable(kernel.Refuse(err, "attach to %s", d.name))
}

func attachAgain(s *store.Store, key string, d *device, g *store.Description,
	p *ebpf.Program) (hold, error) {
	if err := store.Step("come back"); err != nil {
		return nil, err
	}
	return attach(s, key, d, g, p)
}
