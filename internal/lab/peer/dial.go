package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"levee/internal/kernel"
	"levee/internal/lab/echo"
	"levee/internal/lab/gen"
	"levee/internal/lang/diag"
)

// Config says where a peer is.
type Config struct {
	Host string // as ssh knows it
	// Shell runs a line of a shell at the other end: its words, then Host, then the line. nil for
	// ssh.
	Shell []string
	// Command is levee-lab at the other end, as its shell finds it. Empty has Program copied there
	// for the time of the measurement.
	Command string
	Program string // this program's file
	Version string // that both must have
	Device  string // the interface there
	CPU     int    // the core there that sends
}

// Client is the peer as the machine sees it that measures.
type Client struct {
	Facts  Facts
	Offset Offset
	// At the wire: the core there that sends and receives, and addresses of clients.
	Taken

	host  string
	trace *gen.Frames // that the peer has
	rpc   *rpc.Client
	cmd   *exec.Cmd
	in    io.WriteCloser
	stop  func()
	said  *tail
	once  sync.Once
	err   error
	told  atomic.Bool // an error says already why there is no peer
}

// Offset is by how much the peer's clocks are ahead of those here, within Error.
type Offset struct{ Wall, Monotonic, Error time.Duration }

// shell is the usual Shell. It asks nothing, and a connection that is dead ends within 15 s.
var shell = []string{"ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o",
	"ServerAliveCountMax=3"}

// Dial starts a peer, reads what it is, and compares the clocks. ctx ends that; the peer stays
// until it is closed.
func Dial(ctx context.Context, c Config) (p *Client, err error) {
	words, program := c.Shell, []byte(nil)
	if len(words) == 0 {
		words = shell
	}
	line := c.Command + " peer"
	if c.Command == "" {
		if program, err = os.ReadFile(c.Program); err != nil {
			return nil, fmt.Errorf("reading this program, to copy it to %s: %w", c.Host, err)
		}
		line = "exec sh -c " + quoted(fmt.Sprintf(bring, len(program)))
	}
	stays, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p = &Client{host: c.Host, said: new(tail), stop: cancel}
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("reaching the peer %s: %w", c.Host, ctx.Err())
		}
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	defer context.AfterFunc(ctx, cancel)()
	p.cmd = exec.CommandContext(stays, words[0], append(append([]string(nil), words[1:]...), c.Host,
		line)...)
	p.cmd.Stderr = p.said
	// Ctrl-C is for this process, which ends the peer in its turn.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = patience
	in, err := p.cmd.StdinPipe()
	if err != nil {
		p.cmd = nil
		return p, err
	}
	p.in = in
	// The peer ends, and tidies up, once its input does. Before it speaks it has nothing to tidy
	// up, and ssh may wait for long.
	var speaks atomic.Bool
	p.cmd.Cancel = func() error {
		if !speaks.Load() {
			return p.cmd.Process.Kill()
		}
		if err := in.Close(); !errors.Is(err, os.ErrClosed) {
			return err
		}
		return os.ErrProcessDone // it ends already
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.cmd = nil
		return p, err
	}
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return p, kernel.Refuse(err, "start %s, which reaches the peer", words[0])
	}
	_, wrote := in.Write(program) // the peer says more about why it reads no more
	answers := bufio.NewReader(&bounded{r: out})
	version, err := greeting(answers)
	if err != nil {
		return p, p.refused(errors.Join(err, wrote))
	}
	speaks.Store(true)
	if version != c.Version {
		return p, kernel.Refuse(nil, "levee-lab at %s is version %s, here it is %s: without "+
			"--peer-command this one is copied there", c.Host, version, c.Version)
	}
	p.rpc = rpc.NewClientWithCodec(jsonrpc.NewClientCodec(&stream{answers, in, in.Close}))
	go p.beat(stays)
	if err := p.call("Facts", c.Device, &p.Facts); err != nil {
		return p, err
	}
	for _, text := range []*string{&p.Facts.Card.Name, &p.Facts.Card.Driver, &p.Facts.Machine.CPU,
		&p.Facts.Machine.Kernel} {
		*text = diag.Quoted(*text)
	}
	return p, p.Compare()
}

