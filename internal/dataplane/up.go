package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/past"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/flow"
	"levee/internal/filter/state"
	"levee/internal/kernel"
	"levee/internal/lang/setfile"
	"levee/internal/packet"
)

// UpOptions say where and how a policy is put into force.
type UpOptions struct {
	Dev string
	// names and patterns that Dev was found by, with the interfaces that have the policy as one
	Names      []string
	Mode       store.Mode     // "" is Auto
	Confirm    time.Duration  // 0: in force at once; else on trial for that long
	PolicyPath string         // for status; its base name is in every rule's "edge.levee:14"
	Source     []byte         // the policy's text, for Show and its hash
	Files      []setfile.File // what its set files held, for Show

	// Fallbacks are put in force instead, the first that can be, when the machine cannot load or
	// attach the policy (ErrUnable).
	Fallbacks []Fallback
	// Before, if there is one, is told what an interface does when its first program comes, or its
	// last one goes, where that interrupts it, before it does.
	Before func(what string)
	// Else, if there is one, is asked then for what comes before them.
	Else func() []Fallback
	// Carry, if given, says what becomes of the former policy's live rules.
	Carry func(ctx context.Context, dev string, rules []inspect.LiveRule) *Carried

	instead    string     // why a policy that was in force is put there in place of another
	egressMode store.Mode // of programs at egress beside XDP; "" is what the kernel has
	still      string     // why the policy in force has to go to another hook (MoveOn)
	putOn      string     // what Dev was called when the policy came; "" is Dev
	tc         store.Mode // how programs are at tc ingress; "" is what the kernel has

	live   []inspect.LiveRule // that are added to the policy (Live)
	proven []netip.Addr       // sources whose SYNs no cookie answers (Live)

	asked   map[string][]inspect.LiveRule // that Carry was asked for, by interface
	carried map[string]*Carried           // what it said
}

// Fallback compiles a policy that may be in force in place of one that cannot be.
type Fallback struct {
	Compile CompileFunc
	Past    *past.Policy // one that was in force; nil: what `on error` asks for
}

// Unusable returns a compiler that fails with err for every target, so that the fallbacks of a
// policy are tried.
func Unusable(err error) CompileFunc {
	return func(codegen.Target) (*codegen.Program, error) { return nil, attach.Unable(err) }
}

// CompileFunc compiles the policy for what the loader has chosen. It is called several times and
// must give the same tables for targets that differ in Trial only.
type CompileFunc func(codegen.Target) (*codegen.Program, error)

// Report says what Up did.
type Report struct {
	Dev        string        `json:"dev"`
	Ifindex    int           `json:"ifindex"`
	Mode       store.Mode    `json:"mode"`
	Reason     string        `json:"reason"`     // why this mode
	Generation int           `json:"generation"` // 1 for the first since the interface was attached
	Replaced   string        `json:"replaced,omitempty"`
	Program    uint32        `json:"program"` // id
	Trial      time.Duration `json:"-"`
	TrialSecs  float64       `json:"trial_seconds,omitempty"` // Trial, for JSON
	// what was found and mended on the way
	Notes []string `json:"notes,omitempty"`
	Live  int      `json:"live"` // rules that go on in it
	// not nil: one of Fallbacks is in force, because of this
	Fallback error        `json:"-"`
	Past     *past.Policy `json:"-"` // the one, if it was in force before
	// not nil: why nobody may hear the answers of its cookies
	Unheard error `json:"-"`
	// for how many connections there is room, 0 where the policy asks for none
	Connections flow.Room        `json:"-"`
	Judging     *inspect.Judging `json:"-"` // whether packets come to it

	deadline uint64 // of the trial, in jiffies
}

// Up puts a policy into force on an interface, or replaces the one in force there in one step. If
// it returns an error and no report, what ran before runs on, with its counters. An error with a
// report means that the new policy is in force and only cleaning up failed; the next command does
// it.
//
// With Confirm the policy is on trial: unless Confirm is called in time, the kernel itself hands
// packets back to the last confirmed policy, or passes them if there was none. An Up during a
// trial replaces the policy on trial; the kernel still returns to the one that was confirmed last.
//
// Errors of the machine match kernel.ErrRefused; errors of compile are returned as they are.
func Up(ctx context.Context, o UpOptions, compile CompileFunc) (*Report, error) {
	reps, err := UpAll(ctx, []string{o.Dev}, o, compile)
	if len(reps) == 0 {
		return nil, err
	}
	return reps[0], err
}

