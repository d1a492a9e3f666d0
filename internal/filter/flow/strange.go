package flow

import (
	"fmt"
	"sync"

	"levee/internal/filter/assembler"
)

// Functions about UDP of no connection that is known. NoteStranger is given the hash of a packet
// that passes, and returns 1 where NoteServed is to be given the port that it came to. AnswersGroup
// is given the address that a packet came to, in two words, the upper of its source, the port that
// it came to, and 1 for IPv6: it returns Known if it answers what a group has been asked, else
// Unknown.
const (
	NoteStranger = "flow_stranger"
	NoteServed   = "flow_served"
	AnswersGroup = "flow_group"
)

// MaxStrangeInstructions limits the instructions of these functions.
const MaxStrangeInstructions = 1_600

var loadStrangers = sync.OnceValues(loadStrange)

// EmitStrange emits those of the functions that are called.
func (r Room) EmitStrange(b *assembler.Builder) error {
	all, err := loadStrangers()
	if err != nil {
		return fmt.Errorf("read the functions about who has begun: %w", err)
	}
	number := assembler.Number
	for _, f := range []struct {
		label, name string
		params      []assembler.Param
	}{
		{NoteStranger, "note_stranger", []assembler.Param{number("hash")}},
		{NoteServed, "note_served", []assembler.Param{number("port")}},
		{AnswersGroup, "answers_group", []assembler.Param{number("hi"), number("lo"),
			number("src_hi"), number("port"), number("six")}},
	} {
		if !b.Referenced(f.label) {
			continue
		}
		body, err := assembler.Take(all.Programs["entry"].Instructions, f.name)
		if err != nil {
			return err
		}
		b.Global(f.label, f.params...)
		b.Emit(r.sized(body)...)
	}
	return nil
}
