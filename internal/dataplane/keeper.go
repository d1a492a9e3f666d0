package dataplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/around"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/filter/sender"
	"levee/internal/host/account"
	"levee/internal/host/local"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// KeepEvents are told of what a keeper does.
type KeepEvents struct {
	// Anew, if there is one, reads the policy again. It is asked when an interface comes that
	// cannot have the program of the one before it.
	Anew func(dev string) (UpOptions, CompileFunc, error)
	// Ready says that every interface there is has the policy, with the reports of these.
	Ready func([]*Report)
	// Old says that it could not be read, and what was read last is taken.
	Old func(dev string, err error)
	// Came says that an interface has come, and how long it took until it had the policy.
	Came func(dev string, after time.Duration)
	// Failed says that one could not get it.
	Failed func(dev string, err error)
	// Unlike says that `self` of the policy on one is not what the kernel delivers to the machine.
	Unlike func(dev string, err error)
	// Past says that packets of one come past its policy, or are judged otherwise than it says, and
	// where the policy is now, or why it is where it was. Judges says that it does so no more.
	Past   func(j inspect.Judged, now *Report, err error)
	Judges func(j inspect.Judged)
}

// ErrUnkept is the end of Keep by `levee down`.
var ErrUnkept = errors.New("the policy is not kept any more")

// Keep puts a policy into force on the interfaces of o.Names that there are, and on each one that
// comes, until ctx ends, which leaves the policy in force, or somebody unbinds it (ErrUnkept).
func Keep(ctx context.Context, o UpOptions, compile CompileFunc, tell KeepEvents) error {
	netns, err := attach.NetnsCookie()
	if err != nil {
		return err
	}
	k := &keeper{UpOptions: o, compile: compile, tell: tell, seen: map[int]string{},
		own:  map[int]*local.Own{},
		ways: map[int][]byte{}, senders: map[int]*sender.Names{},
		unlike: map[string]bool{}, past: map[string]time.Time{},
		record: store.Record{Netns: netns, Names: o.Names, Policy: o.PolicyPath, Pid: os.Getpid()}}
	defer k.watcher.Close()
	lock, err := k.begin(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	err = k.watch(ctx)
	if ctx.Err() != nil { // what is in force stays, and is not kept any more
		return store.Transact(context.WithoutCancel(ctx),
			func(s *store.Store) error { return forgetKept(s, &k.record) })
	}
	return err
}

type keeper struct {
	UpOptions
	compile CompileFunc
	tell    KeepEvents
	record  store.Record
	seen    map[int]string // interfaces that have been looked at: their names
	// interfaces by name where `self` of the policy may not be what the kernel delivers
	unlike map[string]bool
	self   []netip.Prefix     // what it delivered when that was looked at last
	own    map[int]*local.Own // of interfaces by index, when cookies were told last
	ways   map[int][]byte     // of interfaces by index, when rules on ways back were told last
	// who names stood for when rules on senders were told last, of interfaces by index
	senders map[int]*sender.Names
	account string // account.Stamp then
	watcher inspect.Watcher
	// interfaces by name whose packets come past, and when that was told
	past map[string]time.Time
}

// begin binds the policy to its names.
func (k *keeper) begin(ctx context.Context) (lock *os.File, err error) {
	err = store.Transact(ctx, func(s *store.Store) error {
		if err := store.MakeDirs(s.Keeps()); err != nil {
			return kernel.Refuse(err, "create the runtime directory")
		}
		all, err := s.Records()
		if err != nil {
			return err
		}
		for _, r := range all {
			if r.ID() == k.record.ID() || r.Netns != k.record.Netns || !overlap(r.Names, k.Names) {
				continue
			}
			return fmt.Errorf("%s is kept already, with %s, by process %d; `levee down` ends that",
				strings.Join(r.Names, ", "), r.Policy, r.Pid)
		}
		lock, err = s.LockRecord(&k.record)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("%s is kept already, by another process; `levee down` ends that",
				strings.Join(k.Names, ", "))
		}
		if err != nil {
			return err
		}
		return store.WriteJSON(s.Keeps(k.record.ID()+".json"), k.record)
	})
	return lock, err
}

// overlap reports whether one of some names is, or fits, one of others.
func overlap(some, others []string) bool {
	for _, a := range some {
		for _, b := range others {
			if a == b || policy.Fits(a, b) || policy.Fits(b, a) {
				return true
			}
		}
	}
	return false
}

// unboundLook is how often a keeper looks whether it has been ended, while no interface comes.
const unboundLook = 500 * time.Millisecond

