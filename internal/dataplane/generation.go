package dataplane

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"levee/internal/filter/codegen"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Names of pins in a generation's directory, besides maps, which are pinned by their own name.
const (
	pinLink  = "link"       // in the attachment's directory
	pinProg  = "prog"       // the program
	pinTrial = "prog_trial" // its variant with a deadline
	pinLinks = "links"      // directory of the links of programs that do not judge
	pinLeave = "egress"     // directory of the programs at egress, for interfaces that come back
)

// description is what N.json keeps of a generation: all that Status tells and cannot ask the
// kernel.
type description struct {
	Generation int         `json:"generation"`
	Dev        string      `json:"dev"`
	Names      []string    `json:"names,omitempty"` // that the interface was found by
	Ifindex    int         `json:"ifindex"`
	Netns      uint64      `json:"netns"`
	Link       packet.Link `json:"link,omitempty"` // that it was compiled for
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
	// generation that the kernel returns to; 0 is none
	Fallback  int       `json:"fallback"`
	Deadline  uint64    `json:"deadline"`   // of the trial, in jiffies
	ConfirmBy time.Time `json:"confirm_by"` // the same by the clock on the wall
	RowBytes  int       `json:"row_bytes"`
	Slots     []slot    `json:"slots"`
	Sets      []SetInfo `json:"sets"`

	// Maps are those that are pinned. TrialMaps are pinned only for the trial.
	Maps      []codegen.MapUse       `json:"maps"`
	TrialMaps []codegen.MapUse       `json:"trial_maps,omitempty"`
	Places    map[string]pinnedPlace `json:"places,omitempty"` // of dynamic sets, by name

	Needs   needs        `json:"needs,omitzero"`
	Limits  []limitInfo  `json:"limits,omitempty"`
	Cookies []cookieInfo `json:"cookies,omitempty"`
	Logs    []string     `json:"logs,omitempty"` // identities of rules, as Losses has them

	// ShadowOf is the generation beside which this one judges, 0 for one that judges itself. Shadow
	// is the same number for those that continue one another (shadow.go).
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

	// why this is the fallback of the policy, "" if it is the policy
	OnError string `json:"on_error,omitempty"`
	// why this policy, which was in force before, is so in place of another, "" if it is not
	Instead string `json:"instead,omitempty"`
	// addresses of protect rules: sets are not rolled up over them
	Spared []netip.Prefix `json:"spared,omitempty"`
}

// FileSum is what a set file held.
type FileSum struct {
	Path string `json:"path"` // as it is written in the policy
	Sum  string `json:"sum"`  // SHA-256
}

// slot describes one counter.
type slot struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
	Action string `json:"action"`
	Where  string `json:"where"`
	Label  string `json:"label,omitempty"`
	Line   int    `json:"line,omitempty"`
	Text   string `json:"text,omitempty"`
}

// counts names what a slot counts across replaces: decisions of one identity with one action.
// Packets that one policy has dropped are not among those that the next has passed. Where nothing
// but the text of a rule identifies it, that begins with the action.
func (s slot) counts() string {
	if s.Label == "" {
		return s.ID
	}
	return s.Action + " " + s.ID
}

// listMaps lists the maps of a generation that levee described before it listed them: a policy
// stays in force while levee is upgraded.
func (d *description) listMaps() {
	if d.Maps != nil {
		return
	}
	d.Maps = []codegen.MapUse{{Name: "counters", Holds: codegen.Identity{What: codegen.Counters},
		Lifetime: codegen.Pinned}}
	if d.Places == nil {
		d.Places = map[string]pinnedPlace{}
	}
	for _, set := range d.Sets {
		if _, shared := d.Places[set.Name]; shared {
			continue
		}
		own := "set_" + set.Name
		holds := codegen.Identity{What: codegen.DynamicSet, Name: set.Name,
			Kind: set.EntryType().String()}
		d.Places[set.Name] = pinnedPlace{Map: own}
		d.Maps = append(d.Maps, codegen.MapUse{Name: own, Holds: holds, Lifetime: codegen.Carried})
	}
	if d.Trial != 0 {
		d.TrialMaps = []codegen.MapUse{{Name: "previous",
			Holds: codegen.Identity{What: codegen.Previous}, Lifetime: codegen.Pinned}}
	}
}

func describeSlots(slots []policy.Slot, file string) []slot {
	out := make([]slot, len(slots))
	p := &policy.Policy{File: file}
	for i, s := range slots {
		out[i] = slot{ID: s.ID, Reason: s.Reason.String(), Action: s.Action.String(),
			Where: p.Where(s), Label: p.LabelOf(s), Line: s.Line}
		if s.Rule != nil {
			out[i].Text = s.Rule.Text
		}
	}
	return out
}

// attachment is one interface with levee on it, as found in the kernel and the runtime directory.
type attachment struct {
	key     string
	link    hold // nil: nothing is attached, what is there is rubbish
	ifindex int  // 0: the interface is gone
	unseen  bool // it may be in force where this process may not look
	// id of the program that the link runs, or that judges for it (see unsettled)
	program uint32
	// id of the program that the interface shows, if that is another
	onDevice uint32
	gens     map[int]*description // complete generations
	carried  carried
}

func (a *attachment) Close() {
	if a.link != nil {
		a.link.Close()
	}
}