// up is one Up on its way.
type up struct {
	*store.Store
	UpOptions
	compile CompileFunc
	cause   error // why this is a fallback; nil for the policy itself
	later   bool  // the policy has been put on others already
	joined  bool  // the dispatcher of libxdp is to call it
	dev     *attach.Device
	key     string             // under which all of this interface is kept
	at      *attach.Attachment // nil: first policy on this interface
	// of siblings, or of the one before of the name: whose entries of dynamic sets a first policy
	// takes
	from placed
	// what is kept for an interface that has vanished, whose name this one has: it goes on here
	waiting *attach.Attachment
	// those that have the policy of these names already
	siblings []*attach.Attachment
	staged   *staged         // what is in force, once report is set
	beside   *beside         // a shadow is staged; nil: a policy that is to be in force
	report   *Report         // set once the new policy is in force
	began    reading         // before anything was staged
	before   reading         // when it came
	deaf     bool            // the driver takes native programs and does not ask them
	asks     []netlink.Neigh // who may be asked for a packet

	devs   []string // that get the policy by the same command
	group  []int    // see indexes
	leaves bool     // others behind, which have been together with this one and stay so
	// what the same command has put on other interfaces, and shadows beside that
	ahead, aheadShadows []placed
	// where live rules follow a policy: the policy over which they are staged, and whose memories
	// they continue
	beneath *staged
	rulesOf *store.Description

	// by address that was asked for: whether packets to it leave by dev
	routes map[netip.Addr]bool
	// into memories of another shape
	moves   []moving
	swapped uint64 // when the policy took over, in jiffies
}

func (u *up) Close() {
	_ = u.dropMoves() // of mappings that there are
	for _, a := range u.siblings {
		a.Close()
	}
	if u.waiting != nil {
		u.waiting.Close()
	}
	if u.at != nil {
		u.at.Close()
	}
}

// put puts the policy into force. What it replaces stays until finish removes it.
func (u *up) put(ctx context.Context) error {
	if u.Confirm != 0 && (u.Confirm < MinTrial || u.Confirm > MaxTrial) {
		return fmt.Errorf("a trial of %v is not possible: from %v to %v", u.Confirm, MinTrial,
			MaxTrial)
	}
	var err error
	if u.dev, err = attach.FindDevice(u.Dev); err != nil {
		return err
	}
	if err := attach.RefuseLayer(u.dev); err != nil {
		return err
	}
	if u.key, err = attach.KeyOn(u.Store, u.dev); err != nil {
		return err
	}
	// What is wrong with another interface is no reason to leave this one without its policy.
	// Interfaces that have just got the policy keep what they may go back to.
	if !u.later {
		if err := generation.Sweep(u.Store, u.key,
			func(*attach.Attachment) error { return nil }); err != nil {
			u.Note("%v", err)
		}
	}
	if u.at, err = generation.Settle(u.Store, u.key); err != nil {
		return err
	}
	if u.began, err = u.reading(); err != nil {
		return err
	}
	if l, err := netlink.LinkByIndex(u.dev.Index); err == nil {
		u.asks = inspect.Neighbours(l)
	}
	u.noteAbove()
	if err := u.meet(); err != nil {
		return err
	}
	if err := u.succeed(); err != nil {
		return err
	}
	ways, err := u.ways()
	if err != nil {
		return err
	}
	var not []string
	if u.still != "" {
		not = append(not, u.still)
	}
	for _, t := range ways {
		if err := ctx.Err(); err != nil {
			return err
		}
		if u.deaf && t.Mode == store.XDPNative {
			continue
		}
		unsupported, err := u.try(ctx, t, u.reason(t, not))
		if err != nil {
			return err
		}
		if unsupported == nil {
			return nil
		}
		if why := attach.WhyNot(u.dev, t, unsupported); !slices.Contains(not, why) {
			not = append(not, why)
		}
	}
	if u.Mode == store.TCX && errors.Is(kernel.TCX.Check(), ebpf.ErrNotSupported) {
		not = append(not, "--mode clsact runs it at the same place, by a filter of tc")
	}
	return attach.Unable(kernel.Refuse(nil, "cannot attach to %s: %s", u.Dev,
		strings.Join(not, "; ")))
}

