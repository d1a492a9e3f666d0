package action

// Answered is a kind of packets that cookies answer in the host's place.
type Answered uint8

// What cookies answer. The zero value is that of a cookie without a word behind it.
const (
	SYNs Answered = iota
	DNSQueries
	A2SQueries

	NumAnswered
)

// AnsweredInfo describes a kind of packets that cookies answer.
type AnsweredInfo struct {
	Word    string // behind `cookie`; "" for SYNs
	One     string // of them, in words
	What    string // they are
	Name    string // of the protocol, where there is a word
	Example string // of a rule
}

var answered = [NumAnswered]AnsweredInfo{
	SYNs: {One: "a SYN", What: "SYNs", Example: "cookie tcp port 443"},
	DNSQueries: {Word: "dns", One: "a DNS query", What: "DNS queries", Name: "DNS",
		Example: "cookie dns udp port 53"},
	A2SQueries: {Word: "a2s", One: "an A2S query", What: "A2S queries", Name: "A2S",
		Example: "cookie a2s udp port 27015"},
}

// Info returns what is true of the kind.
func (a Answered) Info() *AnsweredInfo { return &answered[a] }

// AnsweredBy returns the kind for a word that stands behind `cookie`.
func AnsweredBy(word string) (Answered, bool) {
	for a := SYNs + 1; a < NumAnswered; a++ {
		if answered[a].Word == word {
			return a, true
		}
	}
	return SYNs, false
}
