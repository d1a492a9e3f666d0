package echo

import (
	"encoding/binary"
	"math"
)

// Stats counts the flows of a memory.
type Stats struct {
	Flows   int    `json:"proven"`  // that are proven
	Places  int    `json:"room"`    // in all
	Refused uint64 `json:"refused"` // proofs that found no place
	Taken   uint64 `json:"evicted"` // flows that lost their place before their time
}

// Tally holds the counts of a form.
type Tally struct {
	Given  uint64 `json:"given"`  // values that replies had
	Values int    `json:"values"` // different ones among them, about; see MostValues
	Proofs uint64 `json:"proofs"` // values that came back
	Wrong  uint64 `json:"wrong"`  // packets that had no value where one may be
}

// MostValues is from how many different values on a tally tells no more than that there are as
// many.
const MostValues = 4_000

// flowsOf returns where flows begin in a memory. They are the last in it, also in one that another
// version has made, whose lines have other marks in front of them.
func flowsOf(memory []byte) int { return len(memory) - Places*place }

// Read counts what is in a memory at a time in jiffies.
func Read(memory []byte, jiffies uint64) Stats {
	s := Stats{Places: Places, Refused: binary.NativeEndian.Uint64(memory[atRefused:]),
		Taken: binary.NativeEndian.Uint64(memory[atTaken:])}
	lease := binary.NativeEndian.Uint32(memory[atLease:])
	for at := flowsOf(memory); at < len(memory); at += place {
		word := binary.NativeEndian.Uint64(memory[at:])
		if word != 0 && uint32(word)-uint32(jiffies)-1 < lease {
			s.Flows++
		}
	}
	return s
}

// Has says whether a flow is proven at a time in jiffies. The hash is as package flow has it, of
// what the service sends.
func Has(memory []byte, hash, jiffies uint64) bool {
	line := int(hash>>48) & (lines - 1)
	lease := binary.NativeEndian.Uint32(memory[atLease:])
	first := flowsOf(memory) + line*perLine*place
	for at := first; at < first+perLine*place; at += place {
		word := binary.NativeEndian.Uint64(memory[at:])
		if word>>32 == uint64(uint32(hash)|1) && uint32(word)-uint32(jiffies)-1 < lease {
			return true
		}
	}
	return false
}

// ReadTally returns what a memory tells of the form with a tally.
func ReadTally(memory []byte, tally int) Tally {
	at := atTallies + tally%Tallies*tallySize
	var t Tally
	for row := range rows {
		word := func(n int) uint64 {
			return binary.NativeEndian.Uint64(memory[at+row*rowSize+8*n:])
		}
		t.Given, t.Proofs, t.Wrong = t.Given+word(0), t.Proofs+word(1), t.Wrong+word(2)
	}
	bits, set := 64*words, 0
	for i := range bits {
		if binary.NativeEndian.Uint64(memory[at+atClasses+i/64*8:])>>(i%64)&1 != 0 {
			set++
		}
	}
	t.Values = MostValues
	if set < bits {
		// Linear counting: Whang, Vander-Zanden and Taylor, 1990.
		n := -float64(bits) * math.Log(1-float64(set)/float64(bits))
		t.Values = min(MostValues, int(math.Round(n)))
	}
	return t
}
