//go:build proof

package region

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

// TestProofDifferences compares 200 generated pairs of policies, 200 with rules for what leaves,
// and those of the folder that LEVEE_PAIRS names (NAME/old.levee and NAME/new.levee), with
// 1,000,000 packets for all of each.
func TestProofDifferences(t *testing.T) {
	const packets, seeds = 1_000_000, 200
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			a, b := generated(t, 1000+seed)
			report(t, compared(t, t.Name(), a, b, seed, packets/seeds))
		})
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("both sides, seed %d", seed), func(t *testing.T) {
			t.Parallel()
			report(t, comparedBoth(t, 1000+seed, packets/seeds))
		})
	}
	pairs, _ := filepath.Glob(filepath.Join(os.Getenv("LEVEE_PAIRS"), "*", "old.levee"))
	for i, old := range pairs {
		dir := filepath.Dir(old)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			a, b := load(t, old), load(t, filepath.Join(dir, "new.levee"))
			begun := time.Now()
			Compare(t.Context(), a, b)
			t.Logf("%d and %d rules in %v", len(a.Rules), len(b.Rules), time.Since(begun))
			s := compared(t, t.Name(), a, b, uint64(i), packets/len(pairs))
			report(t, s)
		})
	}
}

func report(t *testing.T, s showing) {
	t.Log(s)
	if s.unshown > 0 {
		t.Errorf("%d differences have no example", s.unshown)
	}
}

func load(t *testing.T, path string) *policy.Policy {
	t.Helper()
	p, ds, err := resolve.Load(path)
	if err != nil || p == nil || ds.HasErrors() {
		t.Fatal(ds, err)
	}
	return p
}

// TestProofTenThousandRules compares 10,000 rules on five fields with edits of them, and with what
// has thousands of differences, each within five seconds with the words for it.
func TestProofTenThousandRules(t *testing.T) {
	const rules, edits, most = 10_000, 10, 5 * time.Second
	rnd := rand.New(rand.NewPCG(1, 2))
	lines := make([]string, rules)
	for i := range lines {
		lines[i] = fiveFields(rnd)
	}
	parse := func(lines ...string) *policy.Policy {
		text := strings.Join(lines, "\n") + "\ndefault drop\n"
		p, ds := resolve.Parse("rules.levee", []byte(text), nil)
		if p == nil || ds.HasErrors() {
			t.Fatal(ds)
		}
		return p
	}
	within := func(a, b *policy.Policy) {
		begun := time.Now()
		found := Compare(t.Context(), a, b)
		found.Tell(a, b)
		took := time.Since(begun)
		t.Logf("%d differences in %v", len(found.Differences), took.Round(time.Millisecond))
		if took > most || found.Open > 0 {
			t.Errorf("took %v, %d pairs given up", took, found.Open)
		}
	}
	a := parse(lines...)
	for range edits {
		edited := slices.Clone(lines)
		i, k := rnd.IntN(rules), rnd.IntN(rules)
		edited[i], edited[k] = edited[k], edited[i]
		edited[rnd.IntN(rules)] = fiveFields(rnd)
		within(a, parse(edited...))
	}
	const established = "pass established"
	within(a, parse(append([]string{established}, lines...)...))
	closed := append(slices.Clone(lines), "out pass udp to 10.0.0.0/8 port 53", "out default drop")
	within(parse(closed...), parse(append([]string{established}, closed...)...))
}

// fiveFields is a rule on both addresses, the protocol and both ports, as filter sets have them:
// prefixes within a few networks, ports that are usual or a range.
func fiveFields(rnd *rand.Rand) string {
	prefix := func(net int) string {
		bits := []int{8, 16, 20, 24, 28, 32}[rnd.IntN(6)]
		addr := uint32(net)<<24 | rnd.Uint32N(1<<12)<<12 | rnd.Uint32N(1<<12)
		addr &= ^uint32(0) << (32 - bits)
		return fmt.Sprintf("%d.%d.%d.%d/%d", addr>>24, addr>>16&255, addr>>8&255, addr&255, bits)
	}
	port := func() string {
		switch rnd.IntN(3) {
		case 0:
			return fmt.Sprint([]int{22, 25, 53, 80, 123, 443, 3306, 8080}[rnd.IntN(8)])
		case 1:
			return "1024-65535"
		}
		low := rnd.IntN(60000)
		return fmt.Sprintf("%d-%d", low, low+rnd.IntN(5000))
	}
	verdict, proto := []string{"pass", "drop"}[rnd.IntN(2)], []string{"tcp", "udp"}[rnd.IntN(2)]
	return fmt.Sprintf("%s %s from %s from port %s to %s port %s", verdict, proto,
		prefix(10+rnd.IntN(8)), port(), prefix(192+rnd.IntN(4)), port())
}
