package flow

import (
	"fmt"
	"sync"

	"levee/internal/filter/assembler"
)

// Functions about what leaves: they return Known if it answers the other side of its connection,
// else Unknown. AnswersTCP is given the context and the hash, AnswersUDP the hash. Which segments
// of TCP, and which messages of ICMP, are answers by what they are, their caller knows.
const (
	AnswersTCP = "flow_answers_tcp"
	AnswersUDP = "flow_answers_udp"
)

// MaxAnswersInstructions limits the instructions of these functions.
const MaxAnswersInstructions = 500

var loadAnswering = sync.OnceValues(loadAnswers)

// EmitAnswers emits those of the functions that are called.
func (r Room) EmitAnswers(b *assembler.Builder, context assembler.Param) error {
	all, err := loadAnswering()
	if err != nil {
		return fmt.Errorf("read the functions about what answers: %w", err)
	}
	hash := assembler.Number("hash")
	for _, f := range []struct {
		label, name string
		params      []assembler.Param
	}{
		{AnswersTCP, "answers_tcp", []assembler.Param{context, hash}},
		{AnswersUDP, "answers_udp", []assembler.Param{hash}},
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
