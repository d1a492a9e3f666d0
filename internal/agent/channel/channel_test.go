package channel

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"levee/internal/agent/part"
	"levee/internal/monitor/mpegts"
)

// follower is one whose streams are made by a function of the time.
type follower struct {
	streams func() []mpegts.Stream
	gone    atomic.Bool
}

func (f *follower) Here() error {
	if f.gone.Load() {
		return errors.New("the interface is gone")
	}
	return nil
}
func (f *follower) Read() ([]mpegts.Stream, mpegts.Totals, error) {
	return f.streams(), mpegts.Totals{}, nil
}
func (f *follower) Forget([]mpegts.Flow) error { return nil }
func (f *follower) Close() error               { return nil }

func to(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// TestAStreamWithoutSignalIsAnAlarm: one stream stops for a while and another loses packets; a
// group that was asked for never comes.
func TestAStreamWithoutSignalIsAnAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []string
		reg := part.NewRegister(func(c part.Change, s part.Status) {
			changes = append(changes, map[part.Change]string{part.Failed: "failed: ",
				part.Differs: "differs: ", part.Recovered: "recovered: ",
				part.Gone: "gone: "}[c]+s.Sentence())
		})
		start := time.Now()
		clock := func() time.Duration { return time.Hour + time.Since(start) }
		streams := func() []mpegts.Stream {
			now := time.Since(start)
			last := now
			if now > 10*time.Second && now < 100*time.Second {
				last = 10 * time.Second
			}
			lost := uint64(0)
			if now > 110*time.Second {
				lost = 7
			}
			return []mpegts.Stream{
				{Flow: mpegts.Flow{Src: to("192.0.2.1:5000"), Dst: to("239.1.1.1:5004")},
					First: time.Hour, Last: time.Hour + last, Datagrams: 1},
				{Flow: mpegts.Flow{Src: to("192.0.2.1:5000"), Dst: to("239.1.1.2:5004")},
					First: time.Hour, Last: time.Hour + now, Datagrams: 1,
					Counts: mpegts.Counts{Discontinuities: lost / 7, Missing: lost}},
			}
		}
		w := &Watch{Config: Config{Dev: "eth1", Groups: []netip.AddrPort{to("239.1.1.1:5004"),
			to("239.1.1.2:5004"), netip.AddrPortFrom(netip.MustParseAddr("239.9.9.9"), 0)}},
			Parts: reg, Clock: clock,
			Open: func(*Config) (Follower, error) { return &follower{streams: streams}, nil }}
		ctx, stop := context.WithCancel(t.Context())
		go w.Run(ctx)
		for range 140 {
			time.Sleep(time.Second)
			synctest.Wait()
			reg.Look()
		}
		for i, want := range []string{
			"failed: transport stream 239.9.9.9 on eth1 does not work: no signal: nothing has " +
				"come; to do: levee monitor mpegts eth1 --group 239.9.9.9",
			"failed: transport stream 239.1.1.1:5004 on eth1 does not work: no signal: nothing " +
				"comes any more; to do: levee monitor mpegts eth1 --group 239.1.1.1:5004",
			"recovered: transport stream 239.1.1.1:5004",
			"failed: transport stream 239.1.1.2:5004 on eth1 does not work: 1 discontinuity in " +
				"a second, 7 packets missing",
			"recovered: transport stream 239.1.1.2:5004",
		} {
			if !slices.ContainsFunc(changes, func(s string) bool {
				return strings.HasPrefix(s, want)
			}) {
				t.Errorf("%d: no %q in %q", i, want, changes)
			}
		}
		for _, s := range changes {
			if strings.HasPrefix(s, "differs") { // and is in the log each minute
				t.Errorf("the same alarm is told again: %q", s)
			}
		}
		stop()
		synctest.Wait()
	})
}

func TestAnInterfaceThatCannotBeFollowedIsAnAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := part.NewRegister(func(part.Change, part.Status) {})
		opened := 0
		f := &follower{streams: func() []mpegts.Stream { return nil }}
		w := &Watch{Config: Config{Dev: "eth1"}, Parts: reg,
			Clock: func() time.Duration { return time.Hour },
			Open: func(*Config) (Follower, error) {
				if opened++; opened == 1 {
					return nil, errors.New("there is no interface")
				}
				return f, nil
			}}
		ctx, stop := context.WithCancel(t.Context())
		go w.Run(ctx)
		synctest.Wait()
		if s := reg.List(); len(s) != 1 || s[0].State != part.Fails ||
			!strings.Contains(s[0].Error, "no interface") {
			t.Errorf("%+v", s)
		}
		time.Sleep(again + 2*every)
		synctest.Wait()
		if s := reg.List(); len(s) != 1 || s[0].State != part.Works {
			t.Errorf("%+v", s)
		}
		f.gone.Store(true)
		time.Sleep(2 * every)
		synctest.Wait()
		if s := reg.List(); len(s) != 1 || s[0].State != part.Fails {
			t.Errorf("%+v", s)
		}
		stop()
		synctest.Wait()
	})
}

// TestStreamsOfTheNetworkHaveFewParts: whoever sends to ten thousand groups does not fill the
// agent's memory.
func TestStreamsOfTheNetworkHaveFewParts(t *testing.T) {
	reg := part.NewRegister(func(part.Change, part.Status) {})
	w := &Watch{Config: Config{Dev: "eth1"}, Parts: reg, known: map[netip.AddrPort]*known{}}
	now := &mpegts.Look{Clock: time.Hour, At: time.Now()}
	at := netip.MustParseAddr("239.0.0.1")
	for range 10_000 {
		now.Streams = append(now.Streams, mpegts.Stream{Last: time.Hour,
			Flow: mpegts.Flow{Dst: netip.AddrPortFrom(at, 5004)}})
		at = at.Next()
	}
	w.look(now, 0)
	if n := len(reg.List()); n != MostGroups {
		t.Errorf("%d parts, want %d", n, MostGroups)
	}
	now.Clock += forget + time.Second
	w.end(now)
	if n := len(now.Gone(forget, nil, nil)); n != 10_000 || len(reg.List()) != 0 {
		t.Errorf("%d streams are forgotten, %d parts stay", n, len(reg.List()))
	}
}

func TestParse(t *testing.T) {
	all, err := Parse([]string{"eth1=239.1.1.1:5004", "eth2", "eth1=ff3e::1"})
	if err != nil || len(all) != 2 || len(all[0].Groups) != 2 || all[1].Groups != nil {
		t.Errorf("%+v, %v", all, err)
	}
	for _, wrong := range [][]string{{"=239.1.1.1"}, {"eth1=nowhere"}, {"eth1", "eth1=239.1.1.1"},
		{"eth1="}} {
		if _, err := Parse(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}
