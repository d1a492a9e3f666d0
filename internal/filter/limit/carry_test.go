package limit

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

const testHZ = 250

// randomLimit draws a limit as a policy may have it, by one or two keys.
func randomLimit(t *testing.T, r *rand.Rand, keys int) *policy.Limit {
	t.Helper()
	unit := []string{"/s", "/m", "/h", "/d", "kpps", "kbit/s", "mbit/s"}[r.IntN(7)]
	text := "limit udp rate " + itoa(1+r.IntN(50)) + unit
	if r.IntN(2) == 0 {
		if unit == "kbit/s" || unit == "mbit/s" {
			text += " burst " + itoa(64+r.IntN(2000)) + "kB"
		} else {
			text += " burst " + itoa(500+r.IntN(500))
		}
	}
	if keys > 0 {
		text += " by source"
		if times := 1 + r.IntN(4); times > 1 {
			text += " x" + itoa(times)
		}
		text += " memory " + []string{"4kB", "8kB", "32kB", "256kB"}[r.IntN(4)]
	}
	p, ds := resolve.Parse("a.levee", []byte(text+"\ndefault pass\n"), nil)
	if p == nil {
		if t.Failed() {
			t.Fatal(ds)
		}
		return randomLimit(t, r, keys) // such as a burst of more than 30 days
	}
	return p.Limits()[0].Limit
}

func itoa(n int) string { return big.NewInt(int64(n)).String() }

// place returns the place in which a program looks for the budget of a hash.
func place(memory []byte, hash uint64) (line int, tag uint64) {
	return Head + int(hash>>1>>(63-logLines(len(memory))))*policy.LineBytes,
		hash << lineBits >> timeBits
}

// find is the word of a hash in a memory, nil if there is none.
func find(memory []byte, s Shape, hash uint64) *uint64 {
	if !s.Keyed {
		return word(memory, Head)
	}
	line, tag := place(memory, hash)
	for i := range policy.SlotsInLine {
		if p := word(memory, line+8*i); *p != 0 && *p&(1<<tagBits-1) == tag {
			return p
		}
	}
	return nil
}

// left returns what is left of a key's budget, packets or bytes, exactly.
func left(l *policy.Limit, s Shape, debt uint64) *big.Rat {
	cost := new(big.Rat).SetFrac64(int64(s.Costs[0]), int64(s.Amount))
	burst := new(big.Rat).SetInt64(int64(s.Depth))
	return burst.Sub(burst, new(big.Rat).SetInt64(int64(debt))).Quo(burst, cost)
}

// TestWhatWasSpentStaysSpentInAnyLimit replaces random limits by random others: of packets or bytes
// a key has spent as many then, rounded by a unit of time, or all that the new burst pays; of what
// has another measure, the same share of the burst.
func TestWhatWasSpentStaysSpentInAnyLimit(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	for range 300 {
		keys := r.IntN(4)
		a, b := randomLimit(t, r, keys), randomLimit(t, r, keys)
		was, is := ShapeOf(a), ShapeOf(b)
		from, to := make([]byte, Size(a)), make([]byte, Size(b))
		Seed(from)
		jiffies := uint64(1)<<33 + r.Uint64N(1<<30)
		now := jiffies * Tick(testHZ)
		type key struct{ hash, debt uint64 }
		var spent []key
		for range min(20, a.Lines()) {
			k := key{r.Uint64(), 1 + r.Uint64N(was.Depth)}
			line, tag := Head, uint64(0)
			if was.Keyed {
				line, tag = place(from, k.hash)
			}
			if *word(from, line) != 0 {
				continue
			}
			*word(from, line) = (now>>was.Shift+k.debt)<<tagBits | tag
			spent = append(spent, k)
		}
		c := NewCarrier(from, was, to, is, jiffies, testHZ)
		check := func(when string) {
			t.Helper()
			for _, k := range spent {
				p := find(to, is, k.hash)
				if p == nil {
					t.Fatalf("%s: %s to %s: a budget is gone", when, a.Rate.Text, b.Rate.Text)
				}
				got := is.owes(*p, now>>is.Shift)
				want := new(big.Rat).SetFrac64(int64(k.debt), int64(was.Depth))
				want.Mul(want, new(big.Rat).SetInt64(int64(is.Depth)))
				if was.Bytes == is.Bytes {
					// spent = burst - left, and what that costs now
					full := left(a, was, 0)
					want = full.Sub(full, left(a, was, k.debt))
					want.Mul(want, new(big.Rat).SetFrac64(int64(is.Costs[0]), int64(is.Amount)))
				}
				if most := new(big.Rat).SetInt64(int64(is.Depth)); want.Cmp(most) > 0 {
					want = most
				}
				less := new(big.Rat).SetInt64(int64(got))
				if more := less.Sub(less, want); more.Sign() < 0 ||
					more.Cmp(new(big.Rat).SetInt64(2)) > 0 {
					t.Fatalf("%s: %s burst %d to %s burst %d: of %d units %d are owed, want %s",
						when, a.Rate.Text, a.Burst, b.Rate.Text, b.Burst, is.Depth, got,
						want.FloatString(3))
				}
			}
		}
		check("begun")
		// the old program charges before the next one takes over
		k := &spent[0]
		more := min(was.Depth-k.debt, 1+was.Depth/8)
		*find(from, was, k.hash) += more << tagBits
		k.debt += more
		c.Finish(jiffies, jiffies, testHZ)
		check("finished")
	}
}

// TestBudgetsOfAFullMemoryMoveIntoAnyOther: no key gets more in it, whatever the number of its
// lines, than it had in the one before.
func TestBudgetsOfAFullMemoryMoveIntoAnyOther(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	t.Logf("seed %d", seed)
	shape := Shape{Depth: 1 << 20, Keyed: true, Costs: []uint64{1}, Amount: 1}
	jiffies := uint64(1) << 33
	now := jiffies * Tick(testHZ)
	for _, lines := range [][2]int{{6, 6}, {6, 8}, {6, 12}, {12, 6}, {8, 7}} {
		from := make([]byte, Head+policy.LineBytes<<lines[0])
		to := make([]byte, Head+policy.LineBytes<<lines[1])
		debts := map[uint64]uint64{} // by hash
		for range 6 << lines[0] {
			hash := r.Uint64()
			line, tag := place(from, hash)
			for i := range policy.SlotsInLine {
				if p := word(from, line+8*i); *p == 0 {
					debts[hash] = 1 + r.Uint64N(shape.Depth)
					*p = (now+debts[hash])<<tagBits | tag
					break
				}
			}
		}
		NewCarrier(from, shape, to, shape, jiffies, testHZ)
		own := 0
		for hash, debt := range debts {
			if p := find(to, shape, hash); p != nil {
				own++
				if got := shape.owes(*p, now); got < debt {
					t.Fatalf("%v: a key owes %d, not %d", lines, got, debt)
				}
				continue
			}
			line, _ := place(to, hash) // it would take the slot with the least debt
			for i := range policy.SlotsInLine {
				if got := shape.owes(*word(to, line+8*i), now); got < debt {
					t.Fatalf("%v: a key that owed %d would owe %d", lines, debt, got)
				}
			}
		}
		if lines[1] >= lines[0] && own != len(debts) {
			t.Errorf("%v: %d of %d keys have their slots", lines, own, len(debts))
		}
	}
}
