package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/agent/feed"
	"levee/internal/agent/ledger"
	"levee/internal/agent/part"
	"levee/internal/dataplane/sets"
	"levee/internal/kernel"
)

var addresses = flag.Int("addresses", 20_000, "how many new addresses the test of a backlog has")

// counting is a kernel that counts what it is told and asked.
type counting struct {
	*fake
	entries, largest int
}

func (k *counting) count(n int) { k.entries, k.largest = k.entries+n, max(k.largest, n) }

func (k *counting) Raise(ctx context.Context, set string, entries []sets.Entry, now time.Time) (
	raised, left int, err error) {
	k.count(len(entries))
	return k.fake.Raise(ctx, set, entries, now)
}

func (k *counting) Leases(ctx context.Context, set string, entries []sets.Entry) ([]sets.Entry,
	error) {
	k.count(len(entries))
	return k.fake.Leases(ctx, set, entries)
}

// TestABacklogOfNewAddressesCostsEachOnce: with each batch all before it were looked at again, so
// that 80,000 took 19 s and a million never ended. The kernel is told of each address once, and
// asked at most once, in batches that are bounded; between two of them others have their turn, and
// status is answered. -addresses 1000000 gives a figure.
func TestABacklogOfNewAddressesCostsEachOnce(t *testing.T) {
	dir, n := t.TempDir(), *addresses
	f, err := os.Create(dir + "/eve.json")
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	first := netip.MustParseAddr("198.18.0.0").As4()
	for i := range n {
		a := first
		a[1], a[2], a[3] = a[1]+byte(i>>16), byte(i>>8), byte(i)
		fmt.Fprintf(w, "{\"src_ip\":\"%s\"}\n", netip.AddrFrom4(a))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	k := &counting{fake: &fake{sets: map[string]map[netip.Prefix]time.Duration{}}}
	a := start(t, dir, k, one)
	begun, turns, longest, before := time.Now(), 0, time.Duration(0), uint64(0)
	for more := true; more; turns++ {
		at := time.Now()
		more = a.poll(t.Context())
		s := a.current().Sources[0] // which whoever asks for the status gets
		if s.Events-before > 4*batchAtOnce {
			t.Fatalf("%d events in one turn", s.Events-before)
		}
		before, longest = s.Events, max(longest, time.Since(at))
	}
	if len(k.sets["s"]) != n {
		t.Errorf("%d of %d are in force", len(k.sets["s"]), n)
	}
	if k.entries > 2*n || k.largest > 2*batchAtOnce {
		t.Errorf("the kernel was told of %d entries for %d, up to %d at once", k.entries, n,
			k.largest)
	}
	t.Logf("%d addresses in %.1f s, %d turns of up to %d ms", n, time.Since(begun).Seconds(), turns,
		longest.Milliseconds())
}

// TestABacklogKeepsNoOtherSourceWaiting: what the sources before have read in a turn is written as
// soon as it is a batch, so that the turn goes on to the others.
func TestABacklogKeepsNoOtherSourceWaiting(t *testing.T) {
	dir, text := t.TempDir(), ""
	a := netip.MustParseAddr("198.18.0.0")
	for i, size := range []int{readAtOnce, readAtOnce, 32} {
		name := fmt.Sprintf("%s/%d.log", dir, i)
		var lines bytes.Buffer
		for lines.Len() < size-32 || lines.Len() == 0 {
			fmt.Fprintf(&lines, "{\"a\":\"%s\"}\n", a)
			a = a.Next()
		}
		if err := os.WriteFile(name, lines.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("source \"s%d\" json file %q add a to s lease 1h\n", i, name)
	}
	k := &counting{fake: &fake{sets: map[string]map[netip.Prefix]time.Duration{}}}
	agent := start(t, dir, k, text)
	agent.poll(t.Context())
	of := agent.current().Sources
	if n := of[0].Events + of[1].Events; n < batchAtOnce {
		t.Fatalf("%d events of the first two: too few to keep the third waiting", n)
	}
	if of[2].Events != 1 {
		t.Errorf("of the third source %d events were read", of[2].Events)
	}
	n := int(of[0].Events + of[1].Events + 1)
	if k.largest >= 2*batchAtOnce || len(k.sets["s"]) < n {
		t.Errorf("%d of %d are in force, up to %d were written at once", len(k.sets["s"]), n,
			k.largest)
	}
}

// TestAStateDirectoryThatIsReadOnly: the agent did not start. It goes on without its ledger, says
// what to do, and takes what came meanwhile once it can be written.
func TestAStateDirectoryThatIsReadOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	dir := t.TempDir()
	k := &fake{sets: map[string]map[netip.Prefix]time.Duration{}}
	a := start(t, dir, k, one)
	a.ledger.Close()
	a.closeSources()
	a.sources[0].inlet = nil
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("levee-test", state, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(state, unix.MNT_DETACH) })
	a.ledger, a.opts.Ledger = &ledger.Ledger{}, filepath.Join(state, "agent.db")
	write(t, dir+"/eve.json", "198.51.100.1")
	if err := a.openLedger(0); err != nil {
		t.Fatal(err)
	}
	a.poll(t.Context())
	a.compare(t.Context())
	got := stateOf(t, a, part.File, dir+"/agent.db")
	if got.State != part.Fails || !strings.Contains(got.Do, "findmnt -T "+state) {
		t.Errorf("the ledger: %+v", got)
	}
	if n := a.current().Sources[0].Events; n != 0 {
		t.Errorf("%d events were read, and lost", n)
	}
	if err := unix.Mount("", state, "", unix.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	again(a)
	if err := a.openLedger(0); err != nil {
		t.Fatal(err)
	}
	for a.poll(t.Context()) {
	}
	if got := stateOf(t, a, part.File, dir+"/agent.db"); got.State != part.Works ||
		len(k.sets["s"]) != 1 {
		t.Errorf("then %+v, in force %v", got, k.sets["s"])
	}
	if err := unix.Mount("", state, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err == nil {
		t.Error("a ledger that is open for writing was made read-only")
	} else if !errors.Is(err, unix.EBUSY) {
		t.Error(err)
	}
	a.ledger.Close()
}

// TestAnyJailOfFail2banIsAnOrigin: names of more than 23 bytes, with blanks or slashes, failed at
// each ban.
func TestAnyJailOfFail2banIsAnOrigin(t *testing.T) {
	k := &fake{sets: map[string]map[netip.Prefix]time.Duration{}}
	a := start(t, t.TempDir(), k, "")
	loop(t, a)
	for i, c := range []struct {
		jail    string
		refused bool
	}{
		{"sshd", false}, {"apache-fakegooglebot-for-all-vhosts", false}, {"my jail", false},
		{"web/example.org", false}, {"größe", false}, {strings.Repeat("j", 119), false},
		{strings.Repeat("j", 120), true}, {"a:b", true}, {"a\nb", true}, {"a ", true},
		{"\x80", true},
	} {
		in := &AddInput{}
		in.Body.Set, in.Body.Lease = "s", "10m"
		in.Body.Entries = []string{fmt.Sprintf("198.51.100.%d", i)}
		in.Body.Origin = "fail2ban." + c.jail
		_, err := LeaseOnce(t.Context(), a.ledger, a.opts, in)
		if (err != nil) != c.refused {
			t.Errorf("%q: %v", c.jail, err)
		}
		if err == nil && k.sets["s"][netip.MustParsePrefix(in.Body.Entries[0]+"/32")] == 0 {
			t.Errorf("%q: not in force", c.jail)
		}
	}
}

// TestAListOfNewAddressesCostsEachOnce: of a list each address was looked for four times in the
// ledger, and stood in three tables beside it: a million took 8 s of a core. -addresses 1000000
// gives a figure, with the reading of the list and without the kernel.
func TestAListOfNewAddressesCostsEachOnce(t *testing.T) {
	dir, n := t.TempDir(), *addresses
	f, err := os.Create(dir + "/list")
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for i := range uint32(n) {
		a := 0x10000000 + i*2654435761%(1<<28) // in no order, none twice
		fmt.Fprintln(w, netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8),
			byte(a)}))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	k := &counting{fake: &fake{sets: map[string]map[netip.Prefix]time.Duration{}}}
	a := start(t, dir, k, oneFeed)
	loop(t, a)
	l := a.lists[0]
	begun, cpu := time.Now(), kernel.ProcessorTime()
	fetcher := feed.New(l.Feed, max(n, l.Set.Max), "test")
	defer fetcher.Close()
	r, err := fetcher.Fetch(t.Context(), feed.State{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.fed(t.Context(), l, r, nil); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d addresses in %.1f s, %.2f s of a core", n, time.Since(begun).Seconds(),
		(kernel.ProcessorTime() - cpu).Seconds())
	if len(k.sets["s"]) != n || a.ledger.Leases() != n {
		t.Errorf("%d and %d of %d are in force and in the ledger", len(k.sets["s"]),
			a.ledger.Leases(), n)
	}
	if k.entries > 2*n || k.largest > atOnce {
		t.Errorf("the kernel was told of %d entries for %d, up to %d at once", k.entries, n,
			k.largest)
	}
}
