package peer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"levee/internal/kernel"
	"levee/internal/lab"
)

// Role is a process that a peer starts: one of those that it has, and its arguments.
type Role struct {
	Name string
	Args []string
}

// Part is a part of what is written to a process or read of it, and whether it is the last.
type Part struct {
	Process int
	Bytes   []byte
	Last    bool
}

// Bounds of processes, and of what is read at once.
const (
	mostProcesses = 1000 // in the life of a peer
	mostBytes     = 64 << 10
)

// Start starts a role at the wire, on the core that receives, and tells its number.
func (p *Peer) Start(r Role, n *int) error {
	line := p.roles[r.Name]
	if line == nil {
		return fmt.Errorf("this peer has no role %q", r.Name)
	}
	h, err := p.host()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.procs) == mostProcesses {
		return fmt.Errorf("%d processes have been started", mostProcesses)
	}
	proc, err := h.Start(p.ctx, max(h.Devices[0].CPU, 0),
		append(line[:len(line):len(line)], r.Args...)...)
	if err != nil {
		return err
	}
	*n, p.procs = len(p.procs), append(p.procs, proc)
	return nil
}

// process is one that Start has started.
func (p *Peer) process(n int) (*lab.Process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n < 0 || n >= len(p.procs) {
		return nil, errors.New("there is no such process")
	}
	return p.procs[n], nil
}

// Write writes to a process.
func (p *Peer) Write(to Part, _ *struct{}) error {
	proc, err := p.process(to.Process)
	if err != nil {
		return err
	}
	if to.Last {
		return proc.In.Close()
	}
	_, err = proc.In.Write(to.Bytes)
	return err
}

// Read reads what a process says next, and waits for it.
func (p *Peer) Read(n int, from *Part) error {
	proc, err := p.process(n)
	if err != nil {
		return err
	}
	b := make([]byte, mostBytes)
	got, err := proc.Out.Read(b)
	*from = Part{n, b[:got], err == io.EOF}
	if err == io.EOF {
		return nil
	}
	return err
}

// Wait waits for the end of a process, whose output has been read.
func (p *Peer) Wait(n int, _ *struct{}) error {
	proc, err := p.process(n)
	if err != nil {
		return err
	}
	return proc.Wait()
}

// Start has the peer start a process of a role. It ends with the peer, if not before; ctx ends
// waiting for what it says.
func (p *Client) Start(ctx context.Context, role string, args ...string) (*lab.Process, error) {
	x := &process{p: p, ctx: ctx}
	if err := p.call("Start", Role{role, args}, &x.n); err != nil {
		return nil, err
	}
	return &lab.Process{In: x, Out: x, Wait: func() error {
		return x.call("Wait", x.n, &struct{}{})
	}}, nil
}

// process is one of the peer's, seen from here.
type process struct {
	p    *Client
	ctx  context.Context
	n    int
	rest []byte // that was read
	end  bool
}

// call asks the peer, and waits no longer than ctx does.
func (x *process) call(method string, args, reply any) error {
	done := make(chan error, 1)
	go func() { done <- x.p.call(method, args, reply) }()
	select {
	case err := <-done:
		return err
	case <-x.ctx.Done():
		return x.ctx.Err()
	}
}

func (x *process) Write(b []byte) (int, error) {
	if err := x.call("Write", Part{Process: x.n, Bytes: b}, &struct{}{}); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (x *process) Close() error {
	return x.call("Write", Part{Process: x.n, Last: true}, &struct{}{})
}

func (x *process) Read(b []byte) (int, error) {
	if len(x.rest) == 0 && !x.end {
		var next Part
		if err := x.call("Read", x.n, &next); err != nil {
			return 0, err
		}
		if len(next.Bytes) > mostBytes {
			return 0, kernel.Refuse(nil, "peer %s: %d bytes of a process, at most %d at once",
				x.p.host, len(next.Bytes), mostBytes)
		}
		x.rest, x.end = next.Bytes, next.Last
	}
	if len(x.rest) == 0 && x.end {
		return 0, io.EOF
	}
	n := copy(b, x.rest)
	x.rest = x.rest[n:]
	return n, nil
}
