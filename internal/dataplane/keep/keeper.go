package keep

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/filter/sender"
	"levee/internal/host/local"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// ErrUnkept is the end of Run by `levee down`.
var ErrUnkept = errors.New("the policy is not kept any more")

// Policy puts one policy on interfaces. R is its report: how an interface came by the policy.
type Policy[R any] interface {
	// Put has it in force on all these interfaces, as one. Without reports it is on none of them.
	Put(ctx context.Context, devs []string) ([]R, error)
	// Adopt gives an interface the program that was in force on the one of its name before. It
	// reports false where there is none that fits what the interface is now.
	Adopt(s *store.Store, dev string) (bool, error)
	// Anew reads it again, before an interface gets it that cannot have the program of the one
	// before. With an error it is what it was.
	Anew(dev string) error
	// Move has it judge an interface elsewhere; why says what was wrong where it is.
	Move(ctx context.Context, dev, why string) (R, error)
}

// Events are told of what a keeper does. Each may be nil.
type Events[R any] struct {
	// Ready says that every interface there is has the policy, with the reports of these.
	Ready func([]R)
	// Old says that it could not be read, and what was read last is taken.
	Old func(dev string, err error)
	// Came says that an interface has come, and how long it took until it had the policy.
	Came func(dev string, after time.Duration)
	// Renamed says that one that has it is called otherwise now. It keeps it.
	Renamed func(was, now string)
	// Failed says that one could not get it.
	Failed func(dev string, err error)
	// Unlike says that `self` of the policy on one is not what the kernel delivers to the machine.
	Unlike func(dev string, err error)
	// Past says that packets of one come past its policy, or are judged otherwise than it says, and
	// where the policy is now, or why it is where it was. Judges says that it does so no more.
	Past   func(j inspect.Judged, now R, err error)
	Judges func(j inspect.Judged)
}

