package store

import (
	"fmt"

	"levee/internal/filter/codegen"
)

// Mode is the hook at which a policy runs.
type Mode string

const (
	Auto       Mode = "auto"        // the first of the others that the interface takes
	XDPNative  Mode = "xdp-native"  // in the driver
	TCX        Mode = "tcx"         // at tc ingress, after the socket buffer is made
	Clsact     Mode = "clsact"      // at the same place as TCX, by a filter of tc
	XDPGeneric Mode = "xdp-generic" // XDP in the network stack
)

// ParseMode reads the argument of --mode.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case Auto, XDPNative, TCX, Clsact, XDPGeneric:
		return m, nil
	}
	return "", fmt.Errorf("unknown mode %q: it is %s, %s, %s, %s or %s",
		s, Auto, XDPNative, TCX, Clsact, XDPGeneric)
}

func (m Mode) Hook() codegen.Hook {
	if m.AtTC() {
		return codegen.TCX
	}
	return codegen.XDP
}

// AtTC reports whether the policy runs at tc ingress, where a socket buffer tells of the packet.
func (m Mode) AtTC() bool { return m == TCX || m == Clsact }
