package flow

import (
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
	hash := assembler.Number("hash")
	return b.Functions(loadAnswering, "know what answers",
		assembler.Function{Label: AnswersTCP, Name: "answers_tcp", Entry: answersProgEntry,
			Params: []assembler.Param{context, hash}, Change: r.sized},
		assembler.Function{Label: AnswersUDP, Name: "answers_udp", Entry: answersProgEntry,
			Params: []assembler.Param{hash}, Change: r.sized})
}
