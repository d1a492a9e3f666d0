package gen

import (
	"fmt"
	"slices"
	"strings"
)

// Path is a way for packets to the device.
type Path string

const (
	// Auto is Live where a program can write the packets and the kernel takes that program, and
	// Packet otherwise.
	Auto Path = ""
	// Live has an XDP program write packets into pages that go to the device without a system call
	// each.
	Live Path = "live"
	// AFXDP sends from memory shared with the kernel, without copies where the driver can.
	AFXDP Path = "afxdp"
	// Packet is a packet socket that goes past the qdisc, with sendmmsg.
	Packet Path = "packet"
	// Qdisc is a packet socket whose frames go as those of an application do: through the programs
	// at egress and the qdisc of the device.
	Qdisc Path = "qdisc"
	// Sendmmsg is a UDP socket: the kernel makes all headers, as for an application.
	Sendmmsg Path = "sendmmsg"
)

// Paths are the paths that a user can choose.
var Paths = []Path{Live, AFXDP, Packet, Qdisc, Sendmmsg}

// ParsePath reads the name of a path; "auto" leaves the choice to the generator.
func ParsePath(s string) (Path, error) {
	if s == "auto" {
		return Auto, nil
	}
	if !slices.Contains(Paths, Path(s)) {
		names := []string{"auto"}
		for _, p := range Paths {
			names = append(names, string(p))
		}
		return Auto, fmt.Errorf("no path %q: it is one of %s", s, strings.Join(names, ", "))
	}
	return Path(s), nil
}
