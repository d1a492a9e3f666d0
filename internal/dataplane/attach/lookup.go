package attach

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// Where an interface is kept: under the namespace and the index that it had when its first policy
// came. Neither stays. An interface that is handed to a container keeps its program and gets
// another namespace, and its index may be used again for a new one. What does not change, and no
// two interfaces share, is the program, or the kernel's link, that runs on it.

// KeyOn returns the key of levee's state for a device: the one of the program that runs there, else
// the key that a new attachment gets.
func KeyOn(s *store.Store, d *Device) (string, error) {
	keys, err := s.Keys()
	if err != nil {
		return "", err
	}
	running, err := d.Programs()
	if err != nil {
		return "", err
	}
	own := d.Key()
	if slices.Contains(keys, own) {
		if elsewhere, err := elsewhere(s, own, running); err != nil || !elsewhere {
			return own, nil // what cannot be read is settled, or reported, by who opens it
		}
	}
	for _, key := range keys {
		if len(running) == 0 {
			break
		}
		if key == own {
			continue
		}
		a, err := Open(s, key)
		if err != nil {
			continue // not this command's business
		}
		a.Close()
		if a.Ifindex == d.Index && slices.Contains(running, a.Shown()) {
			return key, nil
		}
	}
	key := own
	for n := 2; slices.Contains(keys, key); n++ {
		key = fmt.Sprintf("%s-%d", own, n)
	}
	return key, nil
}

// Programs returns the ids of the programs that run on a device and may be levee's.
func (d *Device) Programs() ([]uint32, error) {
	ids, err := tcPrograms(d.Index)
	if d.XDP != 0 {
		ids = append(ids, d.XDP)
	}
	return ids, err
}

// elsewhere reports whether what is kept under a key is in force, and on another interface than
// the one where programs run.
func elsewhere(s *store.Store, key string, running []uint32) (bool, error) {
	a, err := Open(s, key)
	if err != nil {
		return false, err
	}
	defer a.Close()
	return a.Link != nil && a.Ifindex != 0 && !slices.Contains(running, a.Shown()), nil
}

// Here returns the interface on which an attachment's program runs, nil if that is in another
// network namespace, or has vanished.
func (a *Attachment) Here() (netlink.Link, error) {
	if a.Ifindex == 0 {
		return nil, nil
	}
	l, err := netlink.LinkByIndex(a.Ifindex)
	var notFound netlink.LinkNotFoundError
	if errors.As(err, &notFound) {
		return nil, nil
	}
	if err != nil {
		return nil, kernel.Refuse(err, "look up interface %d", a.Ifindex)
	}
	runs := a.Shown()
	if x := l.Attrs().Xdp; x != nil && x.Attached && x.ProgId == runs {
		return l, nil
	}
	ids, err := tcPrograms(a.Ifindex)
	if err != nil || !slices.Contains(ids, runs) {
		return nil, err
	}
	return l, nil
}

// QueryPrograms asks the kernel which programs are attached; tests make it fail.
var QueryPrograms = link.QueryPrograms

// queries is the number of further questions to the kernel where programs came between its two
// answers: how many there are, and which.
const queries = 100

// TcxProgramsAt returns the ids of the programs at one side of TCX of an interface of this network
// namespace; none where the kernel has no TCX, or the interface is gone.
func TcxProgramsAt(index int, at ebpf.AttachType) ([]uint32, error) {
	ask := link.QueryOptions{Target: index, Attach: at}
	res, err := QueryPrograms(ask)
	for n := 0; errors.Is(err, unix.ENOSPC) && n < queries; n++ {
		res, err = QueryPrograms(ask)
	}
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, ebpf.ErrNotSupported),
		errors.Is(err, unix.ENODEV):
		return nil, nil
	case err != nil:
		return nil, kernel.Refuse(err, "ask the kernel which programs interface %d has at %v",
			index, at)
	}
	var ids []uint32
	for _, p := range res.Programs {
		ids = append(ids, uint32(p.ID))
	}
	return ids, nil
}

// Renamed lists the interfaces of this network namespace, by the names that they have now, whose
// policy came when they were called name.
func Renamed(s *store.Store, name string) (now []string, err error) {
	_, err = cameTo(s, name, func(_ *Attachment, l netlink.Link) bool {
		if l != nil && l.Attrs().Name != name {
			now = append(now, l.Attrs().Name)
		}
		return false
	})
	return now, err
}

// cameTo returns the first attachment that is wanted of those whose policy came in this network
// namespace when their interface was called name, nil if none is. The interface is nil where it is
// in another namespace, or has vanished. Who asks closes what is returned.
func cameTo(s *store.Store, name string, wanted func(*Attachment, netlink.Link) bool) (
	*Attachment, error) {
	netns, err := NetnsCookie()
	if err != nil {
		return nil, err
	}
	keys, err := s.Keys()
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		a, err := Open(s, key)
		if err != nil {
			continue // not this command's business
		}
		if g := a.Current(); g != nil && g.Netns == netns && g.Dev == name {
			l, err := a.Here()
			if err != nil {
				a.Close()
				return nil, err
			}
			if wanted(a, l) {
				return a, nil
			}
		}
		a.Close()
	}
	return nil, nil
}

// SayRenamed has the error that nothing is found under a name say which interfaces had it when
// their policies came.
func SayRenamed(s *store.Store, name string, notFound error) error {
	now, err := Renamed(s, name)
	if err != nil || len(now) == 0 {
		return errors.Join(notFound, err)
	}
	return fmt.Errorf("%w; the one that had this name when its policy came is called %s now",
		notFound, strings.Join(now, ", "))
}

// MovedAway returns the attachment of an interface that had that name in this network namespace and
// is in another one now, nil if there is none. Who asks closes it.
func MovedAway(s *store.Store, name string) (*Attachment, error) {
	return cameTo(s, name, func(a *Attachment, l netlink.Link) bool {
		return a.Ifindex != 0 && l == nil
	})
}
