package plan

import "levee/internal/filter/ir"

// Response holds the verdict on a packet, and the slot of the rule that gave it.
type Response struct {
	Verdict ir.Verdict // not NoVerdict
	Slot    int        // index into policy.Slots
}

// ResponseOf returns what a rule that decides makes of a packet.
func ResponseOf(r *ir.Rule) Response { return Response{r.Action.Verdict, r.Slot} }

// Programs carry a response as a word: the number of the verdict in the low bits, the slot above. 0
// means that no rule has decided yet. An earlier rule has a smaller word than a later one.
const (
	VerdictBits = 4 // of the word, from the lowest on

	DropWord   = 1 // the number of a verdict
	PassWord   = 2
	AnswerWord = 3

	RedirectWord = 4
)

// Word returns the response as programs carry it.
func (r Response) Word() uint32 {
	verdict := uint32(DropWord)
	switch r.Verdict {
	case ir.Pass:
		verdict = PassWord
	case ir.Answer:
		verdict = AnswerWord
	case ir.Redirect:
		verdict = RedirectWord
	}
	return uint32(r.Slot)<<VerdictBits | verdict
}

// Verdict ends the judging of a packet.
type Verdict struct {
	Node
	Response
}

func (*Verdict) Kind() string    { return "verdict" }
func (*Verdict) Blocks() []Block { return nil }

// Effect acts on each packet that reaches it and goes on to the next block.
type Effect struct {
	Node
	ir.Effect
	Slot  int // of the rule
	takes effectCost
}

func (*Effect) Kind() string    { return "effect" }
func (*Effect) Blocks() []Block { return nil }
