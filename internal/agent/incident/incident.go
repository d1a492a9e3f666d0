// Package incident keeps what the agent has seen and done about floods: as values that commands, an
// API and pages show, and in a file.
//
// In go incidents as they change, out come those that there are, the newest first. The file is
// replaced in one step, and bounded in number and size. The package must never decide anything.
package incident

import (
	"fmt"
	"strings"
	"time"

	"levee/internal/agent/kind"
)

// States of an incident.
const (
	Open     = "open"     // the flood goes on, or its rules are in force
	Ended    = "ended"    // it is over, and no rule of it is left
	Undone   = "undone"   // somebody has taken its rules back
	Proposed = "proposed" // its rules wait for somebody to apply them
	Observed = "observed" // it was told of only
)

// States of a rule.
const (
	Live     = "live"
	Loosened = "loosened" // from a drop to a limit, as the flood is over
	Gone     = "gone"
	Waiting  = "proposed"
)

// Incident is one flood: the traffic before it, what was seen, what was done, and what that cost.
type Incident struct {
	ID       string `json:"id"`
	Detector string `json:"detector"`
	Dev      string `json:"dev"`
	Mode     string `json:"mode"`
	State    string `json:"state"`
	// Sentence says what was seen and done.
	Sentence string `json:"sentence"`

	Began    time.Time  `json:"began"`            // the first packets that were too many
	Detected time.Time  `json:"detected"`         // they were found to be
	Acted    *time.Time `json:"acted,omitempty"`  // the first rule was in force
	Ended    *time.Time `json:"ended,omitempty"`  // the flood was seen last
	Closed   *time.Time `json:"closed,omitempty"` // the last rule was gone

	// Steps are the way from the samples to the first rule in force, the earliest first.
	Steps []Step `json:"steps,omitempty"`

	Before     Rate       `json:"before"`
	Seen       Seen       `json:"seen"`
	Rules      []Rule     `json:"rules"`
	Collateral Collateral `json:"collateral"`
	Notes      []string   `json:"notes,omitempty"`
	// Searches are those for rules that have ended, and Failed is why the last of them, or putting
	// its rules into force, has not done what it should.
	Searches int    `json:"searches"`
	Failed   string `json:"failed,omitempty"`
}

// Step is the end of a part of the way from a flood to the first rule against it.
type Step struct {
	What string    `json:"what"`
	At   time.Time `json:"at"`
	// Core is the processor time that the agent had had by then, in seconds: where much less of it
	// goes by than of the clock, something else kept the processors.
	Core float64 `json:"core_seconds"`
}

// Rate is traffic.
type Rate struct {
	Packets float64 `json:"packets_per_second"`
	Bits    float64 `json:"bits_per_second"`
}

// Seen describes the traffic that was too much.
type Seen struct {
	Kind        string  `json:"kind"`
	Words       string  `json:"words,omitempty"`       // packets of the kind, in words
	Destination string  `json:"destination,omitempty"` // a prefix; none: everything that is watched
	Source      string  `json:"source,omitempty"`      // a prefix, where that stands out
	Packets     float64 `json:"packets_per_second"`    // when it was detected
	Bits        float64 `json:"bits_per_second"`
	Peak        float64 `json:"peak_packets_per_second"`
	Rate        float64 `json:"rate"` // of the kind, a second
	Threshold   float64 `json:"threshold"`
	Usual       float64 `json:"usual"` // of the kind, before
	// Unknown says that nothing was learned yet: that none is usual means nothing then.
	Unknown bool    `json:"nothing_learned,omitempty"`
	Passed  float64 `json:"passed_packets"` // of it, that no rule dropped, by samples
	Learned bool    `json:"learned"`
	Sources int     `json:"sources"` // different ones, in the sample
	Forged  bool    `json:"forged_sources"`
}

