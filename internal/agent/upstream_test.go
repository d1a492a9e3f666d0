package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/host/upstream"
)

// TestNobodyHoldsWhomTheMachineReliesOn: a forged alert about the gateway, a resolver, or the
// server of a feed put it into a set.
func TestNobodyHoldsWhomTheMachineReliesOn(t *testing.T) {
	dir := t.TempDir()
	k := &fake{sets: map[string]map[netip.Prefix]time.Duration{}}
	a := start(t, dir, k, one+
		`source "drop" feed url "https://feed.example/drop" add to s`+"\n"+
		`source "more" feed url "https://198.51.100.4/drop" add to s`+"\n"+
		`source "cs" crowdsec url "http://[2001:db8:5::5]:8080" key "/k" cleartext add to s`+"\n"+
		`source "r" eve redis "198.51.100.6:6379" list "x" add src_ip to s`+"\n")
	names := map[string]string{"feed.example": "198.51.100.7", "pool.example": "198.51.100.8"}
	a.opts.Lookup = func(_ context.Context, _, name string) ([]netip.Addr, error) {
		addr, known := names[name]
		if !known {
			return nil, errors.New("no answer")
		}
		return []netip.Addr{netip.MustParseAddr(addr)}, nil
	}
	a.opts.Upstream = func() (*upstream.Servers, error) {
		s := upstream.New()
		s.Add("198.51.100.1", "a gateway of this machine")
		s.Add("pool.example", "a time server of this machine")
		return s, nil
	}
	looked := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go func() { defer close(looked); a.rely(ctx) }()
	for a.relied == nil { // the loop is this goroutine
		(<-a.ops)()
	}
	stop()
	<-looked
	write(t, dir+"/eve.json", "198.51.100.1", "198.51.100.4", "2001:db8:5::5", "198.51.100.6",
		"198.51.100.7", "198.51.100.8", "198.51.100.20", "2001:db8:5::6")
	for a.poll(t.Context()) {
	}
	if got := len(k.sets["s"]); got != 2 || a.current().Refused != 6 {
		t.Errorf("in the kernel %v, refused %+v", k.sets["s"], a.current().Refusals)
	}
	var why []string
	for _, r := range a.current().Refusals {
		why = append(why, r.Entry+": "+r.Why)
	}
	slices.Sort(why)
	want := "198.51.100.1: a gateway of this machine, 198.51.100.4: the server of source more, " +
		"198.51.100.6: the server of source r, 198.51.100.7: the server of source drop, feed." +
		"example, 198.51.100.8: a time server of this machine, pool.example, " +
		"2001:db8:5::5: the server of source cs"
	if got := strings.Join(why, ", "); got != want {
		t.Errorf("refused %s", got)
	}
}

// The networks of a CDN in front had to be protected for no source to lease them, and protect
// passes all that they send.
func TestNobodyHoldsWhomADetectorKeeps(t *testing.T) {
	dir := t.TempDir()
	k := &fake{sets: map[string]map[netip.Prefix]time.Duration{}}
	a := start(t, dir, k, one+"detect \"all\" enforce keep { 198.51.100.0/24 }\n")
	write(t, dir+"/eve.json", "198.51.100.1", "203.0.113.1")
	for a.poll(t.Context()) {
	}
	if _, held := k.sets["s"][netip.MustParsePrefix("198.51.100.1/32")]; held ||
		len(k.sets["s"]) != 1 {
		t.Errorf("leased %v", k.sets["s"])
	}
	if s := a.current(); len(s.Refusals) != 1 ||
		s.Refusals[0].Why != `kept by detector "all" of e.levee` {
		t.Errorf("refusals: %+v", s.Refusals)
	}
}