// Run binds a policy, the text of the file path, to names of interfaces and patterns of names. The
// interfaces that there are get it, and each one that comes, until ctx ends, which leaves the
// policy in force, or somebody unbinds it (ErrUnkept).
func Run[R any](ctx context.Context, names []string, path string, p Policy[R],
	tell Events[R]) error {
	netns, err := attach.NetnsCookie()
	if err != nil {
		return err
	}
	k := &keeper[R]{policy: p, tell: tell, seen: map[int]string{},
		own:  map[int]*local.Own{},
		ways: map[int][]byte{}, senders: map[int]*sender.Names{},
		unlike: map[int]bool{}, past: map[string]time.Time{},
		record: store.Record{Netns: netns, Names: names, Policy: path, Pid: os.Getpid(),
			Starting: true}}
	defer k.watcher.Close()
	lock, err := k.begin(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	err = k.watch(ctx)
	if ctx.Err() != nil { // what is in force stays, and is not kept any more
		return store.Transact(context.WithoutCancel(ctx),
			func(s *store.Store) error { return End(s, &k.record) })
	}
	return err
}

type keeper[R any] struct {
	policy Policy[R]
	tell   Events[R]
	record store.Record
	seen   map[int]string // interfaces that have been looked at: their names
	// interfaces by index where `self` of the policy may not be what the kernel delivers
	unlike map[int]bool
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
func (k *keeper[R]) begin(ctx context.Context) (lock *os.File, err error) {
	err = store.Transact(ctx, func(s *store.Store) error {
		if err := store.MakeDirs(s.Keeps()); err != nil {
			return kernel.Refuse(err, "create the runtime directory")
		}
		all, err := s.Records()
		if err != nil {
			return err
		}
		for _, r := range all {
			if r.ID() == k.record.ID() || r.Netns != k.record.Netns ||
				!overlap(r.Names, k.record.Names) {
				continue
			}
			return fmt.Errorf("%s is kept already, with %s, by process %d; `levee down` ends that",
				strings.Join(r.Names, ", "), r.Policy, r.Pid)
		}
		lock, err = s.LockRecord(&k.record)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("%s is kept already, by another process; `levee down` ends that",
				strings.Join(k.record.Names, ", "))
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

// unboundLook is the interval at which a keeper without an interface looks whether it has been
// ended.
const unboundLook = 500 * time.Millisecond

// errLost says that the kernel could not tell of all that has changed.
var errLost = errors.New("messages of the kernel were lost")

// watch gives interfaces their policy as they come.
func (k *keeper[R]) watch(ctx context.Context) error {
	err := k.follow(ctx, k.first)
	for errors.Is(err, errLost) {
		err = k.follow(ctx, k.again)
	}
	return err
}

// follow does what messages of the kernel ask for, once begin has looked at what there is.
func (k *keeper[R]) follow(ctx context.Context, begin func(context.Context) error) error {
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
	if err := begin(ctx); err != nil {
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
			if !ok {
				return errLost
			}
			k.watcher.Recheck() // an MTU or an offload may have changed
			compare.Reset(compareSoon)
			if err := k.event(ctx, e); err != nil {
				return err
			}
		case _, ok := <-self:
			if !ok && ctx.Err() == nil {
				return errLost
			}
			k.tellSelf(ctx)
		case <-again.C: // what is not told
			k.tellSelf(ctx)
		}
	}
}

// selfLook is the interval at which a keeper looks at what the kernel delivers although nothing was
// told.
const selfLook = time.Minute

// compareLook is the interval of comparing what interfaces receive with what is judged, and
// compareSoon the delay of a comparison after something has happened to an interface.
const (
	compareLook = time.Second
	compareSoon = 50 * time.Millisecond
)

// pastAgain is the time between two attempts against packets that bypass the policy.
const pastAgain = time.Minute

// compare has a policy that packets come past go to the next hook, at once.
func (k *keeper[R]) compare(ctx context.Context) {
	all, err := k.watcher.Look(ctx)
	if err != nil {
		return // what cannot be read now may be readable in a second
	}
	for _, j := range all {
		last, was := k.past[j.Dev]
		_, ours := k.seen[j.Ifindex]
		switch {
		case !ours:
		case !j.Failed():
			if was && j.State == inspect.Seen {
				delete(k.past, j.Dev)
				if k.tell.Judges != nil {
					k.tell.Judges(j)
				}
			}
		case !was || j.Changed || time.Since(last) > pastAgain:
			rep, err := k.policy.Move(ctx, j.Dev, j.Next())
			k.past[j.Dev] = time.Now()
			if k.tell.Past != nil && ctx.Err() == nil {
				k.tell.Past(j, rep, err)
			}
		}
	}
}

// first gives all interfaces there are their policy, as Up does.
func (k *keeper[R]) first(ctx context.Context) error {
	devs, err := k.there()
	if err != nil {
		return err
	}
	var reps []R
	if len(devs) > 0 {
		if reps, err = k.policy.Put(ctx, devs); len(reps) == 0 {
			return errors.Join(err, store.Transact(ctx,
				func(s *store.Store) error { return End(s, &k.record) }))
		}
	}
	if err := k.renamedBefore(ctx); err != nil {
		return err
	}
	for index := range k.seen {
		k.unlike[index] = true // something may have come or gone since the policy was put in force
	}
	k.tellSelf(ctx)
	if err := k.begun(ctx); err != nil {
		return err
	}
	if k.tell.Ready != nil {
		k.tell.Ready(reps)
	}
	return nil
}

// begun records that the policy is in force where it is to be.
func (k *keeper[R]) begun(ctx context.Context) error {
	k.record.Starting = false
	return store.Transact(ctx, func(s *store.Store) error {
		file := s.Keeps(k.record.ID() + ".json")
		if _, err := os.Stat(file); err != nil {
			return ErrUnkept
		}
		return store.WriteJSON(file, k.record)
	})
}

// again looks at all interfaces where messages on them were lost. Those that have their policy keep
// it as it is: somebody may have put a newer one in force.
func (k *keeper[R]) again(ctx context.Context) error {
	links, err := local.Links()
	if err != nil {
		return err
	}
	there := map[int]bool{}
	for _, l := range links {
		there[l.Attrs().Index] = true
	}
	for index := range k.seen {
		if !there[index] {
			k.gone(index)
		}
	}
	for _, l := range links {
		if err := k.look(ctx, l.Attrs().Index, l.Attrs().Name); err != nil {
			return err
		}
	}
	k.tellSelf(ctx)
	return nil
}

// renamedBefore remembers the interfaces that another keeper gave their policy, and that are called
// otherwise since.
func (k *keeper[R]) renamedBefore(ctx context.Context) error {
	return store.Transact(ctx, func(s *store.Store) error {
		return each(s, func(l netlink.Link, g *store.Description) {
			a := l.Attrs()
			if k.record.Fits(g.Netns, g.Dev) && !k.record.Fits(k.record.Netns, a.Name) {
				k.seen[a.Index] = g.Dev
				k.renamed(a.Index, a.Name)
			}
		})
	})
}

// there lists the interfaces that fit, and remembers them.
func (k *keeper[R]) there() (devs []string, err error) {
	links, err := local.Links()
	if err != nil {
		return nil, err
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
func (k *keeper[R]) bound() (bool, error) {
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
func (k *keeper[R]) event(ctx context.Context, e netlink.LinkUpdate) error {
	switch {
	case e.Family == unix.AF_BRIDGE: // it came to a bridge, or left one
		return nil
	case e.Header.Type == unix.RTM_DELLINK:
		k.gone(e.Attrs().Index)
		return nil
	}
	return k.look(ctx, e.Attrs().Index, e.Attrs().Name)
}

// gone forgets an interface.
func (k *keeper[R]) gone(index int) {
	delete(k.seen, index)
	delete(k.own, index)
	delete(k.senders, index)
	delete(k.unlike, index)
}

// renamed says that an interface that has the policy is called otherwise.
func (k *keeper[R]) renamed(index int, now string) {
	was := k.seen[index]
	k.seen[index] = now
	if k.tell.Renamed != nil {
		k.tell.Renamed(was, now)
	}
}

// look gives an interface its policy if it has come, or got a name that fits. One that has a policy
// when its name changes keeps that, whatever the name.
func (k *keeper[R]) look(ctx context.Context, index int, name string) error {
	began := time.Now()
	was, known := k.seen[index]
	if known && was == name {
		return nil
	}
	if known {
		if generation.Has(ctx, name) {
			k.renamed(index, name)
			k.tellSelf(ctx)
			return nil
		}
		k.gone(index)
	}
	if !k.record.Fits(k.record.Netns, name) {
		return nil
	}
	k.seen[index] = name
	adopted := false
	err := store.Transact(ctx, func(s *store.Store) (err error) {
		if _, err := os.Stat(s.Keeps(k.record.ID() + ".json")); err != nil {
			return ErrUnkept
		}
		adopted, err = k.policy.Adopt(s, name)
		return err
	})
	if errors.Is(err, ErrUnkept) {
		return err
	}
	if !adopted {
		if err != nil && k.tell.Failed != nil {
			k.tell.Failed(name, err)
		}
		// Somebody may have put a newer one in force since.
		if err := k.policy.Anew(name); err != nil && k.tell.Old != nil {
			k.tell.Old(name, err)
		}
		var reps []R
		if reps, err = k.policy.Put(ctx, []string{name}); len(reps) > 0 {
			err = nil
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && k.tell.Failed != nil:
		k.tell.Failed(name, err) // it may have gone meanwhile; another may come
	case err != nil:
	default:
		if k.tell.Came != nil {
			k.tell.Came(name, time.Since(began))
		}
		k.unlike[index] = true // others may have left while it was away
		k.tellSelf(ctx)
	}
	return nil
}
