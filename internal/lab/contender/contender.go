// Package contender puts levee and the tools that people use instead of it in front of a host of a
// lab, so that they can be compared: as filters, each with the rules of the demo policy, and as
// places to drop a packet, each with the one rule or the empty program that drops the flood there
// (places.go).
//
// In goes a device of a lab, out come counts: what the defence says it has dropped, by its own
// counter. The rules of the other tools are written by hand (rules.go) and say what they leave
// out. The package must never touch a device outside a lab, and leaves nothing in the kernel behind
// once Remove has returned or the lab is gone.
package contender

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"levee/internal/lab"
	"levee/internal/lab/app"
)

// Site is the device that a defence protects, and the application behind it.
type Site struct {
	Host   *lab.Host
	Device string
	// nil if nobody asked for one; Application and SocketFilter need it
	Application *app.Application
}

// Hook is the place in the kernel where a defence drops. It decides where a packet that was let
// through is seen next.
type Hook string

const (
	XDP        Hook = "xdp"            // before the kernel makes a socket buffer of the packet
	XDPGeneric Hook = "xdp generic"    // the same program, behind that
	TC         Hook = "tc ingress"     // behind XDP
	NetdevIn   Hook = "netdev ingress" // behind tc, before IP
	// before IP has looked up where the packet goes, behind its count
	Prerouting  Hook = "PREROUTING"
	LocalIn     Hook = "INPUT"       // after IP has found out that the packet is for this host
	Socket      Hook = "socket"      // the socket is found, the packet not yet in its queue
	Application Hook = "application" // taken from the socket by a process
	noDefence   Hook = "none"
)

// Defence is one tool, or one place, with the rules by which it drops.
type Defence interface {
	// Name is short, in lower case, and stays: reports are compared by it.
	Name() string
	// Describe is one line: where it drops, and by which part of the rules.
	Describe() string
	Hook() Hook
	// Rules returns the rules that Install puts into force, in the tool's own language; empty for
	// none.
	Rules() string
	// Install puts the rules into force. An error that matches ErrMissing says what to install.
	Install(ctx context.Context, s Site) error
	// Dropped is the number of packets that the defence counts as dropped since Install.
	Dropped(ctx context.Context) (uint64, error)
	// Remove takes the rules off again. It may be called after a failed Install.
	Remove(ctx context.Context) error
}

// Tracker is a Defence that has conntrack in its path, for which the kernel remembers each flow of
// the flood until Remove.
type Tracker interface{ Tracks() bool }

// Listener is a Defence that opens packet sockets, so many.
type Listener interface{ PacketSockets() int }

// ErrMissing is wrapped by errors about a program that is not installed.
var ErrMissing = errors.New("not installed")

// Need looks a program up.
func Need(program, debianPackage string) error {
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("%s is %w: apt-get install %s", program, ErrMissing, debianPackage)
	}
	return nil
}

// maxSaid is the number of bytes of a program's output that are told.
const maxSaid = 200

// Run runs a program inside a host of the lab with input, and returns what it wrote.
func Run(ctx context.Context, h *lab.Host, input []byte, name string, args ...string) ([]byte,
	error) {
	cmd := h.Command(ctx, name, args...)
	if input != nil {
		cmd.Stdin = bytes.NewReader(input)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		said, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		if len(said) > maxSaid {
			said = said[:maxSaid] + "..."
		}
		return nil, fmt.Errorf("%s %s on %s: %w: %s", name, strings.Join(args, " "), h.Name, err,
			said)
	}
	return out, nil
}

// Nothing returns the absence of a defence: it shows what a flood does to a bare host.
func Nothing() Defence { return nothing{} }

type nothing struct{}

func (nothing) Name() string                            { return "none" }
func (nothing) Describe() string                        { return "no defence" }
func (nothing) Hook() Hook                              { return noDefence }
func (nothing) Rules() string                           { return "" }
func (nothing) Install(context.Context, Site) error     { return nil }
func (nothing) Dropped(context.Context) (uint64, error) { return 0, nil }
func (nothing) Remove(context.Context) error            { return nil }
