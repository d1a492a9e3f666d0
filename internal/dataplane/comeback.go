package dataplane

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// A policy can be bound to names of interfaces. A process, the keeper, waits for interfaces of
// these names and gives each the policy as soon as it comes. What is bound stands in a record:
//
//	keep/ID.json  the names, and whose process it is
//	keep/ID.lock  flock of the keeper, for as long as it lives
//
// While a record is there, what is kept for an interface that has vanished stays: its program is
// loaded, its sets hold their entries. The interface that comes back under the name gets that very
// program, by a new link: nothing is compiled or verified again.

// keepRecord is what is kept under names, by the process of a keeper.
type keepRecord struct {
	Netns  uint64   `json:"netns"`
	Names  []string `json:"names"`
	Policy string   `json:"policy"`
	Pid    int      `json:"pid"`
}

func (r *keepRecord) id() string {
	sum := sha256.Sum256([]byte(strings.Join(r.Names, "/")))
	return fmt.Sprintf("%d-%x", r.Netns, sum[:8])
}

// fits reports whether the record is about an interface.
func (r *keepRecord) fits(netns uint64, dev string) bool {
	return r.Netns == netns && slices.ContainsFunc(r.Names,
		func(name string) bool { return policy.Fits(name, dev) })
}

func (s *store) keeps(elem ...string) string {
	return filepath.Join(append([]string{s.dir, "keep"}, elem...)...)
}

