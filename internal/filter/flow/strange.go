package flow

import (
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
	of := func(label, name string, params ...string) assembler.Function {
		f := assembler.Function{Label: label, Name: name, Entry: strangeProgEntry, Change: r.sized}
		for _, p := range params {
			f.Params = append(f.Params, assembler.Number(p))
		}
		return f
	}
	return b.Functions(loadStrangers, "know who has begun",
		of(NoteStranger, "note_stranger", "hash"), of(NoteServed, "note_served", "port"),
		of(AnswersGroup, "answers_group", "hi", "lo", "src_hi", "port", "six"))
}
