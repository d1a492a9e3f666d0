package agent

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/agent/inforce"
	"levee/internal/agent/part"
	"levee/internal/agent/pubsub"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

var (
	day = flag.Duration("day", 20*time.Minute,
		"how long the agent is given trouble, in time of its own")
	days = flag.Uint64("days", 1, "how many such days, with other troubles")
)

// Times of a day of trouble.
const (
	within   = 15 * time.Second // of a fifth failure, an address is held
	watchdog = 10 * time.Second
)

// TestADayOfTrouble has an agent read a log while its disk fills and is emptied, the log is
// rotated, truncated, written anew and gone, the clock of those who write it steps, and the agent
// ends and begins again, with a ledger of which bytes have changed. Whoever fails five times while
// all is well is held soon after; nobody else ever is; a disk that is full is an alarm; and the
// agent answers its watchdog all the while.
func TestADayOfTrouble(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a small disk")
	}
	disk := t.TempDir()
	if err := unix.Mount("levee", disk, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	files, routines := descriptors(t), runtime.NumGoroutine()
	for seed := range *days {
		log := filepath.Join(t.TempDir(), "auth.log")
		synctest.Test(t, func(t *testing.T) {
			d := &aDay{t: t, disk: disk, log: log,
				rnd: rand.New(rand.NewPCG(7, seed)), due: map[string]time.Time{},
				k: &fake{sets: map[string]map[netip.Prefix]time.Duration{}}}
			d.run()
		})
		if err := os.Remove(filepath.Join(disk, "agent.db")); err != nil {
			t.Fatal(err)
		}
	}
	if n := descriptors(t); n > files+2 {
		t.Errorf("%d open files, %d before", n, files)
	}
	if n := runtime.NumGoroutine(); n > routines+2 {
		t.Errorf("%d goroutines, %d before", n, routines)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// aDay is an agent with its troubles.
type aDay struct {
	t         *testing.T
	disk, log string
	rnd       *rand.Rand
	k         *fake
	parts     *part.Register
	stop      context.CancelFunc
	ended     chan error
	beat      atomic.Int64 // the watchdog heard of the agent last, in Unix time

	next     int                  // address
	due      map[string]time.Time // who failed five times, and when
	held     map[string]bool      // of these
	story    map[string]string    // of addresses
	offset   time.Duration        // of the clock of those who write the log
	troubled time.Time            // until when something is wrong, or was a moment ago
	full     time.Time            // since when the disk is full; zero: it is not
	after    func()               // ends what is wrong
	seen     map[string]int       // troubles
}

func (d *aDay) run() {
	d.seen, d.held = map[string]int{}, map[string]bool{}
	d.story = map[string]string{}
	d.write("")
	d.begin()
	for end := time.Now().Add(*day); time.Now().Before(end); {
		d.second()
	}
	for d.after != nil {
		d.second()
	}
	d.troubled = time.Now()
	d.wait(part.Patience)
	d.fail(d.address(), 5, true)
	d.wait(within + time.Second)
	d.parts.Look()
	for _, p := range d.parts.List() {
		if p.State == part.Fails {
			d.t.Errorf("at last: %s", p.Sentence())
		}
	}
	d.finish()
	d.t.Logf("%v: %d of %d held, troubles %v", *day, len(d.held), d.next, d.seen)
	if len(d.held) == 0 {
		d.t.Error("nobody was held")
	}
}

func (d *aDay) wait(long time.Duration) {
	for end := time.Now().Add(long); time.Now().Before(end); {
		time.Sleep(time.Second)
		synctest.Wait()
		d.check()
	}
}

// begin starts an agent.
func (d *aDay) begin() {
	const text = "set s = dynamic(max 10000000)\ndrop from s\ndefault pass\n" +
		`source "ssh" lines file "LOG" match sshd-failed after 5 within 60s add addr to s lease 10m` +
		"\n"
	p, ds := resolve.Parse("e.levee", []byte(strings.ReplaceAll(text, "LOG", d.log)), nil)
	if p == nil {
		d.t.Fatal(ds)
	}
	d.parts = NewParts(context.Background(), &pubsub.Hub{}, func(string, ...any) {})
	ctx, stop := context.WithCancel(d.t.Context())
	ended := make(chan error, 1)
	d.stop, d.ended = stop, ended
	d.beat.Store(time.Now().Unix())
	opts := Options{Kernel: d.k, Ledger: filepath.Join(d.disk, "agent.db"), FromStart: true,
		Interval: time.Second, Watchdog: watchdog, Parts: d.parts,
		Policies: func(context.Context) ([]*policy.Policy, error) {
			return []*policy.Policy{p}, nil
		},
		InForce: func(context.Context) (string, error) { return "", nil },
		Counted: new(inforce.Watcher).Counted,
		Others: func(context.Context) (map[netip.Prefix]string, error) {
			return nil, nil
		},
		Notify: func(state string) error {
			if state == "WATCHDOG=1" {
				d.beat.Store(time.Now().Unix())
			}
			return nil
		},
		Log: func(string, ...any) {}}
	go func() { ended <- Run(ctx, opts, nil) }()
	synctest.Wait()
}

// finish ends the agent.
func (d *aDay) finish() {
	d.stop()
	if err := <-d.ended; err != nil {
		d.t.Errorf("the agent ended with %v", err)
	}
	d.ended = nil
}

func (d *aDay) second() {
	time.Sleep(time.Second)
	synctest.Wait()
	if d.rnd.IntN(15) == 0 {
		d.fail(d.address(), 5, true)
	}
	if d.rnd.IntN(15) == 0 {
		d.fail(d.address(), 4, false) // once, so that it is never held
	}
	if d.after == nil && time.Now().After(d.troubled) && d.rnd.IntN(20) == 0 {
		d.trouble()
	} else if d.after != nil && time.Now().After(d.troubled) {
		d.after()
		d.after = nil
		d.troubled = time.Now().Add(time.Minute) // until it is as it was
	}
	d.check()
}

func (d *aDay) address() string {
	d.next++
	n := d.next
	return netip.AddrFrom4([4]byte{198, 18 + byte(n>>16), byte(n >> 8), byte(n)}).String()
}

// fail has an address fail in the log. One that fails often is due.
func (d *aDay) fail(addr string, times int, due bool) {
	var b strings.Builder
	for range times {
		b.WriteString(time.Now().Add(d.offset).Format("2006-01-02T15:04:05-07:00") +
			" host sshd[7]: Failed password for root from " + addr + " port 4242 ssh2\n")
	}
	d.story[addr] = fmt.Sprintf("failed %d times at %v, clock %v", times, time.Now(), d.offset)
	if d.write(b.String()) && due {
		d.due[addr] = time.Now()
	}
}

// write appends to the log, if it is there.
func (d *aDay) write(text string) bool {
	f, err := os.OpenFile(d.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err == nil
}

// check holds the agent to what it promises.
func (d *aDay) check() {
	synctest.Wait()
	now := time.Now()
	select {
	case err := <-d.ended:
		d.t.Fatalf("the agent has ended: %v", err)
	default:
	}
	if heard := now.Sub(time.Unix(d.beat.Load(), 0)); d.ended != nil && heard > watchdog {
		d.t.Fatalf("the watchdog has heard nothing for %v", heard)
	}
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	for p := range d.k.sets["s"] {
		addr := p.Addr().String()
		if _, ok := d.due[addr]; !ok && !d.held[addr] {
			d.t.Fatalf("%s is held at %v, and %s: troubles %v", addr, now, d.story[addr], d.seen)
		}
		d.held[addr] = true
		delete(d.due, addr)
	}
	for addr, since := range d.due {
		switch {
		case now.Sub(since) <= within:
		case !d.full.IsZero() && since.After(d.full):
			// The ledger may have room in its file; if not, that is told.
			if len(part.Failing(d.parts.List())) == 0 {
				d.t.Fatalf("%s is not held, the disk is full, and there is no alarm", addr)
			}
		case since.Before(d.troubled): // what was wrong then may have taken it
			if now.Sub(since) > 20*time.Minute {
				delete(d.due, addr)
			}
		default:
			d.t.Fatalf("%s has failed five times at %v, and is not held at %v: troubles %v", addr,
				since, now, d.seen)
		}
	}
}

// trouble begins something.
func (d *aDay) trouble() {
	lasts := time.Duration(5+d.rnd.IntN(120)) * time.Second
	var name string
	var do func() (after func())
	switch d.rnd.IntN(8) {
	case 0:
		name, do = "disk full", d.fill
	case 1:
		name = "rotated"
		do = func() func() { d.must(os.Rename(d.log, d.log+".1")); d.first(); return nil }
	case 2:
		name = "truncated"
		do = func() func() { d.must(os.Truncate(d.log, 0)); d.first(); return nil }
	case 3:
		name = "written anew"
		do = func() func() {
			text, err := os.ReadFile(d.log)
			d.must(err)
			d.must(os.WriteFile(d.log+"~", bytes.ReplaceAll(text, []byte("root"), []byte("toor")),
				0o600))
			d.must(os.Rename(d.log+"~", d.log))
			return nil
		}
	case 4:
		name = "gone"
		do = func() func() {
			d.must(os.Rename(d.log, d.log+"-away"))
			d.must(os.Mkdir(d.log, 0o700))
			return func() {
				d.must(os.Remove(d.log))
				d.must(os.Rename(d.log+"-away", d.log))
			}
		}
	case 5:
		name = "clock"
		do = func() func() {
			d.offset = time.Duration(d.rnd.IntN(7200)-3600) * time.Second
			// Written anew, events of times to come could not be told from new ones.
			return func() { d.offset = 0; d.must(os.Truncate(d.log, 0)); d.first() }
		}
	case 6:
		name = "garbage"
		do = func() func() {
			d.write(strings.Repeat("\x00\xff", d.rnd.IntN(1<<20)) + "\n")
			return nil
		}
	default:
		name, do = "restart", d.restart
	}
	d.seen[name]++
	d.t.Logf("%v: %s for %v", time.Now(), name, lasts)
	d.troubled = time.Now().Add(lasts)
	if d.after = do(); d.after == nil {
		d.troubled = time.Now().Add(2 * time.Second)
	}
}

// first begins a log, so that what comes is not all of one second: written anew, that could not be
// told from what a rotation brings.
func (d *aDay) first() { d.fail(d.address(), 1, false) }

// fill fills the disk.
func (d *aDay) fill() (after func()) {
	name := filepath.Join(d.disk, "filler")
	f, err := os.Create(name)
	d.must(err)
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) {
		d.t.Fatal(err)
	}
	d.full = time.Now()
	return func() {
		d.full = time.Time{}
		d.must(os.Remove(name))
	}
}

// restart ends the agent, changes its ledger at times, and has it begin again.
func (d *aDay) restart() (after func()) {
	d.finish()
	if d.rnd.IntN(2) == 0 {
		d.seen["byte changed"]++
		f, err := os.OpenFile(filepath.Join(d.disk, "agent.db"), os.O_RDWR, 0)
		d.must(err)
		defer f.Close()
		st, err := f.Stat()
		d.must(err)
		var b [1]byte
		at := d.rnd.Int64N(st.Size())
		_, err = f.ReadAt(b[:], at)
		d.must(err)
		b[0] ^= 1 << d.rnd.IntN(8)
		_, err = f.WriteAt(b[:], at)
		d.must(err)
	}
	return d.begin
}

func (d *aDay) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(fmt.Errorf("%w; troubles %v", err, d.seen))
	}
}
