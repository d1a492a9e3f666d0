package agent

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"time"

	places "levee/internal/agent/source"
	"levee/internal/host/upstream"
)

// Times of looking up on whom the machine and the agent rely.
const (
	upstreamFor = 30 * time.Second
	relyEvery   = 5 * time.Minute
	relyLookup  = 5 * time.Second
	// names of pools have other addresses at each look, and a client stays with one of them
	relyFor = 24 * time.Hour
)

// relied is an address that a name had.
type relied struct {
	what  string
	until time.Time
}

// servers returns those on whom the machine and the agent rely: what cannot be read is told, and
// the rest is kept.
func (a *Agent) servers() (*upstream.Servers, error) {
	s := upstream.New()
	if a.opts.Upstream != nil {
		if a.upstream == nil || time.Since(a.upstreamRead) > upstreamFor {
			a.upstream, a.upstreamErr = a.opts.Upstream()
			a.upstreamRead = time.Now()
		}
		maps.Copy(s.Addresses, a.upstream.Addresses)
		maps.Copy(s.Names, a.upstream.Names)
	}
	for _, p := range a.policies {
		for _, of := range p.Sources {
			if server := places.Input(of.Place.Input).Server; server != nil {
				if host := server(&of.Place); host != "" {
					s.Add(host, "the server of source "+of.Name)
				}
			}
		}
		for _, l := range p.Lists {
			switch {
			case l.CrowdSec != nil:
				s.AddURL(l.CrowdSec.URL, "the server of source "+l.Name)
			case l.Feed != nil && l.Feed.URL != "":
				s.AddURL(l.Feed.URL, "the server of source "+l.Name)
			}
		}
	}
	if a.opts.Notifier != nil {
		for name, host := range a.opts.Notifier.Hosts() {
			s.Add(host, "the server of notification "+name)
		}
	}
	return s, a.upstreamErr
}

// rely looks up the names of those servers until ctx ends. A name that has no answer keeps what it
// had: whoever needs it says what is wrong.
func (a *Agent) rely(ctx context.Context) {
	for {
		var s *upstream.Servers
		a.in(ctx, func() { s, _ = a.servers() }) // keeper tells of errors
		if s == nil {
			return
		}
		found := map[netip.Addr]relied{}
		for name, what := range s.Names {
			for _, addr := range a.addressesOf(ctx, name) {
				found[addr] = relied{what + ", " + name, time.Now().Add(relyFor)}
			}
		}
		a.in(ctx, func() {
			for addr, r := range a.relied {
				if _, again := found[addr]; !again && time.Now().Before(r.until) {
					found[addr] = r
				}
			}
			a.relied, a.protects = found, nil
		})
		if !a.pause(ctx, relyEvery) {
			return
		}
	}
}

func (a *Agent) addressesOf(ctx context.Context, name string) (out []netip.Addr) {
	ctx, cancel := context.WithTimeout(ctx, relyLookup)
	defer cancel()
	look := a.opts.Lookup
	if look == nil {
		look = net.DefaultResolver.LookupNetIP
	}
	all, err := look(ctx, "ip", name)
	if err != nil {
		return nil
	}
	for _, addr := range all {
		if addr = addr.Unmap(); !addr.IsLoopback() && !addr.IsUnspecified() {
			out = append(out, addr)
		}
	}
	return out
}
