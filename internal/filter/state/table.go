package state

import (
	"fmt"

	"github.com/cilium/ebpf"

	"levee/internal/filter/echo"
	"levee/internal/filter/flow"
	"levee/internal/filter/fragment"
	"levee/internal/filter/greylist"
	"levee/internal/filter/logging"
	"levee/internal/filter/stream"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/packet"
	"levee/internal/quantity"
)

// Table has a row for each memory. Programs have their functions in its order. What a row fills in
// below is all that else knows a memory by name.
var Table = []Row{samples, connections, limits, logs, proofs, echoes, greylists, streams,
	fragments, diversions, rings, pairs}

// Use lists what the program of a policy needs of each memory. The planner fills it in.
type Use struct {
	CPUs  int         // a power of two
	HZ    uint64      // jiffies a second
	Link  packet.Link // what packets begin with
	TCX   bool        // the context is an skb
	Frags bool        // a packet may not lie in its first buffer as a whole
	Plain bool        // without the careful decoder
	// Service: the program sees packets where the socket of a service does, and may interrupt
	// itself on a CPU.
	Service bool
	// Leaves: the program judges what leaves
	Leaves bool

	Asks map[field.Field]bool // of what is remembered, the fields that rules ask for
	// Reached are those of them that rules ask for to which packets come.
	Reached map[field.Field]bool
	// Families counts the families with packets that come to rules with an effect of the program.
	Families map[action.Action]int

	Tracks    bool      // packets are looked up
	Room      flow.Room // for them: see Fit
	Protocols []uint8   // of the packets that are looked up, each family by itself
	Limits    []Limit
	Logs      []uint32 // their numbers, package logging
	// LogsBefore are the logs of what arrives, in a program for what leaves; AllLogs those of both.
	LogsBefore, AllLogs int
	Cookies             int // that answer SYNs or queries
	// Answered marks the protocols whose first packets cookies answer.
	Answered  [action.NumAnswered]bool
	Proves    bool // handshakes that are seen prove who is there
	Fragments int  // functions that follow them, 0 if no rule does
	// Echoes are the replies whose clients prove their flows, nil where no rule asks for these.
	Echoes    []echo.Form
	forms     *ebpf.MapSpec // of Echoes
	Greylists int           // rules that ask who comes again
	Strangers greylist.Room // for their clients: see Fit
	// Streams are the ports of services whose streams are searched, nil where no rule does.
	Streams  []stream.Ports
	searched *ebpf.MapSpec // of Streams
	Rings    []string      // by name, of a program that redirects packets to them
	// RingsReached counts those that packets may reach.
	RingsReached int
	// JudgedBytes is the row of counters of the policy in force, 0 in a policy that is no shadow.
	JudgedBytes int
}

// Memories is the report of a policy's memories: the one model for commands, their JSON, the API,
// and metrics. A row fills its field.
type Memories struct {
	Limits []Budgets `json:"limits"`
	// of a policy that asks for them
	Connections *flow.Stats `json:"connections,omitempty"`
	// of a policy that has cookies, or asks who is proven
	Cookies *Proofs `json:"cookies,omitempty"`
	// of a policy that asks whose flows are proven
	Echoes *Echoes `json:"echoes,omitempty"`
	// of a policy with greylists
	Greylists *Greylists `json:"greylists,omitempty"`
	// of a policy that searches streams
	Streams *stream.Stats `json:"streams,omitempty"`
	// of a policy that follows them
	Fragments *fragment.Stats `json:"fragments,omitempty"`
	// of a policy that diverts connections
	Diverted *Diversions `json:"diverted,omitempty"`
	// of a policy that redirects packets
	Rings []Ring `json:"rings,omitempty"`
	// of a policy with logs
	Logs *logging.Losses `json:"logs,omitempty"`
	// who looks at what was judged
	Samples *Samplers `json:"samples,omitempty"`
	// of a shadow, which JSON tells in an object of its own
	Shadow *ShadowCounts `json:"-"`
}

// Rooms are the room of each memory of a policy.
type Rooms struct {
	// memory of connections, of a policy that asks for them
	Connections *Room `json:"connections,omitempty"`
	// memory of clients that have proven themselves, of a policy with cookies
	Cookies *Room `json:"cookies,omitempty"`
	// memory of flows that have proven themselves, of a policy that asks for these
	Echoes *Room `json:"echoes,omitempty"`
	// memory of clients that may come again, of a policy with greylists
	Greylists *Room `json:"greylists,omitempty"`
	// memory of streams of TCP, of a policy that searches them
	Streams *Room `json:"streams,omitempty"`
	// memory of datagrams, of a policy that follows fragments
	Fragments *Room `json:"fragments,omitempty"`
	// memory of what is diverted, of a policy that diverts connections
	Diverted *Room `json:"diverted,omitempty"`
}

// Rooms returns the room of each memory of a program.
func (u *Use) Rooms() (all Rooms) {
	for _, r := range u.In() {
		if r.Room != nil {
			*r.In(&all) = new(r.Room(u))
		}
	}
	return all
}

// Words returns a line of each.
func (all *Rooms) Words() (lines []string) {
	for i := range Table {
		if r := &Table[i]; r.In != nil && *r.In(all) != nil {
			room := *r.In(all)
			lines = append(lines, fmt.Sprintf("%s in %s", fmt.Sprintf(room.Says, room.Room),
				quantity.Print(float64(room.Bytes), "bytes")))
		}
	}
	return lines
}
