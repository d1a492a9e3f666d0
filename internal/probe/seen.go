package probe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"levee/internal/filter/oracle"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
	"levee/internal/packet"
	"levee/internal/probe/witness"
)

// eye is a witness that runs beside the target.
type eye struct {
	name    string // as messages call it
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	said    bytes.Buffer // on its standard error
	begun   chan struct{}
	ended   chan struct{}
	asked   int          // questions
	drained chan int     // how many of them are answered
	last    *witness.End // after ended: what it said last
	err     error        // after ended
	changed bool         // after ended: another policy came into force
	broke   bool         // with the run's mu: it ended before the run did, or no longer answers
	first   witness.InForce
	policy  *policy.Policy // in force; the witness has begun
}

// beginsWithin is the longest time that a witness may take to begin, with a connection by ssh.
const beginsWithin = 30 * time.Second

// endsWithin is the longest time that a witness may take to end when its input has.
const endsWithin = 5 * time.Second

// answersWithin is the longest time that a witness may take to tell of earlier judgements. One
// that was held up, or whose way is long, takes seconds.
const answersWithin = seenWithin

// maxLine bounds a line of a witness: a policy with the files of its sets.
const maxLine = 64 << 20

// openEye begins to watch packets from addresses, by a command that runs another on the machine of
// the target. packets is called for each, one at a time.
func openEye(ctx context.Context, p *Prefix, from []netip.Addr,
	packets func(*eye, *witness.Packet)) (*eye, error) {
	var sources []string
	for _, a := range from {
		sources = append(sources, a.String())
	}
	args := append(append([]string{}, p.Witness[1:]...), "levee", "witness", "--from",
		strings.Join(sources, ","))
	if p.Dev != "" {
		args = append(args, "--dev", p.Dev)
	}
	e := &eye{name: strings.Join(p.Witness, " "), begun: make(chan struct{}),
		ended: make(chan struct{}), drained: make(chan int, 1)}
	e.cmd = exec.Command(p.Witness[0], args...)
	e.cmd.Stderr = &limited{to: &e.said}
	e.cmd.WaitDelay = endsWithin
	stdin, err := e.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := e.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	e.stdin = stdin
	if err := e.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the witness of %s by %q: %w", p.Prefix, e.name, err)
	}
	go e.read(stdout, packets)
	timer := time.NewTimer(beginsWithin)
	defer timer.Stop()
	select {
	case <-e.begun:
	case <-e.ended:
		problem := e.close() // after which all is there that it said
		return nil, errors.Join(e.failed(p), problem)
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), e.close())
	case <-timer.C:
		return nil, errors.Join(fmt.Errorf("the witness of %s did not begin within %v: try %q "+
			"alone", p.Prefix, beginsWithin, strings.Join(e.cmd.Args, " ")), e.close())
	}
	var problem error
	e.policy, problem = readInForce(&e.first)
	if problem != nil {
		return nil, errors.Join(fmt.Errorf("the policy in force there cannot be read by this "+
			"levee: %w", problem), e.close())
	}
	return e, nil
}

// failed says why a witness ended before it began.
func (e *eye) failed(p *Prefix) error {
	said := strings.TrimSpace(e.said.String())
	if said == "" {
		said = "it said nothing"
	}
	return fmt.Errorf("%s is not confirmed: the witness ended: %s (%s)", p.Prefix, said,
		strings.Join(e.cmd.Args, " "))
}

// lastWords returns the last output of a witness that has ended, from its standard error, to follow
// a sentence; "" if there is none.
func (e *eye) lastWords() string {
	if said := strings.TrimSpace(e.said.String()); said != "" {
		return ": " + said
	}
	return ""
}

func (e *eye) read(out io.Reader, packets func(*eye, *witness.Packet)) {
	defer close(e.ended)
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	var once sync.Once
	for lines.Scan() {
		var t witness.Told
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil {
			e.err = fmt.Errorf("the witness %s said what is none of its lines: %w", e.name, err)
			return
		}
		switch {
		case t.InForce != nil:
			began := false
			once.Do(func() { e.first, began = *t.InForce, true; close(e.begun) })
			e.changed = e.changed || !began
		case t.Packet != nil:
			packets(e, t.Packet)
		case t.Drained > 0:
			select { // nobody else writes to it
			case <-e.drained:
			default:
			}
			e.drained <- t.Drained
		case t.End != nil:
			e.last = t.End
		}
	}
	if err := lines.Err(); !errors.Is(err, os.ErrClosed) { // by close
		e.err = err
	}
}

// drain waits until the witness has told of all packets that were judged before, or has ended. It
// is called by one goroutine at a time.
func (e *eye) drain(ctx context.Context) error {
	late := time.NewTimer(answersWithin)
	defer late.Stop()
	e.asked++
	_, _ = io.WriteString(e.stdin, "\n") // where nobody reads it, it ends
	for {
		select {
		case n := <-e.drained:
			if n >= e.asked {
				return nil
			}
		case <-e.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return fmt.Errorf("its witness did not answer within %v: it hangs, or is of an older "+
				"levee, which answers nothing", answersWithin)
		}
	}
}

// close ends the witness, which ends with its input. A command that does not, or that goes on to
// say what no witness says, is killed.
func (e *eye) close() error {
	_ = e.stdin.Close()
	late := make(chan struct{})
	timer := time.AfterFunc(endsWithin, func() {
		_ = e.cmd.Process.Kill()
		close(late)
	})
	defer timer.Stop()
	select {
	case <-e.ended:
		if e.err != nil {
			_ = e.cmd.Process.Kill()
		}
	case <-late:
	}
	_ = e.cmd.Wait() // what it said last is known
	<-e.ended
	return e.err
}

// readInForce reads the policy in force as the witness told it.
func readInForce(f *witness.InForce) (*policy.Policy, error) {
	p, ds := resolve.Parse(f.Name, []byte(f.Source), setfile.Recorded(f.Files))
	if p == nil {
		return nil, ds.Err()
	}
	if f.Fallback {
		p = p.Fallback(true)
	}
	return p, nil
}

// decider names the rule that decided a packet, in words.
func (e *eye) decider(w *witness.Packet) string {
	slots := e.policy.Slots()
	i := slices.IndexFunc(slots, func(s policy.Slot) bool { return s.ID == w.Slot })
	switch {
	case i >= 0:
		return oracle.Decider(e.policy, slots[i])
	case w.Label != "":
		return fmt.Sprintf("%s (%s)", diag.Quoted(w.Label), diag.Shown(w.Rule))
	}
	return diag.Quoted(w.Rule)
}

// limited keeps the first few kilobytes.
type limited struct{ to *bytes.Buffer }

func (l *limited) Write(b []byte) (int, error) {
	const most = 4096
	if room := most - l.to.Len(); room > 0 {
		l.to.Write(b[:min(room, len(b))])
	}
	return len(b), nil
}

// ipOf is the IP packet of a frame that a witness saw; nil if it is none.
func ipOf(w *witness.Packet, p *packet.Packet) []byte {
	link, err := packet.ParseLink(w.Link)
	if err != nil {
		return nil
	}
	frame, _ := packet.Record{Data: w.Bytes, Length: w.Length}.Whole(nil)
	link.Decode(frame, p)
	if p.Malformed != packet.WellFormed || !p.IsIP() || p.NetworkOffset > len(frame) {
		return nil
	}
	p.TransportOffset -= p.NetworkOffset
	return frame[p.NetworkOffset:]
}
