package dataplane

import (
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

func describeSlots(slots []policy.Slot, file string) []store.Slot {
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
	gens     map[int]*store.Description // complete generations
	carried  store.Carried
}

func (a *attachment) Close() {
	if a.link != nil {
		a.link.Close()
	}
}

// current is the generation whose program the link runs, nil if there is none.
func (a *attachment) current() *store.Description {
	if a.program == 0 {
		return nil
	}
	for _, g := range a.gens {
		if g.ShadowOf == 0 && (g.Program == a.program || runs(g, a.program)) {
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
func runs(g *store.Description, program uint32) bool { return g.Trial != 0 && g.Trial == program }

// trial is the current generation if it has a deadline: it is on trial, or has live rules.
func (a *attachment) trial() *store.Description {
	if g := a.current(); g != nil && runs(g, a.program) {
		return g
	}
	return nil
}

// lasting is the generation that was confirmed last, also where the interface has vanished; nil:
// there is none.
func (a *attachment) lasting() *store.Description {
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
func (a *attachment) sorted() []*store.Description {
	return slices.DeleteFunc(a.all(), func(g *store.Description) bool { return g.ShadowOf != 0 })
}

// all lists the generations and their shadows.
func (a *attachment) all() []*store.Description {
	gens := make([]*store.Description, 0, len(a.gens))
	for _, g := range a.gens {
		gens = append(gens, g)
	}
	slices.SortFunc(gens, func(x, y *store.Description) int { return x.Generation - y.Generation })
	return gens
}

// open reads what there is about an attachment. It changes nothing.
func open(s *store.Store, key string) (*attachment, error) {
	a := &attachment{key: key, gens: map[int]*store.Description{}}
	if err := store.ReadJSON(s.State(key, store.CarriedFile), &a.carried); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return nil, err
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
			return nil, err
		}
		g.ListMaps()
		a.gens[n] = g
	}
	a.nameCounts()
	if s.ReadOnly {
		return a, readRunning(s, a)
	}
	pinned, err := link.LoadPinnedLink(s.BPF(key, store.PinLink), nil)
	if errors.Is(err, fs.ErrNotExist) {
		if err = openJoined(s, a); err == nil && a.link == nil {
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

// nameCounts names what is carried as slot.counts does. Earlier levees named it by identity alone:
// a policy stays in force while levee is upgraded.
func (a *attachment) nameCounts() {
	for _, g := range a.all() {
		totals := a.carried.Totals
		if g.ShadowOf != 0 {
			totals = a.carried.Shadow.Of(g.Shadow).Totals
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

// together is "" for a policy of one interface.
func (a *attachment) together() string {
	g := a.current()
	if g == nil {
		return ""
	}
	return together(g.Netns, g.Names)
}

// together is what interfaces have in common that have one policy as one, in whatever order they
// are named; "" for one that has its own.
func together(netns uint64, names []string) string {
	if len(names) == 0 || len(names) == 1 && !policy.IsPattern(names[0]) {
		return ""
	}
	return fmt.Sprint(netns, " ", strings.Join(slices.Sorted(slices.Values(names)), " "))
}

// onTrial is the current generation if it is on trial, and not for its live rules.
func (a *attachment) onTrial() *store.Description {
	if g := a.trial(); g != nil && !g.IsLive() {
		return g
	}
	return nil
}

// base is the current generation, or the one that its live rules were added to.
func (a *attachment) base() *store.Description {
	g := a.current()
	if g != nil && g.IsLive() {
		if b := a.gens[g.Fallback]; b != nil {
			return b
		}
	}
	return g
}

// last is the newest generation of an attachment, nil if it has none.
func (a *attachment) last() *store.Description {
	if all := a.sorted(); len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// waits reports whether an attachment's interface has vanished and is to come back.
func waits(s *store.Store, a *attachment) bool {
	g := a.last()
	return a.ifindex == 0 && g != nil && s.Kept(g.Netns, g.Dev)
}

// shadowOf is the newest shadow of a generation, nil if it has none.
func (a *attachment) shadowOf(n int) (newest *store.Description) {
	for _, g := range a.gens {
		if g.ShadowOf == n && n != 0 && (newest == nil || g.Generation > newest.Generation) {
			newest = g
		}
	}
	return newest
}

// shadow is that of the generation in force, nil if there is none.
func (a *attachment) shadow() *store.Description {
	g := a.current()
	if g == nil {
		return nil
	}
	return a.shadowOf(g.Generation)
}

// readRunning finds out which program runs, for a reader, who cannot ask the link: by the
// interface, or, where that does not tell, by the newest description.
func readRunning(s *store.Store, a *attachment) error {
	gens := a.sorted()
	if len(gens) == 0 {
		return nil
	}
	newest := gens[len(gens)-1]
	a.ifindex = newest.Ifindex
	a.program = newest.Program
	if _, err := os.Stat(filepath.Join(s.Pins(a.key, newest.Generation),
		store.PinTrial)); err == nil {
		left, err := s.TimeLeft(newest.Deadline)
		if err != nil {
			return err
		}
		a.program = newest.Trial
		if left == 0 {
			a.program = 0
			if g := a.gens[newest.Fallback]; g != nil {
				a.program = g.Program
			}
		}
	}
	netns, err := netnsCookie()
	if err != nil || netns != newest.Netns {
		return err
	}
	l, err := netlink.LinkByIndex(newest.Ifindex)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		a.program = 0 // it has vanished
		return nil
	}
	if err != nil {
		return kernel.Refuse(err, "look up interface %d", newest.Ifindex)
	}
	x := l.Attrs().Xdp
	if x == nil || !x.Attached {
		return nil
	}
	runs := func(g *store.Description) bool { return g.Program == x.ProgId }
	if slices.ContainsFunc(gens, runs) {
		a.program = x.ProgId
	}
	return nil
}
