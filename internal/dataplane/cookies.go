package dataplane

import (
	"context"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/cookie"
	"levee/internal/filter/state"
)

// unheard returns why answers of cookies may reach nobody on a device in a mode (veth_xdp_flush of
// drivers/net/veth.c); nil where they arrive, or where the user asked for the mode.
func unheard(d *attach.Device, m store.Mode, asked bool) error {
	if m != store.XDPNative || asked || d.Driver != "driver veth" {
		return nil
	}
	return &attach.UnheardError{Dev: d.Name}
}

// refusesUnheard says whether cookies that nobody may hear keep a policy from its interface: where
// it is the first there, and where live rules bring the first cookie, at which nobody has looked. A
// replace cannot take another mode: its report tells.
func (u *up) refusesUnheard() bool {
	if u.at == nil {
		return true
	}
	return len(u.live) > 0 && len(u.at.Base().Cookies) == 0 && !u.at.Current().Asked
}

// Unheard says why nobody may hear the answers of a cookie among live rules on an interface; nil
// where they are heard, or where the policy has a cookie itself.
func Unheard(ctx context.Context, dev string) error {
	d, err := attach.FindDevice(dev)
	if err != nil || unheard(d, store.XDPNative, false) == nil {
		return err
	}
	return generation.TransactOn(ctx, dev, func(_ *store.Store, a *attach.Attachment) error {
		if g := a.Base(); len(g.Cookies) == 0 {
			return unheard(d, g.Mode, g.Asked)
		}
		return nil
	})
}

// prove marks the sources of Live as proven before the program with its rules is in force.
func (u *up) prove(l *loader.Loaded) error {
	m := l.Holding(state.HoldsCookies)
	if m == nil || len(u.proven) == 0 {
		return nil
	}
	clock, err := u.Jiffies()
	if err != nil {
		return err
	}
	return u.WithMemory(m, func(memory []byte) {
		cookie.Prove(memory, u.proven, clock.Now())
	})
}

func describeGreylists(p *codegen.Program) (out []store.CookieInfo) {
	for i := range p.Greylists {
		g := &p.Greylists[i]
		out = append(out, store.CookieInfo{ID: g.Rule.ID, Meter: g.Meter, Always: g.Above == 0})
	}
	return out
}

func describeCookies(p *codegen.Program) (out []store.CookieInfo) {
	for i := range p.Cookies {
		r := p.Cookies[i].Rule
		out = append(out, store.CookieInfo{ID: r.ID, Meter: p.Cookies[i].Meter,
			Always: r.Cookie.Above == 0})
	}
	return out
}
