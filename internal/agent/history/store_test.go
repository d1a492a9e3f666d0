package history

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// naive keeps every second as it was given, and answers queries by looking at all of them.
type naive []Second

func (n naive) query(q Query, begin, step int64, points int) map[Key][]float32 {
	out := map[Key][]float32{}
	observed := make([]float64, points)
	row := func(k Key) []float32 {
		if out[k] == nil {
			out[k] = make([]float32, points)
			for i := range out[k] {
				out[k][i] = float32(math.NaN())
			}
		}
		return out[k]
	}
	sums := map[Key][]float64{}
	for _, sec := range n {
		i := int((sec.Unix - begin) / step)
		if sec.Unix < begin || i >= points {
			continue
		}
		observed[i]++
		for _, a := range sec.Amounts {
			if a.Kind != q.Kind || q.Dev != "" && q.Dev != a.Dev {
				continue
			}
			row(a.Key)
			if sums[a.Key] == nil {
				sums[a.Key] = make([]float64, points)
				for j := range sums[a.Key] {
					sums[a.Key][j] = math.NaN()
				}
			}
			v := float64(a.Packets)
			if q.Bytes {
				v = float64(a.Bytes)
			}
			switch was := sums[a.Key][i]; {
			case math.IsNaN(was):
				sums[a.Key][i] = v
			case q.Peak:
				sums[a.Key][i] = max(was, v)
			default:
				sums[a.Key][i] += v
			}
		}
	}
	for k, all := range sums {
		for i, v := range all {
			if !q.Peak {
				v /= max(1, observed[i])
			}
			out[k][i] = float32(v)
		}
	}
	return out
}

func rule(dev, id string) Series {
	return Series{Key: Key{dev, Rule, id}, Label: "l" + id, Verdict: "drop", Text: "drop " + id,
		Line: len(id)}
}

var small = []Tier{{1, 1000, 4 << 20}, {5, 1000, 4 << 20}, {20, 1000, 4 << 20}}

// TestTheStoreAnswersAsANaiveOne keeps random seconds of rules that come and go, with gaps, clocks
// that are set, kills and torn writes, and compares random queries.
func TestTheStoreAnswersAsANaiveOne(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomStore(t, seed) })
	}
}

func randomStore(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	s, err := open(dir, small)
	if err != nil {
		t.Fatal(err)
	}
	var all naive
	now := int64(1_000_000 + rng.IntN(1000))
	present := map[string]bool{"a": true}
	for range 900 {
		switch rng.IntN(40) {
		case 0:
			now += int64(rng.IntN(60)) // a gap
		case 1:
			now -= int64(rng.IntN(15)) // the clock was set
		case 2:
			present[string(rune('a'+rng.IntN(8)))] = rng.IntN(2) == 0
		case 3:
			if rng.IntN(2) == 0 {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			} // else it was killed
			if rng.IntN(3) == 0 {
				all = all[:len(all)-tear(t, s, rng.IntN(len(small)), rng)]
			}
			if s, err = open(dir, small); err != nil {
				t.Fatal(err)
			}
		}
		sec := Second{Unix: now}
		for id, there := range present {
			if there {
				sec.Amounts = append(sec.Amounts, Amount{rule("eth0", id),
					uint64(rng.IntN(3) * rng.IntN(1000)), uint64(rng.IntN(100_000))})
			}
		}
		if err := s.Add(sec); err != nil {
			t.Fatal(err)
		}
		all = append(all, sec)
		now++
		if rng.IntN(40) == 0 {
			compare(t, s, all, rng)
		}
	}
	compare(t, s, all, rng)
}

// tear cuts the last bytes off a file, as a power cut does. A second that the finest tier loses is
// lost; what others lose is made again.
func tear(t *testing.T, s *Store, tier int, rng *rand.Rand) (lost int) {
	seg := s.tiers[tier].segs[len(s.tiers[tier].segs)-1]
	if seg.points < 2 {
		return 0
	}
	if err := os.Truncate(seg.path, seg.bytes-1-int64(rng.IntN(4))); err != nil {
		t.Fatal(err)
	}
	if tier == 0 {
		return 1
	}
	return 0
}

