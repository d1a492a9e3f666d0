package attach

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

// TCIngress returns how this kernel runs programs at tc ingress: TCX from Linux 6.6 on, before it
// Clsact. The error says that this process may not try.
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

// LinearMTU is the largest MTU for which one buffer of a page holds the frame with the headroom
// that XDP asks for (XDP_PACKET_HEADROOM 256, skb_shared_info 320, Ethernet header and tags). Above
// it drivers take only programs that know fragments.
const LinearMTU = 4096 - 256 - 320 - 22

// Try is one way of attaching.
type Try struct {
	Mode  store.Mode
	Frags bool
}

// Tries lists the ways in the order in which they are tried: native XDP costs least, tc ingress is
// faster than generic XDP and sees what the driver's offloads made of the packet; tc is how this
// kernel has it. Native XDP is tried without xdp.frags first where the MTU allows, because the
// program is cheaper so.
//
// No driver runs XDP on packets without an Ethernet header. XDP of the network stack begins at the
// IP header there, as tc ingress does.
func Tries(m store.Mode, d *Device, tc store.Mode) []Try {
	native := []Try{{store.XDPNative, false}, {store.XDPNative, true}}
	if d.MTU > LinearMTU {
		native[0], native[1] = native[1], native[0]
	}
	generic := []Try{{store.XDPGeneric, false}, {store.XDPGeneric, true}}
	switch m {
	case store.XDPNative:
		return native
	case store.TCX, store.Clsact:
		return []Try{{m, false}}
	case store.XDPGeneric:
		return generic
	}
	if d.Link != packet.Ethernet {
		return append([]Try{{tc, false}}, generic...)
	}
	return append(append(native, Try{tc, false}), generic...)
}

// Attach attaches a program for the first time.
func Attach(s *store.Store, key string, d *Device, g *store.Description, p *ebpf.Program) (Hold,
	error) {
	if g.Joined {
		return join(s, key, d, g, p)
	}
	switch g.Mode {
	case store.Clsact:
		return attachFilter(d, &Filter{Index: d.Index, made: g.MadeQdisc}, p)
	case store.TCX:
		// traffic changes here
		return link.AttachTCX(link.TCXOptions{Interface: d.Index, Program: p,
			Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	}
	flags := link.XDPDriverMode
	if g.Mode == store.XDPGeneric {
		flags = link.XDPGenericMode
	}
	return endingOffloads(s, key, d, func() (Hold, error) {
		// traffic changes here
		l, err := link.AttachXDP(link.XDPOptions{Interface: d.Index, Program: p, Flags: flags})
		if err != nil {
			if NotThisWay(err) {
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
func (d *Device) said(why error, p *ebpf.Program, flags int) error {
	l, err := netlink.LinkByIndex(d.Index)
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
		return &saidError{why, strings.TrimPrefix(words, d.Card().Driver+": ")}
	}
	return why
}

// NotThisWay reports whether an attach error means that the interface does not take this kind of
// program, so that another may be tried.
func NotThisWay(err error) bool {
	for _, e := range []error{unix.EOPNOTSUPP, unix.EINVAL, unix.ERANGE, unix.E2BIG, unix.ENOSPC,
		unix.ENOMEM, ebpf.ErrNotSupported} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// WhyNot is one clause for the report: why a way of attaching was not taken.
func WhyNot(d *Device, t Try, err error) string {
	cause := flat(err)
	switch {
	case t.Mode == store.XDPGeneric && errors.As(err, new(*UnfitError)):
		return "generic XDP: " + cause
	case errors.As(err, new(*UnheardError)), errors.As(err, new(*UnfitError)):
		return cause
	case t.Mode == store.Clsact:
		return fmt.Sprintf("tc clsact: %v", err)
	case errors.Is(err, ebpf.ErrNotSupported) && t.Mode == store.TCX:
		return "this kernel has no TCX (Linux 6.6 or newer)"
	case errors.Is(err, ebpf.ErrNotSupported) && t.Frags:
		return "this kernel has no XDP with fragments (Linux 5.18 or newer)"
	case errors.Is(err, ebpf.ErrNotSupported):
		return "this kernel has no XDP links (Linux 5.9 or newer)"
	case t.Mode == store.TCX:
		return "TCX: " + cause
	case t.Mode == store.XDPGeneric:
		return "generic XDP: " + cause
	case errors.As(err, new(*saidError)):
		return fmt.Sprintf("%s refuses native XDP%s: %s", d.Driver, d.ports(), cause)
	case errors.Is(err, unix.EOPNOTSUPP) && d.MTU > LinearMTU:
		return fmt.Sprintf("%s has no native XDP, or none at MTU %d", d.Driver, d.MTU)
	case errors.Is(err, unix.EOPNOTSUPP):
		return d.Driver + " has no native XDP"
	case t.Frags:
		return fmt.Sprintf("%s takes no native XDP with fragments: %s", d.Driver, cause)
	}
	return fmt.Sprintf("%s takes no native XDP at MTU %d without fragments: %s", d.Driver, d.MTU,
		cause)
}

// ports returns a clause that names the ports of a bond: a bond takes only what all of them take.
func (d *Device) ports() string {
	if !d.Card().Bond {
		return ""
	}
	var ports []string
	for _, p := range d.Card().Ports {
		ports = append(ports, fmt.Sprintf("%s: %s", p.Name, p.Driver))
	}
	return fmt.Sprintf(" (ports %s)", cmp.Or(strings.Join(ports, ", "), "none"))
}

// flat returns the innermost message of an error.
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

// AttachError is the error for an attempt that no other may follow.
func AttachError(d *Device, err error) error {
	switch {
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENOLINK):
		return kernel.Refuse(err, "interface %s vanished while the policy was being attached",
			d.Name)
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return kernel.Refuse(err,
			"%s got an XDP program of somebody else while levee was attaching; it stays", d.Name)
	case errors.Is(err, unix.EPERM):
		return Unable(kernel.LoadError("attach to "+d.Name, err))
	}
	return Unable(kernel.Refuse(err, "attach to %s", d.Name))
}

func AttachAgain(s *store.Store, key string, d *Device, g *store.Description,
	p *ebpf.Program) (Hold, error) {
	if err := s.Step("come back"); err != nil {
		return nil, err
	}
	return Attach(s, key, d, g, p)
}
