package contender

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/examples"
	"levee/internal/await"
	"levee/internal/lab"
	"levee/internal/lab/app"
	"levee/internal/lab/labtest"
)

const testPort = 4000

func newSite(t *testing.T) (Site, *lab.Lab) {
	t.Helper()
	l := labtest.New(t)
	app, err := app.Listen(l.Host(lab.Server), testPort, -1, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	})
	return Site{Host: l.Host(lab.Server), Device: "eth0", Application: app}, l
}

// install puts a defence in place until the test ends.
func install(t *testing.T, d Defence, s Site) {
	t.Helper()
	if err := d.Install(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Remove(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func defences() []Defence {
	return []Defence{
		XDPDrop(), XDPRead(),
		Levee(examples.DemoName, examples.Demo), XDPFilter(), NFT(), IPTables(),
		NFTStateful(), IPTablesStateful(), TCDrop(), XDPGenericDrop(), NFTOneRule(testPort),
		IPTablesRaw(testPort),
		IPTablesInput(testPort), SocketFilter(),
		Recvmmsg(), RecvmmsgConntrack(), RecvmmsgNotrack(),
	}
}

func TestEachDefenceIsInstalledTwiceAndLeavesNothing(t *testing.T) {
	s, _ := newSite(t)
	for _, d := range defences() {
		t.Run(d.Name(), func(t *testing.T) {
			for range 2 {
				err := d.Install(t.Context(), s)
				if errors.Is(err, ErrMissing) {
					t.Skip(err)
				}
				if err != nil {
					t.Fatal(err)
				}
				n, err := d.Dropped(t.Context())
				if err != nil || n > 10 { // the lab's own packets, of IPv6 for instance
					t.Errorf("dropped %d, %v before any flood", n, err)
				}
				if err := d.Remove(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The rung beside which a filter's own cost is seen was missing: an empty program reads nothing.
func TestTheReadingProgramDropsEveryPacketAndReadsItsWords(t *testing.T) {
	body := reading()
	loads := 0
	for _, ins := range body {
		if ins.OpCode.Class() == asm.LdXClass && ins.OpCode.Size() == asm.DWord {
			loads++
		}
	}
	if loads != readBytes/8 {
		t.Errorf("%d loads of 8 bytes for %d", loads, readBytes)
	}
	labtest.NeedRoot(t)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, Instructions: body,
		License: "GPL"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, n := range []int{14, 15, 60, 63, 64, 65, 1500} {
		if got, _, err := p.Test(bytes.Repeat([]byte{0xff}, n)); err != nil || got != xdpDropped {
			t.Errorf("%d bytes: %d, %v", n, got, err)
		}
	}
}

// TestEachPlaceDropsItsPortAndNothingElse sends datagrams of both families to the port of the
// application and to another, and looks where they got.
func TestEachPlaceDropsItsPortAndNothingElse(t *testing.T) {
	s, l := newSite(t)
	other, err := app.Listen(s.Host, testPort+1, -1, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}()
	const each = 20
	for _, d := range []Defence{
		NFTOneRule(testPort), IPTablesRaw(testPort), IPTablesInput(testPort), SocketFilter(),
		Recvmmsg(), RecvmmsgConntrack(), RecvmmsgNotrack(), Nothing(),
	} {
		t.Run(d.Name(), func(t *testing.T) {
			install(t, d, s)
			passes := d.Hook() == Application || d.Hook() == noDefence
			before, err := d.Dropped(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			reached, passed := count(t, s.Application), count(t, other)
			labtest.Send(t, l, testPort, each)
			labtest.Send(t, l, testPort+1, each)
			// The other port comes last: once it has all, the first has what it gets.
			await.True(t, "all datagrams to another port come through", func() bool {
				return count(t, other)-passed >= 2*each
			})
			want := uint64(0)
			if passes {
				want = 2 * each
			}
			await.True(t, "the application reads what reaches it", func() bool {
				return count(t, s.Application)-reached >= want
			})
			if got := count(t, s.Application) - reached; got != want {
				t.Errorf("%d datagrams reached the application, want %d", got, want)
			}
			after, err := d.Dropped(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := after - before; d.Hook() != noDefence && got != 2*each {
				t.Errorf("counted %d, want %d", got, 2*each)
			}
		})
	}
}

func count(t *testing.T, s *app.Application) uint64 {
	t.Helper()
	n, err := s.Received()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestNoHookIsLeftBehind: an empty chain is still a hook that each packet of the next rung would
// pass.
func TestNoHookIsLeftBehind(t *testing.T) {
	s, _ := newSite(t)
	for _, d := range defences() {
		if err := d.Install(t.Context(), s); errors.Is(err, ErrMissing) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if err := d.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		out, err := Run(t.Context(), s.Host, nil, "nft", "list", "ruleset")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(out), "hook") {
			t.Errorf("%s left:\n%s", d.Name(), out)
		}
	}
}
