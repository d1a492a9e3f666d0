package flood

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/bench"
	"levee/internal/lab/contender"
	"levee/internal/lab/labtest"
)

// newTestLab is a lab for single windows.
func newTestLab(t *testing.T) *Lab {
	t.Helper()
	labtest.NeedRoot(t)
	o := &Options{Options: bench.Options{Window: 50 * time.Millisecond, Rounds: bench.MinRounds},
		Warmup: 20 * time.Millisecond}
	if err := o.Complete(Many); err != nil {
		t.Fatal(err)
	}
	l, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := l.Listen(Port, true); err != nil {
		t.Fatal(err)
	}
	return l
}

// comparison is of six rounds of UDP, with a rung for each name; it also gives the first.
func comparison(names ...string) (*Comparison, *Rung) {
	c := &Comparison{Rounds: bench.MinRounds, Families: []string{IPv4},
		Traffic: []Traffic{{Name: "udp", Family: IPv4}}}
	for _, name := range names {
		c.Rungs = append(c.Rungs, &Rung{Name: name})
	}
	return c, c.Rungs[0]
}

func TestAPacketSocketIsNoticedWhileMeasuring(t *testing.T) {
	l := newTestLab(t)
	var fd int
	err := l.Server.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	wantInvalid(t, l, contender.XDPDrop(), "1 packet sockets are open")
}

func TestARungThatDropsNothingGetsNoFigure(t *testing.T) {
	wantInvalid(t, newTestLab(t), contender.Nothing(), "the rung let")
}

// inWrongPlace says that it is an XDP program, and is none.
type inWrongPlace struct{ contender.Defence }

func (inWrongPlace) Hook() contender.Hook { return contender.XDP }

func TestAWrongHookIsNoticed(t *testing.T) {
	wantInvalid(t, newTestLab(t), inWrongPlace{contender.NFT()},
		"wrong hook mode: XDP on the receiver is none, not native")
}

// miscounter tells half of what it dropped.
type miscounter struct{ contender.Defence }

func (m miscounter) Dropped(ctx context.Context) (uint64, error) {
	n, err := m.Defence.Dropped(ctx)
	return n / 2, err
}

func TestARungThatMiscountsGetsNoFigure(t *testing.T) {
	wantInvalid(t, newTestLab(t), miscounter{contender.XDPDrop()},
		"dropped by the rung's own counter")
}

func TestARungThatLostARoundGetsAnother(t *testing.T) {
	l := newTestLab(t)
	l.Budget, l.Attempts = 20*time.Second, 1
	c, g := comparison("tc ingress")
	c.Traffic, g.Defence = Floods([]string{"udp"}, IPv4, l.In()), contender.TCDrop()
	for round := range bench.MinRounds - 1 {
		w := sound()
		w.Family, w.Traffic, w.Round = IPv4, "udp", round
		w.judge()
		g.Windows = append(g.Windows, w)
	}
	if err := l.makeUp(t.Context(), c, time.Now()); err != nil {
		t.Fatal(err)
	}
	if last := g.Windows[len(g.Windows)-1]; len(g.Windows) < bench.MinRounds ||
		last.Round < bench.MinRounds || last.Received == 0 {
		t.Errorf("%d windows, the last of round %d with %d packets", len(g.Windows), last.Round,
			last.Received)
	}
}
