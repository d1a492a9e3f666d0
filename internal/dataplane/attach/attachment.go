package attach

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"levee/internal/dataplane/store"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

func DescribeSlots(slots []policy.Slot, file string) []store.Slot {
	out := make([]store.Slot, len(slots))
	p := &policy.Policy{File: file}
	for i, s := range slots {
		out[i] = store.Slot{ID: s.ID, Reason: s.Reason.String(), Action: s.Action.String(),
			Where: p.Where(s), Label: p.LabelOf(s), Line: s.Line}
		if s.Rule != nil {
			out[i].Text = s.Rule.Text
		}
	}
	return out
}

// Unsaid returns the slot of packets that leave under a policy without rules for these: they pass.
func Unsaid() store.Slot {
	slots := DescribeSlots((&policy.Policy{}).WithOut().Slots(), "")
	return slots[len(slots)-1]
}

// Attachment is one interface with levee on it, as found in the kernel and the runtime directory.
type Attachment struct {
	Key     string
	Link    Hold // nil: nothing is attached, and the files are left-overs
	Ifindex int  // 0: the interface is gone
	Unseen  bool // it may be in force where this process may not look
	// id of the program that the link runs, or that judges for it (see unsettled)
	Program uint32
	// id of the program that the interface shows, if that is another
	OnDevice    uint32
	Generations map[int]*store.Description // complete generations
	Carried     store.Carried

	name string // of its interface now; "": a reader does not see it
}

// NameNow returns the name that the interface of a policy in force has, as far as a reader can
// tell.
func (a *Attachment) NameNow() string { return cmp.Or(a.name, a.Current().Dev) }

func (a *Attachment) Close() {
	if a.Link != nil {
		a.Link.Close()
	}
}

// Current returns the generation whose program the link runs, nil if it runs none.
func (a *Attachment) Current() *store.Description {
	if a.Program == 0 {
		return nil
	}
	for _, g := range a.Generations {
		if g.ShadowOf == 0 && (g.Program == a.Program || Runs(g, a.Program)) {
			return g
		}
	}
	return nil
}

// Shown returns the id of the program that its interface shows.
func (a *Attachment) Shown() uint32 {
	if a.OnDevice != 0 {
		return a.OnDevice
	}
	return a.Program
}

// Runs reports whether program is g's variant with a deadline.
func Runs(g *store.Description, program uint32) bool { return g.Trial != 0 && g.Trial == program }

// Trial returns the current generation if it has a deadline, since it is on trial or has live
// rules; else nil.
func (a *Attachment) Trial() *store.Description {
	if g := a.Current(); g != nil && Runs(g, a.Program) {
		return g
	}
	return nil
}

// Lasting returns the generation that was confirmed last, even if the interface has vanished; nil
// if there is none.
func (a *Attachment) Lasting() *store.Description {
	if t := a.Trial(); t != nil {
		return a.Generations[t.Fallback]
	}
	if a.Program == 0 { // a filter of tc has gone with its interface: the newest
		return a.Last()
	}
	return a.Current()
}

// Judges lists the generations that may judge packets, the current one first.
func (a *Attachment) Judges() []int {
	g := a.Current()
	switch {
	case g == nil:
		return nil
	case a.Trial() != nil && g.Fallback != 0:
		return []int{g.Generation, g.Fallback}
	}
	return []int{g.Generation}
}

// Needed lists the generations that may judge packets, and behind them their shadows.
func (a *Attachment) Needed() []int {
	needed := a.Judges()
	for _, n := range a.Judges() {
		if sh := a.ShadowOf(n); sh != nil {
			needed = append(needed, sh.Generation)
		}
	}
	return needed
}

// Sorted lists the generations by number, without shadows.
func (a *Attachment) Sorted() []*store.Description {
	return slices.DeleteFunc(a.All(), func(g *store.Description) bool { return g.ShadowOf != 0 })
}

// All lists the generations and their shadows.
func (a *Attachment) All() []*store.Description {
	gens := make([]*store.Description, 0, len(a.Generations))
	for _, g := range a.Generations {
		gens = append(gens, g)
	}
	slices.SortFunc(gens, func(x, y *store.Description) int { return x.Generation - y.Generation })
	return gens
}