// ways lists how the policy may be attached. An interface that has a policy keeps its mode, if the
// policy is judged rightly there: while it changes, packets are judged twice.
func (u *up) ways() (_ []attach.Try, err error) {
	mode := u.Mode
	if mode == "" {
		mode = store.Auto
	}
	if u.at == nil {
		if !mode.AtTC() {
			if u.joined, err = attach.RefuseForeign(u.Store, u.dev); err != nil {
				return nil, err
			}
		}
		if mode == store.XDPNative && u.dev.Link != packet.Ethernet {
			return nil, kernel.RefuseAs(unix.EOPNOTSUPP,
				"%s has no native XDP: drivers run it on Ethernet frames only; --mode auto takes "+
					"what there is", u.Dev)
		}
		if u.joined {
			return u.joining(mode)
		}
		tc, err := u.atTC()
		if err != nil {
			return nil, err
		}
		return attach.Tries(mode, u.dev, tc), nil
	}
	cur := u.at.Current()
	if mode != store.Auto && mode != cur.Mode {
		return nil,
			fmt.Errorf("%s has a policy at %s already and a replace cannot change that to %s: "+
				"`levee down --dev %s` first, or leave --mode out", u.Dev, cur.Mode, mode, u.Dev)
	}
	u.joined = cur.Joined
	if u.still != "" && noOtherHook(cur) {
		return nil, errNoHook
	}
	ways := attach.Tries(cur.Mode, u.dev, cur.Mode)
	if mode == store.Auto && u.Confirm == 0 && !cur.Joined && u.at.OnTrial() == nil {
		tc, err := u.atTC()
		if err != nil {
			return nil, err
		}
		switch {
		case u.still != "":
			return []attach.Try{{Mode: tc, Frags: false}}, nil
		case !cur.Mode.AtTC():
			ways = append(ways, attach.Try{Mode: tc, Frags: false})
		}
	}
	if u.still != "" {
		return nil, errNoHook
	}
	if u.Confirm > 0 {
		// A tail call joins only programs of which both or neither know fragments.
		fallback := u.at.Generations[u.fallback()]
		ways = slices.DeleteFunc(ways,
			func(t attach.Try) bool { return fallback != nil && t.Frags != fallback.Frags })
	}
	return ways, nil
}

// atTC returns how a policy is attached at tc ingress.
func (u *up) atTC() (store.Mode, error) {
	if u.tc != "" {
		return u.tc, nil
	}
	return attach.TCIngress()
}

// joining lists the ways to be called by the dispatcher that runs: where it does.
func (u *up) joining(mode store.Mode) ([]attach.Try, error) {
	there := store.XDPNative
	if u.dev.XDPOff == "xdpgeneric" {
		there = store.XDPGeneric
	}
	if mode != store.Auto && mode != there {
		return nil, kernel.RefuseAs(unix.EBUSY, "%s runs the dispatcher of libxdp at %s, and the "+
			"kernel takes no program at %s beside it; leave --mode out, or use --mode tcx",
			u.Dev, there, mode)
	}
	return attach.Tries(there, u.dev, there), nil
}

// fallback returns the generation after a trial that is not confirmed: the last confirmed one, 0 if
// there is none.
func (u *up) fallback() int {
	if u.at == nil {
		return 0
	}
	if g := u.at.Trial(); g != nil {
		return g.Fallback
	}
	return u.at.Current().Generation
}

// reason says why a policy is attached in this way.
func (u *up) reason(t attach.Try, not []string) string {
	asked, at := u.Mode, u.at
	var s string
	switch {
	case u.joined:
		s = "in the dispatcher of libxdp"
	case at != nil && at.Current().Mode == t.Mode:
		s = "the mode of the policy before it"
	case asked == t.Mode:
		s = "asked for by --mode"
	case len(not) == 0:
		return "costs least"
	}
	if len(not) > 0 {
		s = strings.TrimPrefix(s+"; "+strings.Join(not, "; "), "; ")
	}
	if len(not) > 0 && asked != t.Mode && !u.joined &&
		(at == nil || at.Current().Mode != t.Mode) {
		s += fmt.Sprintf("; using %s", t.Mode)
		if t.Frags {
			s += " with fragments"
		}
	}
	return s
}

// try stages the policy for one way of attaching and gives it the traffic. unsupported is set when
// the interface does not take it this way; whatever was staged is removed then, as for an error.
func (u *up) try(ctx context.Context, t attach.Try, why string) (unsupported, err error) {
	if t.Mode == store.TCX {
		if err := kernel.TCX.Check(); err != nil {
			return err, nil
		}
	}
	if t.Frags {
		if err := kernel.Frags.Check(); err != nil {
			return err, nil
		}
	}
	st, err := u.stage(t, why)
	if errors.As(err, new(*attach.UnfitError)) || errors.As(err, new(*attach.UnheardError)) {
		return err, nil
	}
	if err != nil {
		return nil, err
	}
	defer st.Close()
	if err := u.swap(st); err != nil {
		if rerr := u.unstage(st); rerr != nil {
			return nil, errors.Join(err, rerr)
		}
		switch {
		case errors.Is(err, kernel.ErrRefused):
			return nil, err
		case attach.NotThisWay(err):
			return err, nil
		}
		return nil, attach.AttachError(u.dev, err)
	}
	u.staged = st
	u.report = &Report{
		Dev: u.Dev, Ifindex: u.dev.Index, Mode: t.Mode, Reason: why,
		Generation: st.desc.Generation, Program: st.desc.Program, Trial: u.Confirm,
		TrialSecs: u.Confirm.Seconds(),
		Unheard:   st.unheard,
		deadline:  st.desc.Deadline,
	}
	if m := st.plain.Holding(state.HoldsFlows); m != nil {
		u.report.Connections = flow.Within(int(m.ValueSize()))
	}
	if st.desc.Trial != 0 {
		u.report.Program = st.desc.Trial
	}
	if u.at != nil {
		u.report.Replaced = u.at.Current().Policy
	}
	if st.live != nil {
		u.report.Live = len(st.live.desc.Live)
	}
	return u.watchFirst(ctx, st, t)
}