// records lists what is bound to names.
func (s *store) records() ([]keepRecord, error) {
	files, err := filepath.Glob(s.keeps("*.json"))
	if err != nil {
		return nil, err
	}
	var all []keepRecord
	for _, file := range files {
		var r keepRecord
		if err := readJSON(file, &r); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// kept reports whether an interface is to come back with its policy.
func (s *store) kept(netns uint64, dev string) bool {
	all, err := s.records()
	fits := func(r keepRecord) bool { return r.fits(netns, dev) }
	return err == nil && slices.ContainsFunc(all, fits)
}

// last is the newest generation of an attachment, nil if it has none.
func (a *attachment) last() *description {
	if all := a.sorted(); len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// waits reports whether an attachment's interface has vanished and is to come back.
func (s *store) waits(a *attachment) bool {
	g := a.last()
	return a.ifindex == 0 && g != nil && s.kept(g.Netns, g.Dev)
}

// Kept is a policy that is bound to names.
type Kept struct {
	Names   []string
	Policy  string
	Pid     int      // of the keeper
	Running bool     // it lives
	Waiting []string // names that no interface of this network namespace fits
}

// Keeping lists what is bound to names in this network namespace.
func Keeping(ctx context.Context) (out []Kept, err error) {
	if refused := kernel.Privileged(); refused != nil {
		s, err := forReading(ctx, refused)
		if err != nil {
			return nil, err
		}
		return s.keeping(func(r *keepRecord) bool { // its lock is root's
			_, err := os.Stat(fmt.Sprintf("/proc/%d", r.Pid))
			return err == nil
		})
	}
	err = transact(ctx, func(s *store) error {
		out, err = s.keeping(func(r *keepRecord) bool {
			f, err := s.lockRecord(r)
			if err == nil {
				f.Close()
			}
			return errors.Is(err, unix.EWOULDBLOCK)
		})
		return err
	})
	return out, err
}

func (s *store) keeping(running func(*keepRecord) bool) (out []Kept, err error) {
	netns, err := netnsCookie()
	if err != nil {
		return nil, err
	}
	all, err := s.records()
	if err != nil {
		return nil, err
	}
	links, err := netlink.LinkList()
	if err != nil {
		return nil, kernel.Refuse(err, "list the interfaces of this network namespace")
	}
	for _, r := range all {
		if r.Netns != netns {
			continue
		}
		k := Kept{Names: r.Names, Policy: r.Policy, Pid: r.Pid, Running: running(&r)}
		for _, name := range r.Names {
			fits := func(l netlink.Link) bool { return policy.Fits(name, l.Attrs().Name) }
			if !slices.ContainsFunc(links, fits) {
				k.Waiting = append(k.Waiting, name)
			}
		}
		out = append(out, k)
	}
	return out, nil
}

// lockRecord takes the lock of a record's keeper; the error is EWOULDBLOCK while one lives.
func (s *store) lockRecord(r *keepRecord) (*os.File, error) {
	f, err := os.OpenFile(s.keeps(r.id()+".lock"), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, lockMode)
	if err != nil {
		return nil, kernel.Refuse(err, "open the lock of what is kept")
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// forgetKept unbinds names, so that their keeper ends, and removes what waits for them.
func (s *store) forgetKept(r *keepRecord) error {
	for _, ending := range []string{".json", ".lock"} {
		if err := os.Remove(s.keeps(r.id() + ending)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return kernel.Refuse(err, "unbind the policy from %s", strings.Join(r.Names, ", "))
		}
	}
	_ = os.Remove(s.keeps()) // fails while there are others
	return s.sweep("", func(*attachment) error { return nil })
}

// unkeep unbinds a policy from an interface that it is taken off, unless others have it with it
// that keep it: with lose it, too.
func (s *store) unkeep(dev string, with []string) (found bool, err error) {
	netns, err := netnsCookie()
	if err != nil {
		return false, err
	}
	all, err := s.records()
	for _, r := range all {
		if !r.fits(netns, dev) && !slices.Contains(r.Names, dev) || r.Netns != netns {
			continue
		}
		found = true
		others, lerr := s.othersOf(&r, dev)
		others = slices.DeleteFunc(others, func(o string) bool { return slices.Contains(with, o) })
		if lerr != nil || len(others) > 0 {
			err = errors.Join(err, lerr)
			s.note("%s is kept together with %s, and gets the policy when it comes anew: "+
				"`levee down` without --dev ends that", dev, strings.Join(others, ", "))
			continue
		}
		err = errors.Join(err, s.forgetKept(&r))
	}
	return found, err
}

// othersOf lists the interfaces that have a policy by a record, but for one.
func (s *store) othersOf(r *keepRecord, dev string) (devs []string, err error) {
	err = s.sweep("", func(a *attachment) error {
		l, err := a.here()
		if err == nil && l != nil && l.Attrs().Name != dev && r.fits(r.Netns, l.Attrs().Name) {
			devs = append(devs, l.Attrs().Name)
		}
		return err
	})
	return devs, err
}

// Unkeep unbinds all policies of this network namespace that no interface has, and says of which
// names.
func Unkeep(ctx context.Context) (names []string, err error) {
	err = transact(ctx, func(s *store) error {
		netns, err := netnsCookie()
		if err != nil {
			return err
		}
		all, err := s.records()
		for _, r := range all {
			if r.Netns != netns {
				continue
			}
			others, lerr := s.othersOf(&r, "")
			if err = errors.Join(err, lerr); len(others) == 0 && lerr == nil {
				err = errors.Join(err, s.forgetKept(&r))
				names = append(names, r.Names...)
			}
		}
		return err
	})
	return names, err
}

// adopt gives an interface the program that was in force on the one of its name before. It reports
// false where there is none, or none that fits what the interface is now.
func (s *store) adopt(dev string) (bool, error) {
	d, err := findDevice(dev)
	if err != nil {
		return false, err
	}
	keys, err := s.keys()
	if err != nil {
		return false, err
	}
	for _, key := range keys {
		a, err := s.open(key)
		if err != nil {
			continue // not this command's business
		}
		done, err := s.adoptFrom(a, d)
		a.Close()
		if done || err != nil {
			return done, err
		}
	}
	return false, nil
}

// adoptFrom does so with what waits under one key.
func (s *store) adoptFrom(a *attachment, d *device) (bool, error) {
	last := a.last()
	if a.link == nil || a.ifindex != 0 || last == nil || last.Dev != d.name ||
		last.Netns != d.netns {
		return false, nil
	}
	g := a.lasting()
	if g == nil || g.Link != d.link || g.Mode == Clsact || g.Joined {
		return false, nil
	}
	pin := filepath.Join(s.pins(a.key, g.Generation), pinProg)
	prog, err := s.openProgram(pin)
	if errors.Is(err, fs.ErrNotExist) { // see below
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer prog.Close()
	if !g.Mode.AtTC() {
		if joins, err := refuseForeign(d); err != nil || joins {
			return false, err
		}
	}
	if left, err := s.leaveAgain(a.key, d, g); err != nil || !left {
		return false, err
	}
	l, err := s.attachAgain(a.key, d, g, prog)
	if err != nil {
		// A device that has gone again may come back.
		if now, gone := findDevice(d.name); gone != nil || now.index != d.index {
			return false, nil
		}
		// Another way may do, with a program for it. What this one has at egress goes first.
		return false, errors.Join(s.unlink(a.key, nil), os.Remove(pin))
	}
	defer l.Close() // without a pin, this detaches
	if err := s.repin(a.key, l); err != nil {
		return false, err
	}
	if err := s.endShadows(a); err != nil { // that judged on the interface before
		return true, err
	}
	g.Ifindex = d.index
	if err := writeJSON(s.describe(a.key, g.Generation), g); err != nil {
		return true, err
	}
	after, err := s.settle(a.key)
	if after != nil {
		after.Close()
	}
	return true, err
}

// succeed finds what an interface without a policy goes on from: the entries of one that has the
// policy with it, or all that is kept for the one before of its name, which has vanished. Whether
// the program itself could be adopted does not matter: a card of another driver has another one.
func (u *up) succeed() error {
	if u.at != nil {
		return nil
	}
	keys, err := u.keys()
	if err != nil {
		return err
	}
	for _, key := range keys {
		a, err := u.open(key)
		if err != nil {
			continue // not this command's business
		}
		last := a.last()
		if g := a.lasting(); g != nil && u.waits(a) && last.Dev == u.dev.name &&
			last.Netns == u.dev.netns {
			u.waiting, u.from = a, placed{key: key, g: g}
			return nil
		}
		a.Close()
	}
	here := func(a *attachment) bool { return a.ifindex != 0 }
	if i := slices.IndexFunc(u.siblings, here); i >= 0 {
		u.from = placed{key: u.siblings[i].key, g: u.siblings[i].current()}
	}
	return nil
}

func (s *store) attachAgain(key string, d *device, g *description, p *ebpf.Program) (hold, error) {
	if err := step("come back"); err != nil {
		return nil, err
	}
	return s.attach(key, d, g, p)
}