// bring is a script that takes so many bytes of its input for the program, and runs it with the
// rest. The peer speaks first, so that nothing else is in the input yet.
const bring = `umask 077
d=$(mktemp -d "${TMPDIR:-/tmp}/levee-peer.XXXXXX") || exit
trap 'rm -rf "$d"' EXIT
trap 'exit 1' HUP INT TERM PIPE
head -c %d >"$d/levee-lab" && chmod 700 "$d/levee-lab" || exit
if [ "$(id -u)" = 0 ]; then "$d/levee-lab" peer; else sudo -n "$d/levee-lab" peer; fi`

// quoted is a word of a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// greeting reads lines up to the peer's first, behind what a login says.
func greeting(r *bufio.Reader) (version string, err error) {
	for range 1000 {
		line, err := r.ReadSlice('\n')
		if v, ok := strings.CutPrefix(strings.TrimSpace(string(line)), hello); ok && err == nil {
			return diag.Quoted(v), nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return "", err
		}
	}
	return "", errors.New("it says something else")
}

// refused returns the reason that there is no peer, with what its side has said.
func (p *Client) refused(err error) error {
	p.end()
	p.told.Store(true)
	if said := p.said.String(); said != "" {
		return kernel.Refuse(nil, "no peer at %s: %s", p.host, said)
	}
	return kernel.Refuse(err, "no peer at %s", p.host)
}

// answersWithin is the longest time that a peer may take for what it does at once: a trace takes as
// long to get there. One that takes longer is ended.
const answersWithin = 2 * Longest

// call asks the peer.
func (p *Client) call(method string, args, reply any) error {
	return p.ask(answersWithin, method, args, reply)
}

// ask asks the peer, which has to answer within a time.
func (p *Client) ask(within time.Duration, method string, args, reply any) error {
	late := time.AfterFunc(within, p.stop)
	err := p.rpc.Call("Peer."+method, args, reply)
	var said rpc.ServerError
	switch inTime := late.Stop(); {
	case errors.As(err, &said):
		return kernel.Refuse(nil, "peer %s: %s", p.host, diag.Quoted(string(said)))
	case err != nil && !inTime:
		p.end()
		return kernel.Refuse(nil, "peer %s did not answer within %v", p.host, within)
	case err != nil:
		return p.refused(err)
	}
	return nil
}

// beat lets the peer know that somebody is there, and ends one that says nothing.
func (p *Client) beat(ctx context.Context) {
	t := time.NewTicker(heartbeat)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			var c Clock
			late := time.AfterFunc(answersWithin, p.stop)
			err := p.rpc.Call("Peer.Clock", struct{}{}, &c)
			if late.Stop(); err != nil {
				return
			}
		}
	}
}

// comparisons of the clocks, of which the shortest counts: half of its time is the error.
const comparisons = 20

// Compare reads Offset anew: clocks drift apart by some ten microseconds a second.
func (p *Client) Compare() error {
	p.Offset.Error = time.Hour
	for range comparisons {
		var c Clock
		wall, before := time.Now().UnixNano(), kernel.Monotonic()
		if err := p.call("Clock", struct{}{}, &c); err != nil {
			return err
		}
		half := (kernel.Monotonic() - before) / 2
		if half < p.Offset.Error {
			p.Offset = Offset{Wall: time.Duration(c.Wall-wall) - half,
				Monotonic: time.Duration(c.Monotonic) - before - half, Error: half}
		}
	}
	return nil
}

// Take has the peer take its interface.
func (p *Client) Take(e End) error { return p.call("Take", e, &p.Taken) }