func compare(t *testing.T, s *Store, all naive, rng *rand.Rand) {
	t.Helper()
	if len(all) == 0 {
		return
	}
	last := all[len(all)-1].Unix
	from := last - int64(rng.IntN(900))
	q := Query{Kind: Rule, From: from, To: from + 1 + int64(rng.IntN(900)),
		Step: int64(1 + rng.IntN(70)), Bytes: rng.IntN(2) == 0, Peak: rng.IntN(3) == 0}
	got, err := s.Query(q)
	if err != nil {
		t.Fatal(err)
	}
	want := all.query(q, got.From, got.Step, got.Points)
	for _, r := range got.Series {
		w := want[r.Key]
		delete(want, r.Key)
		for i, v := range r.Values {
			same := w != nil && (v == w[i] || isNaN(v) && isNaN(w[i]) ||
				math.Abs(float64(v-w[i])) < 1e-5*float64(v))
			if !same {
				t.Fatalf("%+v: %s at %d is %v, want %v", q, r.ID, got.From+int64(i)*got.Step, v,
					w[i])
			}
		}
		if r.Label != "l"+r.ID || r.Line != len(r.ID) {
			t.Fatalf("%+v", r.Series)
		}
	}
	for k := range want {
		t.Fatalf("%+v: no series of %s", q, k.ID)
	}
}

