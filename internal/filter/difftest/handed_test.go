package difftest

import (
	"bufio"
	"encoding/gob"
	"errors"
	"flag"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"levee/internal/filter/codegen"
	"levee/internal/filter/oracle"
	"levee/internal/lang/policy"
)

var (
	handTo = flag.String("hand", "",
		"TestClassBench, TestGeneratedRules: load nothing, and write what -handed reads here")
	handedFrom = flag.String("handed", "",
		"TestClassBench, TestGeneratedRules: compare what -hand wrote here, and ask no oracle")
)

// handed is a comparison that one machine makes for another, on which the oracle would take long:
// frames, and the oracle's verdicts. Time changes none of them.
type handed struct {
	Text   []byte // of the policy
	Frames [][]byte
	Want   []oracle.Result
}

func handedFile(dir, name string) string { return filepath.Join(dir, url.PathEscape(name)) }

// hand writes the comparison of c.
func hand(dir, name string, c Case) error {
	if c.Policy.Remembers() || len(c.Policy.Limits()) > 0 {
		return errors.New("what the policy says depends on time")
	}
	h := handed{Text: c.Text}
	for f := range packets(c.Policy, c.elements(), c.Seed, c.Frames) {
		h.Frames = append(h.Frames, f)
	}
	h.Want = verdicts(oracle.New(c.Policy), h.Frames, false)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	out, err := os.Create(handedFile(dir, name))
	if err != nil {
		return err
	}
	defer out.Close()
	w := bufio.NewWriter(out)
	return errors.Join(gob.NewEncoder(w).Encode(h), w.Flush(), out.Close())
}

func readHanded(dir, name string) (h handed, err error) {
	in, err := os.Open(handedFile(dir, name))
	if err != nil {
		return h, err
	}
	defer in.Close()
	return h, gob.NewDecoder(bufio.NewReader(in)).Decode(&h)
}

// compare is Compare of a policy, which is that of h.
func (h *handed) compare(p *policy.Policy, e Engine) (Stats, error) {
	r := &comparison{c: Case{Policy: p, Text: h.Text, Seed: 1}, oracle: oracle.New(p),
		engines: []Engine{e}, stats: Stats{Decided: map[int]int{}},
		sums: [][]uint64{make([]uint64, len(p.Slots()))}}
	for i, f := range h.Frames {
		r.stats.Frames++
		r.stats.Decided[h.Want[i].Slot]++
		if err := r.ask(0, f, h.Want[i]); err != nil {
			return r.stats, err
		}
	}
	return r.stats, compareSums(r.c, r.sums, r.engines)
}

// compareHanded is compareSet of what was handed over.
func compareHanded(t *testing.T, name string) {
	t.Helper()
	h, err := readHanded(*handedFrom, name)
	if err != nil {
		t.Fatal(err)
	}
	p := parsed(t, name, h.Text)
	stats, err := h.compare(p, compiled{load(t, p, codegen.Target{CPUs: 1}), codegen.XDP, nil})
	if err != nil {
		t.Fatal(err)
	}
	tell(t, name, p, stats)
}

// TestHandedComparisonsAreThoseOfTheOracle hands a set over and compares it, with the right policy
// and with another.
func TestHandedComparisonsAreThoseOfTheOracle(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	text := imported(t, "a set", filters(3, 60))
	p := parsed(t, "a set", text)
	c := Case{Policy: p, Text: text, Seed: 1, Frames: 500}
	if err := hand(dir, "a set", c); err != nil {
		t.Fatal(err)
	}
	h, err := readHanded(dir, "a set")
	if err != nil {
		t.Fatal(err)
	}
	stats, err := h.compare(p, compiled{load(t, p, codegen.Target{CPUs: 1}), codegen.XDP, nil})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := Compare(t.Context(), c,
		compiled{load(t, p, codegen.Target{CPUs: 1}), codegen.XDP, nil})
	if err != nil {
		t.Fatal(err)
	}
	if stats.Frames != whole.Frames || !maps.Equal(stats.Decided, whole.Decided) {
		t.Errorf("%d frames decided by %v; handed over, %d by %v", whole.Frames, whole.Decided,
			stats.Frames, stats.Decided)
	}
	other := parsed(t, "other", imported(t, "other", filters(4, 60)))
	var d *Difference
	_, err = h.compare(other, compiled{load(t, other, codegen.Target{CPUs: 1}), codegen.XDP, nil})
	if !errors.As(err, &d) {
		t.Errorf("another policy agrees with what was handed over: %v", err)
	}
}