// PacketSockets counts those at the peer's interface.
func (p *Client) PacketSockets() (n int, err error) {
	err = p.call("PacketSockets", struct{}{}, &n)
	return n, err
}

// Send has the peer send floods or frames, as gen.Run does; namespace, device and core are its own.
// It returns when ctx ends, and ends a peer that does not answer then.
func (p *Client) Send(ctx context.Context, c gen.Config) (r gen.Report, err error) {
	l := Load{Floods: c.Floods, Seed: c.Seed, Rate: c.Rate, Burst: c.Burst, Dropped: c.Dropped,
		Duration: min(c.Duration, Longest)}
	if c.Frames != nil && c.Frames != p.trace { // a trace is long, and the same in many windows
		if err := p.call("Trace", c.Frames.Frames, &struct{}{}); err != nil {
			return r, err
		}
		p.trace = c.Frames
	}
	if err := p.call("Begin", l, &struct{}{}); err != nil {
		return r, err
	}
	<-ctx.Done()
	defer time.AfterFunc(patience, p.stop).Stop()
	var s Sent
	if err := p.call("End", struct{}{}, &s); err != nil {
		return r, err
	}
	return gen.Report{Sent: s.Sent, Bytes: s.Bytes, Refused: s.Refused, Errors: s.Errors,
		Duration: s.Duration, Rate: c.Rate, Achieved: s.Achieved, Seed: c.Seed,
		How: diag.Quoted(s.How), Why: diag.Quoted(s.Why)}, nil
}

// ErrLate is that a peer heard of probes after they were to begin: it, or the way to it, was busy.
var ErrLate = errors.New("the peer heard of probes after they were to begin")

// Probe has the peer time round trips to this machine, by its own clock; they begin by the clock
// here. The error matches ErrLate where they did not.
func (p *Client) Probe(ctx context.Context, probes echo.Probes) ([]int64, error) {
	if probes.Begin != 0 {
		probes.Begin += p.Offset.Monotonic
	}
	var t Timed
	done := make(chan error, 1)
	// each of the three that it waits for is bounded: Peer.Probe
	go func() { done <- p.ask(answersWithin+3*Longest, "Probe", probes, &t) }()
	select {
	case err := <-done:
		switch {
		case err != nil:
		case t.Late != 0:
			err = kernel.Refuse(ErrLate, "peer %s: late by %v", p.host, t.Late)
		case len(t.Took) != len(probes.At) ||
			slices.ContainsFunc(t.Took, func(ns int64) bool { return ns < echo.Lost }):
			err = kernel.Refuse(nil, "peer %s: %d round trips of %d probes, or some that took "+
				"less than no time", p.host, len(t.Took), len(probes.At))
		}
		return t.Took, err
	case <-ctx.Done():
		return nil, ctx.Err() // the peer ends with its client
	}
}

// patience is the longest time that a peer may take to give its interface back.
const patience = 20 * time.Second

// Close ends the peer, and waits until it has given its interface back. It says why it ended
// otherwise, unless an error before has.
func (p *Client) Close() error {
	if err := p.end(); err != nil && !p.told.Load() {
		return fmt.Errorf("peer %s: %w: %s", p.host, err, p.said)
	}
	return nil
}

func (p *Client) end() error {
	p.once.Do(func() {
		if p.cmd == nil {
			p.stop()
			return
		}
		_ = p.in.Close() // ends the peer
		if p.rpc != nil {
			_ = p.rpc.Close()
		}
		time.AfterFunc(patience, p.stop)
		p.err = p.cmd.Wait()
		p.stop()
	})
	return p.err
}

// tail keeps the end of what a process says.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailBytes = 500

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	t.b = t.b[max(0, len(t.b)-tailBytes):]
	return len(b), nil
}

// String is the last line, as a terminal may show it.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.b)), "\n")
	return diag.Quoted(strings.TrimSpace(lines[len(lines)-1]))
}
