package store

import (
	"errors"
	"io/fs"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"levee/internal/filter/codegen"
	"levee/internal/filter/limit"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/lang/setfile"
	"levee/internal/packet"
)

// CookieInfo describes a cookie.
type CookieInfo struct {
	ID     string `json:"id"` // of its slot
	Meter  int    `json:"meter"`
	Always bool   `json:"always,omitempty"` // whether it answers whatever the rate of SYNs
}

// EchoInfo describes a proof by echo.
type EchoInfo struct {
	Name  string `json:"name"`
	Tally int    `json:"tally"`
}

// ProgramInfo describes the program in force, as the kernel knows it.
type ProgramInfo struct {
	ID        uint32 `json:"id"`
	Name      string `json:"name"`
	XlatedLen int    `json:"xlated_bytes"`
	JitedLen  int    `json:"jited_bytes"` // 0 where the kernel hides it
	Frags     bool   `json:"frags"`
}

// SetInfo is a dynamic set.
type SetInfo struct {
	Name   string        `json:"name"`
	Max    int           `json:"max"`
	Lease  time.Duration `json:"lease"` // default; 0: until deleted
	RollUp bool          `json:"rollup,omitempty"`
	Keep   bool          `json:"keep,omitempty"` // entries outlive a reboot
	Self   bool          `json:"self,omitempty"` // holds what is delivered to the machine
	// of the entries: "services", "endpoints" or "names"; addresses where it is not there
	Type    string `json:"type,omitempty"`
	Entries int    `json:"entries"`
	Refused uint64 `json:"refused"` // entries not taken because the set was full
}

// EntryType returns the type of the set's entries.
func (i SetInfo) EntryType() policy.SetType {
	for _, t := range []policy.SetType{policy.Services, policy.Endpoints, policy.Names} {
		if i.Type == t.String() {
			return t
		}
	}
	return policy.Addresses
}

// TypeOf returns the type of the set of that name, which the generation has.
func (d *Description) TypeOf(name string) policy.SetType {
	for _, info := range d.Sets {
		if info.Name == name {
			return info.EntryType()
		}
	}
	return policy.Addresses
}

// TypeName returns how SetInfo names a type.
func TypeName(t policy.SetType) string {
	if t == policy.Addresses {
		return ""
	}
	return t.String()
}

// SetFiles returns what the set files of a generation held.
func (s *Store) SetFiles(key string, g *Description) (files []setfile.File, err error) {
	err = ReadJSON(s.FilesPath(key, g.Generation), &files)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return files, err
}

// LimitInfo describes a limit.
type LimitInfo struct {
	ID    string      `json:"id"` // of its slot
	Map   string      `json:"map"`
	Shape limit.Shape `json:"shape"`
	Keys  string      `json:"keys"`  // policy.Limit.ByKeys
	Alike string      `json:"alike"` // policy.Limit.Alike; "": an older levee has described it
}

// Needs gives, for each property of packets that not every hook has, the line of a rule that asks
// for it, 0 for none.
type Needs struct {
	Tags   int `json:"tags,omitempty"`   // VLAN tags of the frame
	Length int `json:"length,omitempty"` // of the packet on the wire
	Ring   int `json:"ring,omitempty"`   // XDP, which hands packets to rings
}

// IsLive says whether a generation is a policy with live rules in it.
func (d *Description) IsLive() bool { return len(d.Live) > 0 }