// Open reads an attachment from the kernel and the runtime directory. It changes nothing.
func Open(s *store.Store, key string) (*Attachment, error) {
	a := &Attachment{Key: key, Generations: map[int]*store.Description{}}
	if err := store.ReadJSON(s.State(key, store.CarriedFile), &a.Carried); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return nil, sayDown(err)
	}
	files, err := filepath.Glob(s.State(key, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list generations of %s: %w", key, err)
	}
	for _, file := range files {
		n, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(file), ".json"))
		if err != nil {
			continue
		}
		g := &store.Description{}
		if err := store.ReadJSON(file, g); err != nil {
			return nil, sayDown(err)
		}
		g.ListMaps()
		a.Generations[n] = g
	}
	a.nameCounts()
	if s.ReadOnly {
		return a, readRunning(s, a)
	}
	pinned, err := link.LoadPinnedLink(s.BPF(key, store.PinLink), nil)
	if errors.Is(err, fs.ErrNotExist) {
		if err = openJoined(s, a); err == nil && a.Link == nil {
			err = openFilter(s, a)
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
	a.Link = pinned
	info, err := pinned.Info()
	if err != nil {
		a.Close()
		return nil, kernel.Refuse(err, "ask the kernel about the link of attachment %s", key)
	}
	a.Program = uint32(info.Program)
	if x := info.XDP(); x != nil {
		a.Ifindex = int(x.Ifindex)
	}
	if x := info.TCX(); x != nil {
		a.Ifindex = int(x.Ifindex)
	}
	return a, nil
}

// sayDown has the error that a description is damaged say what to do: it has the name of the
// interface.
func sayDown(err error) error {
	if !errors.Is(err, store.ErrDamaged) {
		return err
	}
	return fmt.Errorf("%w; `levee down --dev` with the interface that it is about takes the "+
		"policy off, and `levee up` then begins anew", err)
}

// nameCounts gives carried counts the names of slot.counts. Earlier versions of levee named them by
// identity alone, and a policy stays in force over an upgrade.
func (a *Attachment) nameCounts() {
	for _, g := range a.All() {
		totals := a.Carried.Totals
		if g.ShadowOf != 0 {
			totals = a.Carried.Shadow.Of(g.Shadow).Totals
		}
		for _, s := range g.Slots {
			to := s.Counts()
			if cpus, ok := totals[s.ID]; ok && to != s.ID {
				delete(totals, s.ID)
				totals[to] = cpus
			}
		}
	}
}

// Together returns the key of the interfaces that share its policy, "" if it has a policy alone.
func (a *Attachment) Together() string {
	g := a.Current()
	if g == nil {
		return ""
	}
	return Together(g.Netns, g.Names)
}

// Together returns the key that interfaces with a shared policy have in common, whatever the order
// of their names; "" for one name.
func Together(netns uint64, names []string) string {
	if len(names) == 0 || len(names) == 1 && !policy.IsPattern(names[0]) {
		return ""
	}
	return fmt.Sprint(netns, " ", strings.Join(slices.Sorted(slices.Values(names)), " "))
}

// OnTrial returns the current generation if it is on trial by --confirm, and not for live rules;
// else nil.
func (a *Attachment) OnTrial() *store.Description {
	if g := a.Trial(); g != nil && !g.IsLive() {
		return g
	}
	return nil
}

// Base returns the current generation, or with live rules the one without them.
func (a *Attachment) Base() *store.Description {
	g := a.Current()
	if g != nil && g.IsLive() {
		if b := a.Generations[g.Fallback]; b != nil {
			return b
		}
	}
	return g
}

// Last returns the newest generation of an attachment, nil if it has none.
func (a *Attachment) Last() *store.Description {
	if all := a.Sorted(); len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// Waits reports whether an attachment's interface has vanished and is to come back.
func Waits(s *store.Store, a *Attachment) bool {
	g := a.Last()
	return a.Ifindex == 0 && g != nil && s.Kept(g.Netns, g.Dev)
}

// ShadowOf returns the newest shadow of a generation, nil without one.
func (a *Attachment) ShadowOf(n int) (newest *store.Description) {
	for _, g := range a.Generations {
		if g.ShadowOf == n && n != 0 && (newest == nil || g.Generation > newest.Generation) {
			newest = g
		}
	}
	return newest
}

// Shadow returns the shadow of the generation in force, nil without one.
func (a *Attachment) Shadow() *store.Description {
	g := a.Current()
	if g == nil {
		return nil
	}
	return a.ShadowOf(g.Generation)
}

// readRunning finds out which program runs, for a reader, who cannot ask the link: by the
// interface, or, where that does not tell, by the newest description.
func readRunning(s *store.Store, a *Attachment) error {
	gens := a.Sorted()
	if len(gens) == 0 {
		return nil
	}
	newest := gens[len(gens)-1]
	a.Ifindex = newest.Ifindex
	a.Program = newest.Program
	if _, err := os.Stat(filepath.Join(s.Pins(a.Key, newest.Generation),
		store.PinTrial)); err == nil {
		left, err := s.TimeLeft(newest.Deadline)
		if err != nil {
			return err
		}
		a.Program = newest.Trial
		if left == 0 {
			a.Program = 0
			if g := a.Generations[newest.Fallback]; g != nil {
				a.Program = g.Program
			}
		}
	}
	netns, err := NetnsCookie()
	if err != nil || netns != newest.Netns {
		return err
	}
	l, err := netlink.LinkByIndex(newest.Ifindex)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		a.Program = 0 // it has vanished
		return nil
	}
	if err != nil {
		return kernel.Refuse(err, "look up interface %d", newest.Ifindex)
	}
	a.name = l.Attrs().Name
	x := l.Attrs().Xdp
	if x == nil || !x.Attached {
		return nil
	}
	runs := func(g *store.Description) bool { return g.Program == x.ProgId }
	if slices.ContainsFunc(gens, runs) {
		a.Program = x.ProgId
	}
	return nil
}