// current is the generation whose program the link runs, nil if there is none.
func (a *attachment) current() *description {
	if a.program == 0 {
		return nil
	}
	for _, g := range a.gens {
		if g.ShadowOf == 0 && (g.Program == a.program || g.runs(a.program)) {
			return g
		}
	}
	return nil
}

// shown is the id of the program that its interface shows.
func (a *attachment) shown() uint32 {
	if a.onDevice != 0 {
		return a.onDevice
	}
	return a.program
}

// runs reports whether program is g's variant with a deadline.
func (g *description) runs(program uint32) bool { return g.Trial != 0 && g.Trial == program }

// trial is the current generation if it has a deadline: it is on trial, or has live rules.
func (a *attachment) trial() *description {
	if g := a.current(); g != nil && g.runs(a.program) {
		return g
	}
	return nil
}

// lasting is the generation that was confirmed last, also where the interface has vanished; nil:
// there is none.
func (a *attachment) lasting() *description {
	if t := a.trial(); t != nil {
		return a.gens[t.Fallback]
	}
	if a.program == 0 { // a filter of tc has gone with its interface: the newest
		return a.last()
	}
	return a.current()
}

// judges lists the generations that may judge packets, the current one first.
func (a *attachment) judges() []int {
	g := a.current()
	switch {
	case g == nil:
		return nil
	case a.trial() != nil && g.Fallback != 0:
		return []int{g.Generation, g.Fallback}
	}
	return []int{g.Generation}
}

// needed lists the generations that may judge packets, and behind them their shadows.
func (a *attachment) needed() []int {
	needed := a.judges()
	for _, n := range a.judges() {
		if sh := a.shadowOf(n); sh != nil {
			needed = append(needed, sh.Generation)
		}
	}
	return needed
}

// sorted lists the generations but for shadows.
func (a *attachment) sorted() []*description {
	return slices.DeleteFunc(a.all(), func(g *description) bool { return g.ShadowOf != 0 })
}

// all lists the generations and their shadows.
func (a *attachment) all() []*description {
	gens := make([]*description, 0, len(a.gens))
	for _, g := range a.gens {
		gens = append(gens, g)
	}
	slices.SortFunc(gens, func(x, y *description) int { return x.Generation - y.Generation })
	return gens
}

// open reads what there is about an attachment. It changes nothing.
func (s *store) open(key string) (*attachment, error) {
	a := &attachment{key: key, gens: map[int]*description{}}
	if err := readJSON(s.state(key, carriedFile), &a.carried); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	files, err := filepath.Glob(s.state(key, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list generations of %s: %w", key, err)
	}
	for _, file := range files {
		n, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(file), ".json"))
		if err != nil {
			continue
		}
		g := &description{}
		if err := readJSON(file, g); err != nil {
			return nil, err
		}
		g.listMaps()
		a.gens[n] = g
	}
	a.nameCounts()
	if s.readOnly {
		return a, s.readRunning(a)
	}
	pinned, err := link.LoadPinnedLink(s.bpf(key, pinLink), nil)
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.openJoined(a); err == nil && a.link == nil {
			err = s.openFilter(a)
		}
		if err != nil {
			a.Close()
			return nil, err
		}
		return a, nil
	}
	if err != nil {
		return nil, kernel.Refuse(err, "open the pinned link of attachment %s", key)
	}
	a.link = pinned
	info, err := pinned.Info()
	if err != nil {
		a.Close()
		return nil, kernel.Refuse(err, "ask the kernel about the link of attachment %s", key)
	}
	a.program = uint32(info.Program)
	if x := info.XDP(); x != nil {
		a.ifindex = int(x.Ifindex)
	}
	if x := info.TCX(); x != nil {
		a.ifindex = int(x.Ifindex)
	}
	return a, nil
}

// files lists the paths of a generation.
func (s *store) describe(key string, n int) string { return s.state(key, strconv.Itoa(n)+".json") }
func (s *store) files(key string, n int) string    { return s.state(key, strconv.Itoa(n)+".files") }
func (s *store) pins(key string, n int) string     { return s.bpf(key, strconv.Itoa(n)) }

// pinned lists the numbers of all generations that have pins, complete or not.
func (s *store) pinned(key string) ([]int, error) {
	entries, err := os.ReadDir(s.bpf(key))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, kernel.Refuse(err, "list the pins of attachment %s", key)
	}
	var out []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, n)
		}
	}
	return out, nil
}

// openProgram opens a pinned program.
func (s *store) openProgram(path string) (*ebpf.Program, error) {
	p, err := ebpf.LoadPinnedProgram(path, s.pinOptions())
	if err != nil {
		return nil, kernel.Refuse(err, "open the pinned program %s", path)
	}
	return p, nil
}

// counters reads the counters of a generation: [cpu][slot].
func (s *store) counters(key string, g *description) ([][]Counter, error) {
	name, _ := codegen.MapOf(g.Maps, codegen.Counters)
	m, err := s.openPinned(key, g.Generation, name)
	if err == nil && m == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("open the counters of generation %d: %w", g.Generation, err)
	}
	defer m.Close()
	if s.readOnly {
		mem, err := copyOfMap(m)
		if err != nil {
			return nil, err
		}
		return rowsOf(m, mem, g.RowBytes, len(g.Slots))
	}
	return readRows(m, g.RowBytes, len(g.Slots))
}