// Rule is a rule against it.
type Rule struct {
	Rule   string     `json:"rule"`
	Label  string     `json:"label"`
	Before string     `json:"before,omitempty"` // rule of the policy in front of which it stands
	Action string     `json:"action"`           // drop, limit, cookie or greylist
	State  string     `json:"state"`
	Why    string     `json:"why,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	// Loosened is the time at which it became a limit, which takes next to no good packets.
	Loosened *time.Time `json:"loosened,omitempty"`
	Until    *time.Time `json:"until,omitempty"` // it is live, unless an agent renews it
	Gone     *time.Time `json:"gone,omitempty"`
	// Spared are sources that a limit on strangers spares since it came: the last of its list.
	Spared int `json:"spared,omitempty"`
	// that it dropped
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	// Coverage is the share of the flood's sample that it drops.
	Coverage float64 `json:"coverage"`
	// Predicted, and AtMost with 95 % confidence, are shares of good packets that it drops;
	// Measured is the greatest share that it dropped for seconds while it was in force, of what
	// usually comes from known sources.
	Predicted float64  `json:"collateral"`
	AtMost    float64  `json:"collateral_at_most"`
	Measured  *float64 `json:"collateral_measured,omitempty"`
}

// Collateral is the share of good packets that all rules drop.
type Collateral struct {
	Predicted float64  `json:"predicted"`
	AtMost    float64  `json:"at_most"`
	Measured  *float64 `json:"measured,omitempty"`
	Packets   int      `json:"good_packets"` // on which it was predicted
}

// IsLive says whether a rule is in force.
func (r *Rule) IsLive() bool { return r.State == Live || r.State == Loosened }

// Tell writes the sentence.
func (i *Incident) Tell() {
	var b strings.Builder
	s := &i.Seen
	row := kind.Named(s.Kind)
	s.Words = row.Words
	name := row.Phrase
	fmt.Fprintf(&b, "%s%s", strings.ToUpper(name[:1]), name[1:])
	if s.Destination != "" {
		fmt.Fprintf(&b, " to %s", host(s.Destination))
	}
	switch {
	case s.Source != "":
		fmt.Fprintf(&b, " from %s", host(s.Source))
	case s.Forged:
		b.WriteString(" from forged sources")
	}
	usual := number(s.Usual)
	switch {
	case s.Unknown:
		usual = "nothing was learned yet"
	case usual == "1":
		usual += " was usual"
	default:
		usual += " were usual"
	}
	fmt.Fprintf(&b, ": %s %s, where %s and more than %s are too much", number(s.Rate), row.Unit,
		usual, number(s.Threshold))
	if !s.Learned {
		b.Reset()
		fmt.Fprintf(&b, "%s%s to %s: %s %s, more than the %s that the policy allows",
			strings.ToUpper(name[:1]), name[1:], host(s.Destination), number(s.Rate), row.Unit,
			number(s.Threshold))
	}
	said := s.Rate
	if s.Kind == kind.Bits.String() {
		said = s.Packets
	}
	if s.Peak-i.Before.Packets > 1.5*said {
		fmt.Fprintf(&b, "; at most %s packets/s of all kinds", number(s.Peak))
	}
	i.tellDone(&b)
	i.Sentence = b.String()
}

func (i *Incident) tellDone(b *strings.Builder) {
	live, packets := 0, uint64(0)
	for k := range i.Rules {
		if i.Rules[k].IsLive() {
			live++
		}
		packets += i.Rules[k].Packets
	}
	switch {
	case i.Acted == nil && i.Failed != "":
		fmt.Fprintf(b, "; its rules could not be put into force: %s", i.Failed)
	case i.Acted == nil && i.State == Undone: // also of a flood behind one that was undone
		b.WriteString("; nothing is done, as a command said of such a flood")
	case len(i.Rules) == 0 && i.State == Observed:
		b.WriteString("; observed only, as its detector says")
	case len(i.Rules) == 0 && i.Searches > 0:
		b.WriteString("; no rule was found that is clean")
	case len(i.Rules) == 0 && i.State == Open && i.Ended == nil:
		b.WriteString("; rules are searched")
	case len(i.Rules) == 0:
		b.WriteString("; nothing was done")
	case i.Acted == nil && i.State == Proposed:
		fmt.Fprintf(b, "; %s proposed", count(len(i.Rules)))
	case i.Acted == nil:
		b.WriteString("; nothing was done")
	default:
		dropped := amount(float64(packets), "packet")
		if i.Seen.Passed > 0 {
			dropped = number(float64(packets)) + " of " +
				amount(float64(packets)+i.Seen.Passed, "packet")
		}
		fmt.Fprintf(b, "; %s in force %.1f s after its first packets dropped %s, ",
			count(len(i.Rules)), i.Acted.Sub(i.Began).Seconds(), dropped)
		i.tellCollateral(b)
	}
	if i.Ended != nil {
		fmt.Fprintf(b, "; it ended after %s", round(i.Ended.Sub(i.Began)))
	}
	switch {
	case i.State == Undone && i.Acted != nil:
		b.WriteString(", and " + i.takenBack() + " by a command")
	case i.Acted != nil && i.Closed != nil:
		b.WriteString(", and " + i.takenBack())
	case live > 0 && i.Ended != nil:
		fmt.Fprintf(b, ", and %s still in force", count(live))
	}
}

// tellCollateral says what rules cost, and on how many packets that is known.
func (i *Incident) tellCollateral(b *strings.Builder) {
	c := &i.Collateral
	if c.Packets == 0 {
		b.WriteString("at a cost that is not known: no good packets were seen before")
	} else {
		fmt.Fprintf(b, "at %.2g %% of %s", 100*c.Predicted,
			amount(float64(c.Packets), "good packet"))
	}
	if c.Measured != nil {
		fmt.Fprintf(b, " (measured: %.2g %%)", 100**c.Measured)
	}
}

func count(n int) string {
	if n == 1 {
		return "1 rule"
	}
	return fmt.Sprint(n, " rules")
}

// takenBack is of an incident that had rules in force.
func (i *Incident) takenBack() string {
	if len(i.Rules) == 1 {
		return "its rule was taken back"
	}
	return "its rules were taken back"
}

// amount is a number of things, as "1 packet", "20 packets" and "12 k packets".
func amount(v float64, thing string) string {
	n := number(v)
	if n != "1" {
		thing += "s"
	}
	return n + " " + thing
}

func round(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(time.Second / 10)
	}
	return d.Round(time.Second)
}

// host returns a prefix without a length that says nothing.
func host(prefix string) string {
	p, _ := strings.CutSuffix(prefix, "/32")
	p, _ = strings.CutSuffix(p, "/128")
	return p
}

// number returns a number of packets, in a form that is read at a glance.
func number(v float64) string {
	switch {
	case v >= 1e10:
		return fmt.Sprintf("%.0f G", v/1e9)
	case v >= 1e9:
		return fmt.Sprintf("%.1f G", v/1e9)
	case v >= 1e7:
		return fmt.Sprintf("%.0f M", v/1e6)
	case v >= 1e6:
		return fmt.Sprintf("%.1f M", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.0f k", v/1e3)
	}
	return fmt.Sprintf("%.0f", v)
}
