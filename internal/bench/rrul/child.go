package rrul

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lang/diag"
)

// child is a role that runs at an end of the wire.
type child struct {
	role string
	*lab.Process
	out *bufio.Scanner
}

func newChild(role string, p *lab.Process) *child {
	c := &child{role, p, bufio.NewScanner(p.Out)}
	c.out.Buffer(nil, 1<<20)
	return c
}

// What a role says once it has begun, or finished its task; and before what its machine has not.
const (
	sayReady   = "ready"
	sayMissing = "missing: "
)

// ready waits for the role to say so. An error that matches contender.ErrMissing is about what its
// machine has not. The role has ended behind an error.
func (c *child) ready() error {
	if c.out.Scan() && c.out.Text() == sayReady {
		return nil
	}
	if what, ok := strings.CutPrefix(c.out.Text(), sayMissing); ok {
		return errors.Join(missing(diag.Quoted(what)), c.stop())
	}
	return errors.Join(fmt.Errorf("the %s did not begin", c.role), c.stop())
}

// missing is the error of a process whose machine lacks a program. It matches contender.ErrMissing.
type missing string

func (m missing) Error() string   { return string(m) }
func (m missing) Is(e error) bool { return e == contender.ErrMissing }

// Lines by which a role is asked.
const (
	askBegin = "begin" // connections
	askCount = "count"
	askEnd   = "end" // connections
)

// ask has the role do what a line says.
func (c *child) ask(line string) error {
	if _, err := fmt.Fprintln(c.In, line); err != nil {
		return fmt.Errorf("asking the %s: %w", c.role, err)
	}
	return nil
}

// done has the role do something, and waits for it.
func (c *child) done(line string) error {
	if err := c.ask(line); err != nil {
		return errors.Join(err, c.stop())
	}
	return c.ready()
}

// count asks what the role counts.
func (c *child) count() (n count, err error) {
	if err := c.ask(askCount); err != nil {
		return n, err
	}
	if !c.out.Scan() {
		return n, fmt.Errorf("the %s has ended", c.role)
	}
	if err := json.Unmarshal(c.out.Bytes(), &n); err != nil {
		return n, fmt.Errorf("what the %s counts: %w", c.role, err)
	}
	n.Failed = diag.Quoted(n.Failed)
	for i := range n.Queues {
		n.Queues[i].Kind = diag.Quoted(n.Queues[i].Kind)
	}
	return n, nil
}

// stop ends the role and says what went wrong in it. It may be called again.
func (c *child) stop() error {
	if c.Process == nil {
		return nil
	}
	err := errors.Join(c.In.Close(), c.Wait())
	if c.Process = nil; err != nil {
		return fmt.Errorf("the %s: %w", c.role, err)
	}
	return nil
}
