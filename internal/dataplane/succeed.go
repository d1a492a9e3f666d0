package dataplane

import (
	"slices"

	"levee/internal/dataplane/attach"
)

// succeed finds the state that a new policy of an interface continues: the entries of one that has
// the policy with it, or all that is kept for the one before of its name, which has vanished.
// Whether the program itself could be adopted does not matter: a card of another driver has another
// one.
func (u *up) succeed() error {
	if u.at != nil {
		return nil
	}
	keys, err := u.Keys()
	if err != nil {
		return err
	}
	for _, key := range keys {
		a, err := attach.Open(u.Store, key)
		if err != nil {
			continue // not this command's business
		}
		last := a.Last()
		if g := a.Lasting(); g != nil && attach.Waits(u.Store, a) && last.Dev == u.dev.Name &&
			last.Netns == u.dev.Netns {
			u.waiting, u.from = a, placed{key: key, g: g}
			return nil
		}
		a.Close()
	}
	here := func(a *attach.Attachment) bool { return a.Ifindex != 0 }
	if i := slices.IndexFunc(u.siblings, here); i >= 0 {
		u.from = placed{key: u.siblings[i].Key, g: u.siblings[i].Current()}
	}
	return nil
}
