package dataplane

import (
	"path/filepath"

	"github.com/vishvananda/netlink"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/state"
	"levee/internal/kernel"
)

// unfit returns an error for a way of attaching at which the policy would not judge rightly.
// Whoever has asked for the mode has seen to it, but where nothing could be judged.
func (u *up) unfit(t attach.Try, p *codegen.Program) error {
	asked := u.Mode == t.Mode || u.at != nil && u.at.Current().Asked
	l, err := netlink.LinkByName(u.dev.Name)
	if err != nil {
		return nil // said by who attaches
	}
	c := u.dev.Card()
	if why := attach.TooLarge(c, t.Frags); why != "" && t.Mode == store.XDPNative &&
		!c.Fragments() {
		return attach.Unfit("%s", why)
	}
	return attach.Misfit(l, c, t.Mode, attach.NeedsOf(p), asked)
}

// egress returns how the programs of a policy are attached at egress: beside a policy of TCX and by
// TCX where the kernel has it, else by filters of tc.
func (u *up) egress(m store.Mode) (store.Mode, error) {
	switch {
	case m.AtTC():
		return m, nil
	case u.egressMode != "":
		return u.egressMode, nil
	}
	return attach.TCIngress()
}

// linkOthers attaches the programs of a staged generation that do not judge what arrives.
func (u *up) linkOthers(st *staged, p *codegen.Program) error {
	pins := u.Pins(st.key, st.desc.Generation)
	dir := filepath.Join(pins, store.PinLinks)
	for _, l := range p.Links {
		if l.At == codegen.Ingress {
			continue
		}
		if l.At == state.Behind { // generation.Hook has packets come to it
			path := filepath.Join(pins, store.PinBehind)
			err := store.PinFile(st.plain.Others[l.Program], path, store.SecretMode)
			if err != nil {
				return err
			}
			continue
		}
		if err := u.Step("link"); err != nil {
			return err
		}
		if err := store.MakeDirs(dir); err != nil {
			return kernel.Refuse(err, "create the directory of links")
		}
		lk, err := attach.AttachOther(u.dev, l, st.desc, st.plain.Others[l.Program])
		if err != nil {
			return attach.Unable(err)
		}
		st.links = append(st.links, lk)
		if err := u.Step("keep link"); err != nil {
			return err
		}
		if err := lk.Pin(filepath.Join(dir, l.Program)); err != nil {
			return kernel.Refuse(err, "pin the link of %s at %s", l.Program, l.At)
		}
		if l.At != codegen.Egress {
			continue
		}
		if err := store.MakeDirs(filepath.Join(pins, store.PinLeave)); err != nil {
			return kernel.Refuse(err, "create the directory of programs at egress")
		}
		path := filepath.Join(pins, store.PinLeave, l.Program)
		if err := store.PinFile(st.plain.Others[l.Program], path, store.SecretMode); err != nil {
			return err
		}
	}
	return nil
}

// judgeOf returns a compiled policy without the programs that do not judge: its variant with a
// deadline has those of the plain one beside it.
func judgeOf(p *codegen.Program) *codegen.Program {
	judge := *p
	judge.Spec = p.Spec.Copy()
	judge.Links = []codegen.Link{{Program: p.Judge(), At: codegen.Ingress}}
	for name := range p.Spec.Programs {
		if name != p.Judge() {
			delete(judge.Spec.Programs, name)
		}
	}
	return &judge
}

// makesQdisc reports whether the qdisc that a filter needs is levee's: there was none, or a
// generation that is still there made it.
func (u *up) makesQdisc() (bool, error) {
	if u.at != nil {
		for _, g := range u.at.Generations {
			if g.MadeQdisc {
				return true, nil
			}
		}
	}
	return u.dev.LacksQdisc()
}