// watch gives interfaces their policy as they come.
func (k *keeper) watch(ctx context.Context) error {
	events := make(chan netlink.LinkUpdate, 1024)
	done := make(chan struct{})
	defer close(done)
	if err := netlink.LinkSubscribe(events, done); err != nil { // before the first look
		return kernel.Refuse(err, "watch the interfaces of this network namespace")
	}
	watching, end := context.WithCancel(ctx)
	defer end()
	self, err := local.Watch(watching)
	if err != nil {
		return err
	}
	if err := k.first(ctx); err != nil {
		return err
	}
	look := time.NewTicker(unboundLook)
	defer look.Stop()
	compare := time.NewTicker(compareLook)
	defer compare.Stop()
	again := time.NewTicker(selfLook)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
			if bound, err := k.bound(); err != nil || !bound {
				return errors.Join(err, ErrUnkept)
			}
		case <-compare.C:
			compare.Reset(compareLook)
			k.compare(ctx)
			k.tellSenders(ctx, false)
		case e, ok := <-events:
			if !ok { // messages were lost: begin anew
				return k.watch(ctx)
			}
			k.watcher.Recheck() // an MTU or an offload may have changed
			compare.Reset(compareSoon)
			if err := k.event(ctx, e); err != nil {
				return err
			}
		case _, ok := <-self:
			if !ok && ctx.Err() == nil {
				return k.watch(ctx)
			}
			k.tellSelf(ctx)
		case <-again.C: // what is not told
			k.tellSelf(ctx)
		}
	}
}

// selfLook is how often a keeper looks at what the kernel delivers although nothing was told.
const selfLook = time.Minute

// compareLook is how often what interfaces receive is compared with what is judged, and compareSoon
// how long after something has happened to one.
const (
	compareLook = time.Second
	compareSoon = 50 * time.Millisecond
)

// pastAgain is how often it is tried again to do something about packets that come past.
const pastAgain = time.Minute

// compare has a policy that packets come past go to the next hook, at once.
func (k *keeper) compare(ctx context.Context) {
	all, err := k.watcher.Look(ctx)
	if err != nil {
		return // what cannot be read now may be readable in a second
	}
	for _, j := range all {
		last, was := k.past[j.Dev]
		switch {
		case !k.record.Fits(k.record.Netns, j.Dev):
		case !j.Failed():
			if was && j.State == inspect.Seen {
				delete(k.past, j.Dev)
				if k.tell.Judges != nil {
					k.tell.Judges(j)
				}
			}
		case !was || j.Changed || time.Since(last) > pastAgain:
			rep, err := MoveOn(ctx, j.Dev, j.Next())
			k.past[j.Dev] = time.Now()
			if k.tell.Past != nil && ctx.Err() == nil {
				k.tell.Past(j, rep, err)
			}
		}
	}
}

// tellSelf tells `self` of the policies what the kernel delivers, and what it delivers no more: a
// policy may be in force before the machine has any address.
func (k *keeper) tellSelf(ctx context.Context) {
	there, err := local.Prefixes()
	var gone []netip.Prefix
	for _, p := range k.self {
		if !sets.Among(there, p) {
			gone = append(gone, p)
		}
	}
	same := slices.Equal(there, k.self)
	for index, dev := range k.seen {
		k.tellOwn(ctx, index, dev)
		k.tellWays(ctx, index, dev)
		failed := err
		switch {
		case failed != nil:
		case same && !k.unlike[dev]:
			continue
		case k.unlike[dev]:
			failed = sets.ResetSelf(ctx, dev, there)
		default:
			failed = sets.TellSelf(ctx, dev, gone, there)
		}
		k.told(ctx, dev, failed)
	}
	if err == nil {
		k.self = there
	}
	k.tellSenders(ctx, true)
}

// tellSenders tells policies who their names stand for, where that has changed: a user or a
// container was made, went or was renamed. Without always, it looks only if files say so.
func (k *keeper) tellSenders(ctx context.Context, always bool) {
	stamp := account.Stamp("/")
	if !always && stamp == k.account {
		return
	}
	k.account = stamp
	for index, dev := range k.seen {
		is, err := around.TellSenders(ctx, dev, k.senders[index])
		k.senders[index] = is
		if err != nil {
			k.refused(ctx, dev, err)
		}
	}
}

// tellOwn tells cookies whom a SYN has to be for, where that has changed.
func (k *keeper) tellOwn(ctx context.Context, index int, dev string) {
	is, err := local.OwnOf(index)
	if err == nil && !around.SameOwn(is, k.own[index]) {
		err = around.TellOwn(ctx, dev, is)
	}
	k.own[index] = is
	if err != nil {
		k.own[index] = nil
		k.refused(ctx, dev, err)
	}
}