// swap is the moment at which the staged policy takes over: first what arrives, then what leaves.
func (u *up) swap(st *staged) error {
	confirm, over := u.Confirm, st.over
	if st.live != nil {
		st, confirm = st.live, st.over.Confirm
	}
	turn, err := st.turn()
	if err != nil {
		return err
	}
	defer turn.Close()
	if err := u.swapArriving(st, confirm, over); err != nil {
		return err
	}
	turn.Give(st.desc.Generation, st.desc.Deadline, st.desc.Fallback) // traffic changes here
	return nil
}

// swapArriving has the staged policy judge what arrives. over, if there is one, has staged these
// over the policy of u.
func (u *up) swapArriving(st *staged, confirm time.Duration, over *up) error {
	prog, err := st.arm(confirm)
	if err != nil {
		return err
	}
	if st.desc.Trial != 0 {
		if err := store.WriteJSON(u.DescriptionPath(st.key, st.desc.Generation),
			st.desc); err != nil {
			return err
		}
	}
	if u.before, err = u.reading(); err != nil {
		return err
	}
	if err := u.Step("swap"); err != nil {
		return err
	}
	err = u.followMoves()
	if over != nil {
		err = errors.Join(err, over.followMoves())
	}
	if err != nil {
		return err
	}
	if u.at != nil {
		clock, err := u.Jiffies()
		if err != nil {
			return err
		}
		u.swapped = clock.Now()
	}
	if u.at != nil && u.at.Current().Mode == st.desc.Mode {
		return u.at.Link.Update(prog) // traffic changes here
	}
	comes := st.desc.Mode == store.XDPNative
	goes := u.at != nil && u.at.Current().Mode == store.XDPNative // it is not updated, see above
	if (comes || goes) && !u.joined {
		u.warn()
	}
	l, err := attach.Attach(u.Store, st.key, u.dev, st.desc, prog)
	if err != nil {
		return err
	}
	defer l.Close() // without a pin, this detaches
	if err := u.Step("keep"); err != nil {
		return err
	}
	if u.at != nil {
		return u.moveTo(l)
	}
	if err := l.Pin(u.BPF(st.key, store.PinLink)); err != nil {
		return kernel.Refuse(err, "pin the link of %s", u.Dev)
	}
	return nil
}

// warn says what the interface does when its first program comes, or its last one goes, once.
func (u *up) warn() {
	what := u.dev.Card().Bounces()
	if u.Before == nil || what == "" {
		return
	}
	u.Before(what)
	u.Before = nil
}

// finish ends what began before the policy was in force, and removes what it replaced.
func (u *up) finish() error {
	over := u.staged.over
	err := u.finishMoves()
	if over != nil {
		over.swapped = u.swapped
		err = errors.Join(err, over.finishMoves())
	}
	if err != nil {
		return fmt.Errorf("the new policy is in force on %s, but what was spent of its limits in "+
			"the last second may not count: %w", u.Dev, err)
	}
	err = u.adoptAgain()
	if over != nil {
		err = errors.Join(err, over.adoptAgain())
	}
	if err != nil {
		return fmt.Errorf("the new policy is in force on %s, but connections that are older may "+
			"end: %w", u.Dev, err)
	}
	if u.waiting != nil {
		if err := generation.Remove(u.Store, u.waiting.Key); err != nil {
			return fmt.Errorf("the policy is in force on %s, but what was kept for the interface "+
				"of that name before is not removed: %w", u.Dev, err)
		}
	}
	at, err := generation.Settle(u.Store, u.key)
	if err != nil {
		return fmt.Errorf("the new policy is in force on %s, but cleaning up after the one "+
			"before it failed (any levee command does it): %w", u.Dev, err)
	}
	if at != nil {
		inspect.LeaveMemories(u.Store, at)
		at.Close()
	}
	return nil
}
