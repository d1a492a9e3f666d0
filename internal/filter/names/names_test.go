package names

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/lang/dnsname"
)

// find looks a digest up as the emitted code does.
func (t *Table) find(d digest) (there, below bool) {
	bucket, bit, mark := d.place(t.buckets)
	if t.filter > 0 && t.memory[t.filter+bucket*filterBytes+bit/8]>>(bit%8)&1 == 0 {
		return false, false
	}
	first := depthBytes + bucket*bucketBytes
	for at := first; at < first+reach*bucketBytes; at += 8 {
		w := uint64(0)
		for i := range 8 {
			w |= uint64(t.memory[at+i]) << (8 * i)
		}
		if w^mark <= onlyBelow {
			return true, w&onlyBelow != 0
		}
	}
	return false, false
}

func patterns(n int) (all []dnsname.Pattern) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		p, err := dnsname.Parse(fmt.Sprintf("h%d.z%x.example", i, r.Uint32()))
		if err != nil {
			panic(err)
		}
		p.Below = i%3 == 0
		all = append(all, p)
	}
	return all
}

func TestATableHoldsItsNamesAndNoOthers(t *testing.T) {
	secret := Secret{3, 4}
	k := keysOf(secret)
	for _, n := range []int{0, 1, 7, 100, 20_000, filtered} {
		all := patterns(n)
		table := NewTable(all, secret)
		for _, p := range all {
			if there, below := table.find(k.digest(p.Name)); !there || below != p.Below {
				t.Fatalf("of %d names %v: there %v, only below %v", n, p, there, below)
			}
			if there, _ := table.find(k.digest("\x01x" + p.Name)); there {
				t.Fatalf("of %d names x.%v is there", n, p)
			}
		}
		if least := 8*n + depthBytes; len(table.Bytes()) > 4*least+reach*bucketBytes {
			t.Errorf("%d names take %d bytes", n, len(table.Bytes()))
		}
	}
}

// Another secret has to give other digests, and no pair of names the same.
func TestDigestsDependOnTheSecretAndOnEveryLabel(t *testing.T) {
	k, other := keysOf(Secret{1, 2}), keysOf(Secret{1, 3})
	seen := map[digest]dnsname.Name{}
	for _, text := range []string{"a", "b", "a.a", "aa", `a\001a`, "a.b", "b.a", "aaaaaaa", "aaaaaaaa",
		"aaaaaaa.a", "aaaaaaaa.a", "a.aaaaaaaa", `\000`, `\000\000`, `\000.\000`} {
		p, err := dnsname.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		d := k.digest(p.Name)
		if n, twice := seen[d]; twice {
			t.Errorf("%q and %q have the same digest", n, p.Name)
		}
		seen[d] = p.Name
		if d == other.digest(p.Name) {
			t.Errorf("%q has the same digest with another secret", p.Name)
		}
	}
}

// The verifier of Linux 6.1 walked both ways of each read of a name, from the packet's first buffer
// and by a helper, at each byte: it refused what reads messages at tc, and in packets of several
// buffers.
func TestAReadOfANameHasOneWay(t *testing.T) {
	for _, at := range []struct {
		hook       string
		tcx, frags bool
		calls      int
	}{{"XDP", false, false, 0}, {"XDP, several buffers", false, true, 1}, {"tc", true, false, 1}} {
		b := assembler.New()
		if err := Emit(b, assembler.Number("context"), at.tcx, at.frags); err != nil {
			t.Fatal(err)
		}
		insns, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		for _, ins := range insns {
			if ins.IsBuiltinCall() && (ins.Constant == int64(asm.FnSkbLoadBytes) ||
				ins.Constant == int64(asm.FnXdpLoadBytes)) {
				calls++
			}
		}
		if calls != at.calls {
			t.Errorf("%s: %d reads by a helper, want %d", at.hook, calls, at.calls)
		}
	}
}

// Buckets are even although the sums are not: no bucket is so full that the table doubles.
func TestAMillionNamesTakeAsMuchAsThePageSays(t *testing.T) {
	table := NewTable(patterns(1_000_000), Secret{5, 6})
	if mb := float64(len(table.Bytes())) / 1e6; math.Abs(mb-17) > 1 {
		t.Errorf("%.1f MB", mb)
	}
	set := 0
	for _, b := range table.memory[table.filter:] {
		set += bits.OnesCount8(b)
	}
	if full := float64(set) / float64(8*(len(table.memory)-table.filter)); full > 0.12 {
		t.Errorf("%.1f %% of names that are not there pass the filter", 100*full)
	}
}
