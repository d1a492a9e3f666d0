package episode

import (
	"time"

	"levee/internal/agent/detect"
	"levee/internal/agent/incident"
	"levee/internal/lang/policy"
)

// Event is something that has happened. Exactly one member is set.
type Event struct {
	Policy  *Policy  `json:"policy,omitempty"`
	Unfit   *Unfit   `json:"unfit,omitempty"`
	Adopt   *Adopt   `json:"adopt,omitempty"`
	Tick    *Tick    `json:"tick,omitempty"`
	Few     *Few     `json:"few,omitempty"`
	Found   *Found   `json:"found,omitempty"`
	Applied *Applied `json:"applied,omitempty"`
	Counted *Counted `json:"counted,omitempty"`
	Second  *Second  `json:"second,omitempty"`
	Lost    *Lost    `json:"lost,omitempty"`
	Renewed *Renewed `json:"renewed,omitempty"`
	Undo    *Command `json:"undo,omitempty"`
	Apply   *Command `json:"apply,omitempty"`
	Spared  *Spared  `json:"spared,omitempty"`
	Write   *Write   `json:"write,omitempty"`
	Erase   *Erase   `json:"erase,omitempty"`
}

// Policy is that these detectors are in force.
type Policy struct{ Detects []*policy.Detect }

// Unfit says why rules do not fit the policy in force, by their labels.
type Unfit struct{ Why map[string]string }

// Adopt hands over what the agent before this one left: incidents of the interface, the newest
// first, and the texts of live rules in the kernel. Without any in the kernel, InKernel is false.
type Adopt struct {
	Incidents []incident.Incident
	InKernel  bool
	Texts     []string
	Written   []Write `json:",omitempty"` // by others than detectors
}

// Tick ends a bin of the detectors.
type Tick struct{ Alarms []Alarm }

// Alarm is that of a detector. Those that a tick does not name see nothing.
type Alarm struct {
	Detector string
	detect.Alarm
	Before incident.Rate // what is usual of everything
}

// Few is that a search has too few packets to begin.
type Few struct{}

// Found is the result of a search for rules.
type Found struct {
	Rules   []incident.Rule
	Kinds   map[string]string `json:",omitempty"` // of floods beside it that rules are of, by label
	Good    int               // packets of good traffic that the rules were measured on
	Sources int
	Forged  bool
	Notes   []string
	Steps   []incident.Step
	Err     string
	Took    time.Duration `json:",omitempty"`
}

// Applied is the result of a change in the kernel.
type Applied struct {
	// Other says that another policy has come into force, which is read before the next change.
	Other bool            `json:",omitempty"`
	Steps []incident.Step // with those that the change was given
	Err   string
	// Unfit says which rules of writers were the reason, and why, by their labels.
	Unfit map[string]string `json:",omitempty"`
}

// Counted are the packets and bytes that each live rule has decided, by its label.
type Counted struct {
	Rules map[string]Count
	// Costs are the shares of good packets that rules drop of late, as samples of what they drop
	// show. Rules without a cost drop none that is known.
	Costs map[string]float64
}

// Count is of a rule.
type Count struct{ Packets, Bytes uint64 }

// Second is that a second has passed.
type Second struct{}

// Lost is that live rules are not in force any more, or that only those with these texts are.
type Lost struct {
	Texts string `json:",omitempty"`
}

// Renewed is the result of renewing the leases of live rules.
type Renewed struct {
	Lost bool
	Err  string
}

// Command is one about an incident.
type Command struct{ ID string }

// Spared is that a rule in force spares so many sources more, or fewer, by another text.
type Spared struct {
	Label, Rule string
	Sources     int
}

// Write is that somebody who is no detector wants a rule in force. Until in it is when it ends.
type Write struct {
	Origin string
	Rule   incident.Rule
}

// Erase is that a rule is wanted no more.
type Erase struct{ Label, Why string }

// Effect is something to do. Exactly one member is set.
type Effect struct {
	Search *Search            `json:"search,omitempty"`
	Put    *Put               `json:"put,omitempty"`
	Renew  *Renew             `json:"renew,omitempty"`
	Save   *incident.Incident `json:"save,omitempty"`
	Log    string             `json:"log,omitempty"`
	Strict *Strict            `json:"strict,omitempty"`
	Drops  *Drops             `json:"drops,omitempty"`
	Reset  bool               `json:"reset,omitempty"`
	Forget *time.Time         `json:"forget,omitempty"`
	Spare  bool               `json:"spare,omitempty"` // what was dropped of good sources is good
	Gone   *Gone              `json:"gone,omitempty"`
}

// Search is to look for rules against a flood, in the packets since a time. Found or Few answers.
type Search struct {
	ID    string
	Of    *policy.Detect
	Alarm detect.Alarm
	Since time.Time
	Round int
	Acts  bool    // what is found comes into force
	Peak  float64 // packets a second that came of it, at most
	Live  []Live  // rules in force
	// Tried are answers that have not stopped it: drops, and those of this package's constants.
	Tried []string
	// Moved is how many times, one behind the other, it has changed since its rules came.
	Moved int `json:",omitempty"`
}

// Put is to have the kernel judge by the policy with these rules in it, and no others. Applied
// answers.
type Put struct {
	Rules  []Live
	Cookie bool            // one of them is a new cookie: who is known need not be asked
	Steps  []incident.Step // of the search
}

// Renew is to keep live rules for a lease from now on. Renewed answers.
type Renew struct{ Lease time.Duration }

// Strict is that a detector takes less for too much until a time.
type Strict struct {
	Detector string
	Until    time.Time
}

// Drops tells the packets a second that the rules of a detector drop, until a time.
type Drops struct {
	Detector string
	Packets  float64
	Until    time.Time
}

// Gone is that a rule of a writer is not wanted any more.
type Gone struct{ Label, Why string }

// Live is a rule that is to be in force, with its detector. It is a copy.
type Live struct {
	Rule   incident.Rule
	Of     *policy.Detect // nil: of another writer
	Origin string         // the name of the detector, or that of the writer
	// Incident is the ID of the incident of a detector's rule.
	Incident string `json:",omitempty"`
}

// WrittenLease is the time that a writer's rule stays in force without an agent.
const WrittenLease = time.Minute

func (l *Live) lease() time.Duration {
	if l.Of == nil {
		return WrittenLease
	}
	return l.Of.Lease
}