// Description is the record of a generation in N.json: all that Status reports and cannot ask the
// kernel.
type Description struct {
	Generation int         `json:"generation"`
	Dev        string      `json:"dev"`
	Names      []string    `json:"names,omitempty"` // by which the interface was found
	Ifindex    int         `json:"ifindex"`
	Netns      uint64      `json:"netns"`
	Link       packet.Link `json:"link,omitempty"` // for which it was compiled
	Mode       Mode        `json:"mode"`
	Reason     string      `json:"reason"`
	Asked      bool        `json:"asked,omitempty"` // for the mode, by somebody
	Frags      bool        `json:"frags"`
	Joined     bool        `json:"joined,omitempty"` // the dispatcher of libxdp calls it
	Policy     string      `json:"policy"`
	Hash       string      `json:"hash"`
	Source     []byte      `json:"source,omitempty"`
	SetFiles   []FileSum   `json:"set_files,omitempty"`
	Since      time.Time   `json:"since"`
	Program    uint32      `json:"program"`         // id; of live rules that of Trial
	Trial      uint32      `json:"trial,omitempty"` // id of the variant with a deadline, if any
	// what the kernel says of the two, for readers, who may open neither
	Info, TrialInfo ProgramInfo
	// generation to which the kernel returns; 0 is none
	Fallback  int       `json:"fallback"`
	Deadline  uint64    `json:"deadline"`   // of the trial, in jiffies
	ConfirmBy time.Time `json:"confirm_by"` // the same by the clock on the wall
	RowBytes  int       `json:"row_bytes"`
	Slots     []Slot    `json:"slots"`
	Sets      []SetInfo `json:"sets"`

	// Maps are those that are pinned. TrialMaps are pinned only for the trial.
	Maps      []codegen.MapUse       `json:"maps"`
	TrialMaps []codegen.MapUse       `json:"trial_maps,omitempty"`
	Places    map[string]PinnedPlace `json:"places,omitempty"` // of dynamic sets, by name

	Needs     Needs        `json:"needs,omitzero"`
	Limits    []LimitInfo  `json:"limits,omitempty"`
	Cookies   []CookieInfo `json:"cookies,omitempty"`
	Greylists []CookieInfo `json:"greylists,omitempty"`
	Echoes    []EchoInfo   `json:"echoes,omitempty"`
	Logs      []string     `json:"logs,omitempty"` // identities of rules, as Losses has them
	// Senders are the senders that rules name, nil if no rule asks who sends.
	Senders *policy.Senders `json:"senders,omitempty"`

	// ShadowOf is the generation beside which this one judges, 0 for one that judges itself. Shadow
	// is the same number for those that continue one another.
	ShadowOf int    `json:"shadow_of,omitempty"`
	Shadow   uint64 `json:"shadow,omitempty"`
	// Unasked are the cookies of a shadow, which answer nobody.
	Unasked []string `json:"unasked,omitempty"`

	// MadeQdisc: there was no qdisc for filters before levee's.
	MadeQdisc bool `json:"made_qdisc,omitempty"`
	// EgressFilter: its program at egress is kept by a filter, not by a link.
	EgressFilter bool `json:"egress_filter,omitempty"`

	// Live are rules that the agent has added to the policy. The policy without is Fallback.
	Live []string `json:"live,omitempty"`
	// LiveOf says of whom these are, one each.
	LiveOf []string `json:"live_of,omitempty"`
	// LiveBefore are the rules of the policy before which these stand, one each.
	LiveBefore []string `json:"live_before,omitempty"`

	// why this is the fallback of the policy, "" if it is the policy
	OnError string `json:"on_error,omitempty"`
	// why this policy, which was in force before, is so in place of another, "" if it is not
	Instead string `json:"instead,omitempty"`
	// addresses of protect rules: sets are not rolled up over them
	Spared []netip.Prefix `json:"spared,omitempty"`
}

// FileSum is the checksum of a set file.
type FileSum struct {
	Path string `json:"path"` // as it is written in the policy
	Sum  string `json:"sum"`  // SHA-256
}

// Slot describes one counter.
type Slot struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
	Action string `json:"action"`
	Where  string `json:"where"`
	Label  string `json:"label,omitempty"`
	Line   int    `json:"line,omitempty"`
	Text   string `json:"text,omitempty"`
}

// Counts names what a slot counts across replaces: decisions of one identity with one action.
// Packets that one policy has dropped are not among those that the next has passed. Where nothing
// but the text of a rule identifies it, that begins with the action.
func (s Slot) Counts() string {
	if s.Label == "" {
		return s.ID
	}
	return s.Action + " " + s.ID
}

// Judges reports whether a slot counts packets that arrived and were decided there: each that was
// judged is in one such slot. A rule for what leaves begins with "out", and the identity of what is
// built in with "out:".
func (s Slot) Judges() bool {
	a, known := action.Named(s.Action)
	leaves := strings.HasPrefix(s.Text, "out ") || strings.HasPrefix(s.ID, "out:")
	return !leaves && (!known || a.MayDecide())
}

// ListMaps lists the maps of a generation that levee described before it listed them: a policy
// stays in force while levee is upgraded.
func (d *Description) ListMaps() {
	if d.Maps != nil {
		return
	}
	d.Maps = []codegen.MapUse{{Name: "counters", Holds: codegen.Identity{What: codegen.Counters},
		Lifetime: codegen.Pinned}}
	if d.Places == nil {
		d.Places = map[string]PinnedPlace{}
	}
	for _, set := range d.Sets {
		if _, shared := d.Places[set.Name]; shared {
			continue
		}
		own := "set_" + set.Name
		holds := codegen.Identity{What: codegen.DynamicSet, Name: set.Name,
			Kind: set.EntryType().String()}
		d.Places[set.Name] = PinnedPlace{Map: own}
		d.Maps = append(d.Maps, codegen.MapUse{Name: own, Holds: holds, Lifetime: codegen.Carried})
	}
	if d.Trial != 0 {
		d.TrialMaps = []codegen.MapUse{{Name: "previous",
			Holds: codegen.Identity{What: codegen.Previous}, Lifetime: codegen.Pinned}}
	}
}

// files lists the paths of a generation.
func (s *Store) DescriptionPath(key string, n int) string {
	return s.State(key, strconv.Itoa(n)+".json")
}

func (s *Store) FilesPath(key string, n int) string {
	return s.State(key,
		strconv.Itoa(n)+".files")
}

func (s *Store) Pins(key string, n int) string { return s.BPF(key, strconv.Itoa(n)) }

// PinnedPlace is a place by the name of its map's pin.
type PinnedPlace struct {
	Map string `json:"map"`
	Key uint32 `json:"key"`
}
