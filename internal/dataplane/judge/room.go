package judge

import (
	"errors"
	"fmt"
	"slices"

	"levee/internal/filter/ir"
	"levee/internal/filter/oracle"
	"levee/internal/filter/plan"
	"levee/internal/filter/state"
	"levee/internal/kernel"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
	"levee/internal/quantity"
)

// Connections gives the room for connections that a policy gets on this machine.
type Connections struct {
	Asked int `json:"asked,omitempty"` // by `connections max`
	Room  int `json:"room"`            // for so many, on this machine
	Bytes int `json:"bytes"`
	// why this machine gives that room to none, and what to do
	Refused string `json:"refused,omitempty"`
}

// NewConnections says which room a policy has for connections on this machine, where a rule of a
// story came to ask whether the packet is of one; else it is nil.
func NewConnections(p *policy.Policy, link packet.Link, tr *oracle.Trace) (*Connections, error) {
	slots := p.Slots()
	if !slices.ContainsFunc(tr.Tried, func(t oracle.Tried) bool {
		r := slots[t.Slot].Rule
		return (t.Matched || t.Got == field.Flow.Info().IsNot) && r != nil &&
			slices.ContainsFunc(r.Match, func(t policy.Term) bool { return t.Field == field.Flow })
	}) {
		return nil, nil
	}
	memory, err := kernel.Memory()
	if err != nil {
		return nil, err
	}
	c := &Connections{Asked: p.MaxConnections}
	made, err := plan.New(ir.Build(p), plan.Target{Link: link, Memory: memory})
	var none *state.NoMemory
	switch {
	case errors.As(err, &none):
		c.Refused = none.Error()
	case err != nil:
		return nil, err
	default:
		room := made.State.Rooms().Connections
		if room == nil { // no packet comes to that rule
			return nil, nil
		}
		c.Room, c.Bytes = room.Room, room.Bytes
	}
	return c, nil
}

// String returns the sentence.
func (c *Connections) String() string {
	if c.Refused != "" {
		return "a story knows no connection; there is no room for any: " + c.Refused
	}
	why := "the share of this machine"
	if c.Asked > 0 {
		why = fmt.Sprintf("`connections max %d`", c.Asked)
	}
	return fmt.Sprintf("a story knows no connection; there is room for %d in %s, by %s", c.Room,
		quantity.Print(float64(c.Bytes), "bytes"), why)
}