func TestTheFilesStayWithinTheirBound(t *testing.T) {
	dir := t.TempDir()
	tiers := []Tier{{1, 160, 200_000}, {10, 160, 200_000}}
	s, err := open(dir, tiers)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	size := func() (n int64) {
		names, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			n += info.Size()
		}
		return n
	}
	for i := range int64(3000) {
		sec := Second{Unix: i}
		for j := range 40 {
			sec.Amounts = append(sec.Amounts, Amount{rule("eth0", fmt.Sprint(j)), rng.Uint64() >> 8,
				rng.Uint64() >> 8})
		}
		for range 30 { // sources that nobody has seen before
			sec.Amounts = append(sec.Amounts, Amount{Series{Key: Key{"eth0", Source,
				fmt.Sprint(rng.Uint64())}}, rng.Uint64() >> 20, 1})
		}
		if err := s.Add(sec); err != nil {
			t.Fatal(err)
		}
	}
	if n := size(); n > 400_000 || n != s.bytes() {
		t.Errorf("%d bytes, said %d", n, s.bytes())
	}
	got, err := s.Query(Query{Kind: Rule, From: 2990, To: 3000, Step: 1})
	if err != nil || len(got.Series) != 40 || isNaN(got.Series[0].Values[9]) {
		t.Errorf("%v, %v", got, err)
	}
	// What the finest tier has lost the coarse one still has, and where both have lost it is a gap.
	got, err = s.Query(Query{Kind: Rule, From: 0, To: 3000, Step: 1})
	if err != nil || got.Step != 10 || !isNaN(got.Series[0].Values[0]) ||
		isNaN(got.Series[0].Values[290]) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestSourcesAreBoundedAndSumUp(t *testing.T) {
	s, err := open(t.TempDir(), small)
	if err != nil {
		t.Fatal(err)
	}
	var packets uint64
	for i := range int64(60) {
		sec := Second{Unix: 100 + i}
		for j := range int64(40) {
			a := Amount{Series: Series{Key: Key{"eth0", Source, fmt.Sprint(j, "/", i%7)}},
				Packets: uint64(1000 - j), Bytes: 1}
			packets += a.Packets
			sec.Amounts = append(sec.Amounts, a)
		}
		if err := s.Add(sec); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []int64{1, 5, 20} {
		got, err := s.Query(Query{Kind: Source, From: 100, To: 160, Step: step})
		if err != nil {
			t.Fatal(err)
		}
		var sum uint64
		for _, r := range got.Series {
			sum += r.Packets
			if slices.ContainsFunc(r.Values, isNaN) {
				t.Errorf("step %d: %s has a gap", step, r.ID)
			}
		}
		if sum != packets || got.Series[len(got.Series)-1].ID != Others {
			t.Errorf("step %d: %d packets, want %d", step, sum, packets)
		}
	}
	got, err := s.Query(Query{Kind: Source, From: 100, To: 160, Step: 20, Most: 5})
	if err != nil || len(got.Series) != 6 || got.Series[5].Merged < 10 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestInterfacesAreSummedUpTogether(t *testing.T) {
	s, err := open(t.TempDir(), small)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sec := Second{Unix: 7}
	for i, dev := range []string{"eth0", "eth1"} {
		for _, kind := range []Kind{Verdict, Rule, Source} {
			sec.Amounts = append(sec.Amounts, Amount{Series: Series{Key: Key{dev, kind, "pass"}},
				Packets: uint64(10 + i)})
		}
	}
	if err := s.Add(sec); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[Kind]float32{Verdict: 21, Rule: 11, Source: 21} {
		got, err := s.Query(Query{Kind: kind, From: 7, To: 8, Step: 1})
		if err != nil || got.Series[0].Values[0] != want {
			t.Errorf("%s: %v, %v", kind, got, err)
		}
	}
	got, err := s.Query(Query{Kind: Verdict, Dev: "eth1", From: 7, To: 8, Step: 1})
	if err != nil || len(got.Series) != 1 || got.Series[0].Values[0] != 11 {
		t.Errorf("of one: %v, %v", got, err)
	}
}

func TestADamagedFileLosesWhatFollows(t *testing.T) {
	dir := t.TempDir()
	s, err := open(dir, small)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(100) {
		if err := s.Add(Second{i, []Amount{{rule("eth0", "a"), 5, 500}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []int64{1, 20} {
		name := filepath.Join(dir, fmt.Sprintf("%ds-00000001", step))
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 0x40
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = open(dir, small); err != nil || len(s.Damaged) != 2 {
		t.Fatal(err, s.Damaged)
	}
	got, err := s.Query(Query{Kind: Rule, From: 0, To: 200, Step: 5})
	if err != nil || got.Series[0].Values[18] != 5 {
		t.Errorf("the tier that is whole: %v, %v", got, err)
	}
	if err := s.Add(Second{150, []Amount{{rule("eth0", "b"), 5, 500}}}); err != nil {
		t.Fatal(err)
	}
}

// FuzzAFile opens a store with any file.
func FuzzAFile(f *testing.F) {
	s, err := open(f.TempDir(), small)
	if err != nil {
		f.Fatal(err)
	}
	for i := range int64(3) {
		if err := s.Add(Second{i, []Amount{{rule("eth0", "a"), 5, 500}}}); err != nil {
			f.Fatal(err)
		}
	}
	b, err := os.ReadFile(s.tiers[0].segs[0].path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(magic))
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		// the sums are made right: whoever writes the file can do so, too
		out, rest := []byte(magic), b
		for len(rest) > 1 {
			n := min(int(rest[0])+1, len(rest)-1)
			out = appendRecord(out, rest[1:1+n])
			rest = rest[1+n:]
		}
		for name, text := range map[string][]byte{"1s-00000001": b, "5s-00000001": out} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := open(dir, small)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range Kinds() {
			for _, step := range []int64{1, 5} {
				if _, err := s.Query(Query{Kind: kind, From: 0, To: 100, Step: step}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.Add(Second{5, []Amount{{rule("eth0", "a"), 5, 500}}}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil { // or a process has too many open files some day
			t.Fatal(err)
		}
	})
}

// TestOtherFilesAreNoSegments: a copy that somebody made beside a segment, and a file with a number
// that none has, are neither read nor written, and the segment goes on.
func TestOtherFilesAreNoSegments(t *testing.T) {
	dir := t.TempDir()
	second := Second{7, []Amount{{rule("eth0", "a"), 5, 500}}}
	s, err := open(dir, small)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Add(second), s.Close()); err != nil {
		t.Fatal(err)
	}
	others := []string{"1s-00000001.bak", "1s-7", "1s-zz", "5s-", "5s--0000001"}
	for _, name := range others {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = open(dir, small); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Add(second), s.Close()); err != nil {
		t.Fatal(err)
	}
	if len(s.Damaged) > 0 || s.count != 2 {
		t.Errorf("%d seconds, want 2; damaged: %q", s.count, s.Damaged)
	}
	for _, name := range others {
		if b, err := os.ReadFile(filepath.Join(dir, name)); string(b) != name || err != nil {
			t.Errorf("%s has become %q, %v", name, b, err)
		}
	}
}

func TestCountsOfReadings(t *testing.T) {
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	reading := func(id string, n uint64) Reading { return Reading{rule("eth0", id), n, n * 100} }
	for _, c := range []struct {
		name  string
		pause time.Duration
		first []Reading
		then  []Reading
		want  map[string]uint64 // packets of each, over all seconds; nil: nothing
		secs  int
	}{
		{"it goes on", time.Second, []Reading{reading("a", 5)}, []Reading{reading("a", 9)},
			map[string]uint64{"a": 4}, 1},
		{"it begins anew", time.Second, []Reading{reading("a", 5)}, []Reading{reading("a", 3)},
			map[string]uint64{"a": 3}, 1},
		{"a rule appears in a replace", time.Second, []Reading{reading("a", 5)},
			[]Reading{reading("a", 5), reading("b", 7)}, map[string]uint64{"a": 0, "b": 7}, 1},
		{"a rule goes", time.Second, []Reading{reading("a", 5), reading("b", 5)},
			[]Reading{reading("b", 5)}, map[string]uint64{"b": 0}, 1},
		{"an interface appears", time.Second, nil, []Reading{reading("a", 5)}, map[string]uint64{},
			1},
		{"the reader was late", 3 * time.Second, []Reading{reading("a", 0)},
			[]Reading{reading("a", 100)}, map[string]uint64{"a": 100}, 3},
		{"nobody read for long", time.Minute, []Reading{reading("a", 0)},
			[]Reading{reading("a", 100)}, nil, 0},
	} {
		var counts Counts
		if got := counts.Read(at(0), c.first); got != nil {
			t.Errorf("%s: the first reading says %v", c.name, got)
		}
		got := counts.Read(at(c.pause), c.then)
		if len(got) != c.secs {
			t.Errorf("%s: %d seconds, want %d", c.name, len(got), c.secs)
		}
		sums := map[string]uint64{}
		for i, s := range got {
			if want := at(c.pause).Unix() - int64(c.secs-1-i); s.Unix != want {
				t.Errorf("%s: second %d, want %d", c.name, s.Unix, want)
			}
			for _, a := range s.Amounts {
				sums[a.ID] += a.Packets
			}
			delete(sums, "drop")
		}
		if c.want != nil && !equal(sums, c.want) {
			t.Errorf("%s: %v, want %v", c.name, sums, c.want)
		}
	}
}

func equal(a, b map[string]uint64) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, there := b[k]; !there || v != w {
			return false
		}
	}
	return true
}

// TestAClockThatIsSetCountsOneSecond sets the wall clock without the monotonic one.
func TestAClockThatIsSetCountsOneSecond(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		var counts Counts
		start := time.Now()
		counts.Read(start, []Reading{{rule("eth0", "a"), 0, 0}})
		got := counts.read(start.Unix()+int64(step.Seconds())+1, time.Second,
			[]Reading{{rule("eth0", "a"), 10, 10}})
		if len(got) != 1 || got[0].Amounts[0].Packets != 10 {
			t.Errorf("%v: %v", step, got)
		}
	}
}

func TestOfManyRulesThoseThatCountMostHaveASeries(t *testing.T) {
	var counts Counts
	start := time.Now()
	var all []Reading
	for i := range 5 * mostRules {
		all = append(all, Reading{rule("eth0", fmt.Sprint(i)), 0, 0})
	}
	counts.Read(start, all)
	for i := range all {
		all[i].Packets = uint64(i % 1000)
	}
	got := counts.Read(start.Add(time.Second), all)
	var sum, want uint64
	drops := got[0].Amounts[len(got[0].Amounts)-1]
	got[0].Amounts = got[0].Amounts[:len(got[0].Amounts)-1]
	for _, a := range got[0].Amounts {
		sum += a.Packets
	}
	for _, r := range all {
		want += r.Packets
	}
	least := slices.MinFunc(got[0].Amounts, func(a, b Amount) int {
		return cmp.Compare(a.Packets, b.Packets)
	})
	if len(got[0].Amounts) != mostRules+1 || sum != want || drops.Packets != want ||
		least.Packets < 700 {
		t.Errorf("%d series, %d packets of %d, the least has %d", len(got[0].Amounts), sum, want,
			least.Packets)
	}
}

func TestALongIdentityStaysOne(t *testing.T) {
	long := fmt.Sprintf("%0500d", 1)
	a, b := rule("eth0", long+"a").bounded(), rule("eth0", long+"b").bounded()
	if a.ID == b.ID || len(a.ID) > mostID || a.bounded() != a {
		t.Errorf("%q, %q", a.ID, b.ID)
	}
}

// BenchmarkAYear asks for a year of 40 rules that count each second.
func BenchmarkAYear(b *testing.B) {
	s, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	end := int64(1_800_000_000)
	t := s.tiers[3]
	for at := end - 365*86400; at < end; at += t.step {
		var all []*held
		for i := range 40 {
			n := uint64(rng.IntN(100_000_000))
			all = append(all, &held{rule("eth0", fmt.Sprint(i)), value{packets: n, bytes: n * 100,
				peakPackets: n / 300, peakBytes: n}})
		}
		s.count++
		if err := t.append(head{at, 600, s.count}, all); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		a, err := s.Query(Query{Kind: Rule, From: end - 365*86400, To: end, Step: 3600})
		if err != nil || len(a.Series) != 40 {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(s.bytes()), "bytes")
}

// BenchmarkASecond keeps seconds of 40 rules.
func BenchmarkASecond(b *testing.B) {
	s, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	sec := Second{}
	for i := range 40 {
		sec.Amounts = append(sec.Amounts, Amount{rule("eth0", fmt.Sprint(i)), 12345, 1234567})
	}
	for b.Loop() {
		sec.Unix++
		if err := s.Add(sec); err != nil {
			b.Fatal(err)
		}
	}
}

func TestSampledPacketsAreSummedUpAndBounded(t *testing.T) {
	var s Sampled
	s.Observe("eth1")
	for i := range 3 * mostSampled {
		from := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		s.Add("eth0", "udp", from, 2, 100)
	}
	s.Add("eth0", "tcp", netip.MustParseAddr("2001:db8::1:2:3"), 1, 60)
	got := map[Key]Amount{}
	var packets uint64
	for _, a := range s.Take() {
		got[a.Key] = a
		if a.Dev == "eth0" && a.Kind == Source {
			packets += a.Packets
		}
	}
	if packets != 6*mostSampled+1 || len(got) > mostSampled+8 ||
		got[Key{"eth0", Protocol, "udp"}].Bytes != 600*mostSampled {
		t.Errorf("%d packets of %d series", packets, len(got))
	}
	if _, there := got[Key{"eth1", Source, Others}]; !there {
		t.Error("an interface without packets was not observed")
	}
	if all := s.Take(); len(all) != 0 {
		t.Errorf("%v once more", all)
	}
}

// bytes is the size of the files.
func (s *Store) bytes() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tiers {
		for _, seg := range t.segs {
			n += seg.bytes
		}
	}
	return n
}
