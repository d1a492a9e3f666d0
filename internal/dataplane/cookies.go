package dataplane

import (
	"context"
	"fmt"

	"levee/internal/filter/codegen"
	"levee/internal/filter/cookie"
)

// unheardError is why native XDP cannot answer SYNs.
type unheardError struct{ dev string }

func (e *unheardError) Error() string {
	return fmt.Sprintf("%s is a veth device, which hands the answers of a cookie in native XDP to "+
		"its other end only if that has an XDP program too", e.dev)
}

// refuseUnheard refuses a policy with cookies for native XDP where nobody would hear the answers
// (veth_xdp_flush of drivers/net/veth.c). Who asks for that mode has seen to it. A replace cannot
// take another: see Unheard. Live rules nobody has looked at.
func (u *up) refuseUnheard(p *codegen.Program, t try) error {
	if t.mode != XDPNative || len(p.Cookies) == 0 || !u.dev.keepsAnswers() || u.asked(t) ||
		u.at != nil && (len(u.live) == 0 || len(u.at.base().Cookies) > 0) {
		return nil
	}
	return &unheardError{u.dev.name}
}

// asked says whether somebody has asked for the mode, of this policy or the first one here.
func (u *up) asked(t try) bool {
	return u.Mode == t.mode || u.at != nil && u.at.current().Asked
}

// LiveUnheard says why nobody may hear the answers of a cookie among live rules on an interface;
// nil where they are heard.
func LiveUnheard(ctx context.Context, dev string) error {
	d, err := findDevice(dev)
	if err != nil || !d.keepsAnswers() {
		return err
	}
	return transactOn(ctx, dev, func(_ *store, a *attachment) error {
		if g := a.base(); g.Mode != XDPNative || g.Asked || len(g.Cookies) > 0 {
			return nil
		}
		return &unheardError{dev}
	})
}

func (d *device) keepsAnswers() bool { return d.driver == "driver veth" }

// Unheard says why nobody may hear the answers of cookies that are in force on an interface by
// native XDP; nil where they are heard.
func Unheard(dev string) error {
	d, err := findDevice(dev)
	if err != nil || !d.keepsAnswers() {
		return nil
	}
	return &unheardError{dev}
}

// prove has the sources of Live count as proven before the program of its rules is in force.
func (u *up) prove(l *loaded) error {
	m := l.holding(codegen.Cookies)
	if m == nil || len(u.proven) == 0 {
		return nil
	}
	clock, err := u.jiffies()
	if err != nil {
		return err
	}
	return u.withMemory(m, func(memory []byte) {
		cookie.Prove(memory, u.proven, clock.Now())
	})
}

// cookieInfo describes a cookie.
type cookieInfo struct {
	ID    string `json:"id"` // of its slot
	Meter int    `json:"meter"`
}

func describeCookies(p *codegen.Program) (out []cookieInfo) {
	for i := range p.Cookies {
		out = append(out, cookieInfo{p.Cookies[i].Rule.ID, p.Cookies[i].Meter})
	}
	return out
}

// CookieState is what the cookies of a policy know.
type CookieState struct {
	cookie.Stats
	Answering []string `json:"answering"` // identities of the rules that answer SYNs now
}

// tellCookies reads the memory of cookies, nil if the policy has none.
func (s *store) tellCookies(a *attachment) (*CookieState, error) {
	return tellOne(s, a, codegen.Cookies, func(memory []byte, now uint64) CookieState {
		state := CookieState{cookie.Read(memory, now), []string{}}
		for _, k := range a.current().Cookies {
			if cookie.Answering(memory, k.Meter, now) {
				state.Answering = append(state.Answering, k.ID)
			}
		}
		return state
	})
}