// tellWays tells a policy which interfaces packets come up to, where that has changed.
func (k *keeper) tellWays(ctx context.Context, index int, dev string) {
	is, err := around.WaysOf(index, dev)
	if err == nil && !bytes.Equal(is, k.ways[index]) {
		err = around.TellWays(ctx, dev, is)
	}
	k.ways[index] = is
	if err != nil {
		k.ways[index] = nil
		k.refused(ctx, dev, err)
	}
}

// told notes whether `self` of the policy on an interface is what it should be.
func (k *keeper) told(ctx context.Context, dev string, err error) {
	k.unlike[dev] = err != nil
	if err != nil {
		k.refused(ctx, dev, err)
	}
}

// refused says that a policy could not be told of what the kernel takes.
func (k *keeper) refused(ctx context.Context, dev string, err error) {
	switch {
	case ctx.Err() != nil:
	case errors.As(err, new(*generation.NotAttachedError)),
		errors.Is(err, unix.ENODEV): // it has gone
	case k.tell.Unlike != nil:
		k.tell.Unlike(dev, err)
	}
}

// first gives all interfaces there are their policy, as Up does.
func (k *keeper) first(ctx context.Context) error {
	devs, err := k.there()
	if err != nil {
		return err
	}
	var reps []*Report
	if len(devs) > 0 {
		if reps, err = UpAll(ctx, devs, k.UpOptions, k.compile); len(reps) == 0 {
			return errors.Join(err, store.Transact(ctx,
				func(s *store.Store) error { return forgetKept(s, &k.record) }))
		}
	}
	for _, dev := range k.seen {
		k.unlike[dev] = true // something may have come or gone since the policy was put in force
	}
	k.tellSelf(ctx)
	if k.tell.Ready != nil {
		k.tell.Ready(reps)
	}
	return nil
}

// there lists the interfaces that fit, and remembers them.
func (k *keeper) there() (devs []string, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, kernel.Refuse(err, "list the interfaces of this network namespace")
	}
	for _, l := range links {
		if a := l.Attrs(); k.record.Fits(k.record.Netns, a.Name) {
			k.seen[a.Index] = a.Name
			devs = append(devs, a.Name)
		}
	}
	return devs, nil
}

// bound reports whether nobody has ended this.
func (k *keeper) bound() (bool, error) {
	dir, err := store.Directory()
	if err != nil {
		return false, err
	}
	bound := true
	err = store.OnHost(func() error {
		s := &store.Store{Dir: dir}
		_, err := os.Stat(s.Keeps(k.record.ID() + ".json"))
		bound = err == nil
		return nil
	})
	return bound, err
}

// event looks at an interface that has come, gone, or changed its name.
func (k *keeper) event(ctx context.Context, e netlink.LinkUpdate) error {
	began := time.Now()
	a := e.Attrs()
	switch {
	case e.Header.Type == unix.RTM_DELLINK:
		delete(k.seen, a.Index)
		delete(k.own, a.Index)
		delete(k.senders, a.Index)
		return nil
	case k.seen[a.Index] == a.Name || !k.record.Fits(k.record.Netns, a.Name):
		return nil
	}
	k.seen[a.Index] = a.Name
	adopted := false
	err := store.Transact(ctx, func(s *store.Store) (err error) {
		if _, err := os.Stat(s.Keeps(k.record.ID() + ".json")); err != nil {
			return ErrUnkept
		}
		adopted, err = adopt(s, a.Name)
		return err
	})
	if errors.Is(err, ErrUnkept) {
		return err
	}
	if !adopted {
		if err != nil && k.tell.Failed != nil {
			k.tell.Failed(a.Name, err)
		}
		k.readAnew(a.Name)
		var reps []*Report
		if reps, err = UpAll(ctx, []string{a.Name}, k.UpOptions, k.compile); len(reps) > 0 {
			err = nil
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && k.tell.Failed != nil:
		k.tell.Failed(a.Name, err) // it may have gone meanwhile; another may come
	case err != nil:
	default:
		if k.tell.Came != nil {
			k.tell.Came(a.Name, time.Since(began))
		}
		k.unlike[a.Name] = true // others may have left while it was away
		k.tellSelf(ctx)
	}
	return nil
}

// readAnew takes the policy as it stands now: somebody may have put a newer one in force since.
func (k *keeper) readAnew(dev string) {
	if k.tell.Anew == nil {
		return
	}
	o, compile, err := k.tell.Anew(dev)
	if err == nil {
		k.UpOptions, k.compile = o, compile
	} else if k.tell.Old != nil {
		k.tell.Old(dev, err)
	}
}
