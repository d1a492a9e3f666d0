package flowtap

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"levee/internal/agent/source/inlet"
	"levee/internal/agent/stream"
	"levee/internal/dataplane/generation"
	"levee/internal/lang/diag"
	"levee/internal/usage"
)

// Watching selects flows to print, and the form in which they are printed.
type Watching struct {
	Dev   string
	Kind  string
	Ports []string // in decimal, some as A-B; nil: those of the protocol
	JSON  bool     // records as they are, with the member proven
}

// lookEvery is the interval between two looks for what has come.
const lookEvery = 100 * time.Millisecond

// Watch prints a line for each flow, until ctx ends or out takes no more; lost is called with the
// number of packets that found no room in the ring.
func Watch(ctx context.Context, w Watching, out io.Writer, lost func(packets uint64)) error {
	place, err := w.place()
	if err != nil {
		return err
	}
	h := &Hub{Devs: func(context.Context) ([]string, error) { return []string{w.Dev}, nil }}
	in := h.open(place)
	defer in.Close()
	failed := error(nil)
	show := func(proven bool) func([]byte) {
		return func(record []byte) {
			if failed == nil {
				_, failed = out.Write(w.line(in.reader.Protocol, record, proven))
			}
		}
	}
	in.reader.Line, in.reader.Unproven = show(true), show(false)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	before := uint64(0)
	for {
		if err := h.read(time.Now()); err != nil {
			return err
		}
		if len(h.taps) == 0 {
			return generation.NotAttached(w.Dev)
		}
		if h.lost > before {
			lost(h.lost - before)
			before = h.lost
		}
		if failed != nil {
			return nil // nobody reads on
		}
		select {
		case <-ctx.Done(): // what has come and waits is shown as it is
			err := h.read(time.Now())
			h.table.Expire(time.Now().Add(stream.Patience))
			return err
		case <-tick.C:
		}
	}
}

// Check says what is wrong with it. It stands alone: decisions are not shown beside it.
func (w *Watching) Check(decisions bool) error {
	switch {
	case w.Kind == "" && w.Ports != nil:
		return usage.Wrongf("--port is for flows: give --stream, too")
	case w.Kind == "":
		return nil
	case decisions:
		return usage.Wrongf("--stream shows flows, and --verdict, --reason and --rule packets: " +
			"give one of these")
	}
	_, err := w.place()
	return err
}

// place returns what is read.
func (w *Watching) place() (*inlet.Place, error) {
	protocol := stream.Named(w.Kind)
	if protocol == nil {
		return nil, usage.Wrongf("--stream is one of %s, not %s",
			strings.Join(stream.Names(), ", "), diag.Quoted(w.Kind))
	}
	p := &inlet.Place{At: w.Kind, Flows: inlet.Flows{Protos: protocol.Protos}}
	for _, n := range protocol.Ports {
		if w.Ports == nil {
			p.Flows.Ports = append(p.Flows.Ports, inlet.Ports{First: n, Last: n})
		}
	}
	for _, text := range w.Ports {
		from, to, two := strings.Cut(text, "-")
		if !two {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 16)
		last, err2 := strconv.ParseUint(to, 10, 16)
		if err1 != nil || err2 != nil || first > last {
			return nil, usage.Wrongf("--port takes ports such as 443 or 8000-8010, not %s",
				diag.Quoted(text))
		}
		p.Flows.Ports = append(p.Flows.Ports, inlet.Ports{First: uint16(first), Last: uint16(last)})
	}
	if len(p.Flows.Ports) == 0 {
		return nil, usage.Wrongf("%s has no ports of its own: name them with --port", w.Kind)
	}
	return p, nil
}

// line returns what is printed of a record: all of it as JSON, or the fields of its protocol. What
// clients say is in quotes.
func (w *Watching) line(protocol *stream.Protocol, record []byte, proven bool) []byte {
	var all map[string]any
	if json.Unmarshal(record, &all) != nil { // it was made here
		return nil
	}
	var b bytes.Buffer
	if w.JSON {
		all["proven"] = proven
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if enc.Encode(all) != nil {
			return nil
		}
		return b.Bytes()
	}
	text, _ := all["timestamp"].(string)
	at, _ := time.Parse(stream.TimeForm, text)
	fmt.Fprintf(&b, "%s %s %s %v port %v to %v port %v", at.Local().Format("15:04:05.000000"),
		w.Dev, protocol.Name, all["src_ip"], all["src_port"], all["dest_ip"], all["dest_port"])
	if !proven {
		b.WriteString(" not proven")
	}
	for _, f := range protocol.Fields {
		var of any = all
		for name := range strings.SplitSeq(f, ".") {
			members, _ := of.(map[string]any)
			of = members[name]
		}
		if of != nil {
			_, short, below := strings.Cut(f, ".")
			if !below {
				short = f
			}
			fmt.Fprintf(&b, " %s %s", short, quoted(of))
		}
	}
	return append(b.Bytes(), '\n')
}

// quoted returns a value without what acts on a terminal.
func quoted(v any) string {
	if list, is := v.([]any); is {
		texts := make([]string, len(list))
		for i := range list {
			texts[i] = quoted(list[i])
		}
		return strings.Join(texts, ",")
	}
	return strconv.QuoteToASCII(fmt.Sprint(v))
}
