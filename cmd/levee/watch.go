package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/dataplane"
	"levee/internal/filter/codegen"
	"levee/internal/filter/oracle"
	"levee/internal/packet"
)

var watchLong = fmt.Sprintf(`Show the packets that rules with "log" tell of, a line each, until Ctrl-C:
when, which rule, and what stands in the packet's headers. --json prints an object a line, with
the first %d bytes of the packet.

A log tells of a packet where it stands: what decides the packet comes behind. Each CPU tells of
at most %d packets a second. What is above that, or too much for this command, is counted, and
told in a line of its own. Only one process can watch an interface. Without --dev it is the one
interface of this network namespace that has a policy.`, codegen.EventPacket,
	codegen.EventsPerSecond)

const watchExample = `  sudo levee watch
  sudo levee watch --dev eth0 --json | jq -r .from`

func newWatch(e *env) *cobra.Command {
	var dev string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "watch",
		Short:   "Show the packets that log rules tell of",
		Long:    watchLong,
		Example: watchExample,
		Args:    wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dev, _, err := e.inForce(cmd, dev)
			if err != nil {
				return err
			}
			return e.watch(dev, asJSON)
		},
	}
	devFlag(cmd, &dev, "watch this interface")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// watched is one line of `levee watch --json`: a packet, or what was lost.
type watched struct {
	Time   time.Time    `json:"time"`
	Dev    string       `json:"dev"`
	Rule   shown        `json:"rule"` // empty if it is gone, and for what this command lost
	Label  string       `json:"label"`
	CPU    *int         `json:"cpu,omitempty"`
	Bytes  int          `json:"bytes,omitempty"` // of the whole frame
	From   string       `json:"from,omitempty"`
	To     string       `json:"to,omitempty"`
	Text   string       `json:"text,omitempty"` // the headers in words
	Packet string       `json:"packet,omitempty"`
	Lost   *watchedLost `json:"lost,omitempty"`
}

// watchedLost are packets that were not told of, and where they were lost.
type watchedLost struct {
	Bound  uint64 `json:"bound"`  // above what a CPU tells a second
	Reader uint64 `json:"reader"` // this command was too slow
	Other  uint64 `json:"other"`  // nobody watched on that CPU yet
}

func (e *env) watch(dev string, asJSON bool) error {
	ctx, stop := e.signals()
	defer stop()
	enc := json.NewEncoder(e.stdout)
	enc.SetEscapeHTML(false)
	show := func(w *watched, line string) {
		if e.stdout.err != nil {
			stop()
			return
		}
		if !asJSON {
			fmt.Fprintln(e.stdout, line)
			return
		}
		if err := enc.Encode(w); err != nil && e.stdout.err == nil {
			e.sayf("make JSON: %v", err)
		}
	}
	event := func(ev dataplane.Event) {
		var p packet.Packet
		ev.Link.Decode(ev.Packet, &p)
		w := &watched{Time: ev.At, Dev: dev, Rule: shown(ev.Rule.Rule), Label: ev.Rule.Label,
			CPU: &ev.CPU, Bytes: ev.Bytes, Packet: hex.EncodeToString(ev.Packet),
			Text: oracle.Headers(ev.Packet, ev.Link)}
		if p.IsIP() && p.Src.IsValid() {
			w.From, w.To = p.Src.String(), p.Dst.String()
		}
		show(w, fmt.Sprintf("%s %s %s %d bytes: %s", ev.At.Format("15:04:05.000000"), dev,
			nameOfRule(ev.Rule), ev.Bytes, w.Text))
	}
	lost := func(l dataplane.Losses) {
		at := e.now()
		w := &watched{Time: at, Dev: dev, Rule: shown(l.Rule.Rule), Label: l.Rule.Label,
			Lost: &watchedLost{l.Bound, l.Ring, l.Other}}
		var parts []string
		for _, part := range []struct {
			n    uint64
			what string
		}{
			{l.Bound, fmt.Sprintf("above %d a second and CPU", codegen.EventsPerSecond)},
			{l.Ring, "as this command was too slow"},
			{l.Other, "as nobody watched on that CPU yet"},
		} {
			if part.n > 0 {
				parts = append(parts, plural64(part.n, "packet")+" "+part.what)
			}
		}
		show(w, fmt.Sprintf("%s %s %s lost: %s", at.Format("15:04:05.000000"), dev,
			nameOfRule(l.Rule), strings.Join(parts, ", ")))
	}
	return dataplane.Watch(ctx, dev, event, lost)
}

// nameOfRule is where a rule stands, and its label.
func nameOfRule(c dataplane.SlotCounter) string {
	switch {
	case c.Rule == "":
		return "-"
	case c.Label != "":
		return fmt.Sprintf("%s %q", shown(c.Rule), c.Label)
	}
	return string(shown(c.Rule))
}
