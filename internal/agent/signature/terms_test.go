package signature

import (
	"slices"
	"strings"
	"testing"

	"levee/internal/lang/field"
	"levee/internal/packet"
)

// leftOut are the fields that no term is made of, with the reason.
var leftOut = map[field.Field]string{
	field.SrcService: "port and protocol say it", field.DstService: "port and protocol say it",
	field.SrcEndpoint: "address, port and protocol say it",
	field.DstEndpoint: "address, port and protocol say it",
	field.VLAN:        "written by the last switch", field.InnerVLAN: "written by the last switch",
	field.Tags: "written by the last switch", field.SrcMAC: "written by the last router",
	field.DstMAC:    "written by the last router",
	field.SrcSuffix: "of addresses, which prefixes say", field.DstSuffix: "of addresses",
	field.Flow: "a sample does not tell", field.Proven: "a sample does not tell",
	field.Contents: "bytes at one place tell a flood at less cost",
	field.DNSName:  "a zone under attack is limited, not dropped", field.DNSType: noDNS,
	field.DNSOpcode: noDNS, field.DNSQuery: noDNS, field.DNSResponse: noDNS,
	field.DNSMalformed: noDNS, field.DNSSize: noDNS,
	field.Inner:      "what is in a tunnel is of another flood",
	field.ProvenFlow: "a sample does not tell",
	field.StrictPath: "a sample does not tell",
	field.LoosePath:  "a sample does not tell",
	field.Stream:     "a sample does not tell what was before",
	field.Local:      noSender, field.UID: noSender, field.GID: noSender, field.User: noSender,
	field.Group: noSender, field.Service: noSender, field.Container: noSender,
}

// noSender is the reason that no rule against a flood asks who sends.
const noSender = "who sends what arrives is elsewhere"

// noDNS is the reason that no rule against a flood reads messages.
const noDNS = "bytes at one place say the same of any protocol"

// Of each field of the registry there are terms, or it is said why there are none.
func TestEveryFieldIsAskedForOrLeftOut(t *testing.T) {
	var all [][]byte
	for _, f := range floods {
		all = append(all, frames(t, f.packets, 0, 200)...)
	}
	all = append(all, frames(t, "ipv6 type echo-request to 2001:db8::1 len 100 dscp 10", 0, 300)...)
	s := sampleOf(nil, all)
	v := newView(s, s.all())
	calm := sampleOf(nil, frames(t, good, 0, 900))
	asked := map[field.Field]bool{}
	for _, term := range suggest(groupsOf(v, newView(calm, calm.all()), full(v.len()))) {
		asked[term.field] = true
	}
	for f := field.None + 1; f < field.NumFields; f++ {
		if asked[f] == (leftOut[f] != "") {
			t.Errorf("%s: asked for: %v; left out: %q", f.Info().Name, asked[f], leftOut[f])
		}
	}
}

// The oracle takes the terms as they are meant: each holds for its own packets.
func TestTermsHoldForWhatTheyWereMadeOf(t *testing.T) {
	for _, f := range floods {
		s := sampleOf(nil, frames(t, f.packets, 0, 500))
		v := newView(s, s.all())
		empty := NewSample(packet.Ethernet, nil, 0)
		terms := suggest(groupsOf(v, newView(empty, nil), full(v.len())))
		held, err := v.ask(terms)
		if err != nil {
			t.Fatal(err)
		}
		for i, term := range terms {
			if n := held[i].count(); !term.spares && float64(n) < fewest/2*float64(v.len()) {
				t.Errorf("%s: %q holds for %d of %d", f.name, term.text, n, v.len())
			}
		}
	}
}

// The range with the greatest sum is that of all ranges.
func TestHeaviestRange(t *testing.T) {
	weights := []float64{-1, 2, -1, 3, -5, 4, 0, -1, 2}
	values := make([]uint64, len(weights))
	for i := range values {
		values[i] = uint64(10 * i)
	}
	lo, hi, found := heaviest(values, func(v uint64) float64 { return weights[v/10] })
	best := 0.0
	for i := range weights {
		sum := 0.0
		for _, w := range weights[i:] {
			sum += w
			best = max(best, sum)
		}
	}
	sum := 0.0
	for _, w := range weights[lo/10 : hi/10+1] {
		sum += w
	}
	if !found || sum != best {
		t.Errorf("%d to %d, with %v, want %v", lo, hi, sum, best)
	}
	if _, _, found := heaviest(values, func(uint64) float64 { return -1 }); found {
		t.Error("a range without weight")
	}
}

// FuzzPropose: whatever packets hold, there is a proposal, and its rules are a policy.
func FuzzPropose(f *testing.F) {
	for _, flood := range floods {
		f.Add(slices.Concat(frames(f, flood.packets, 0, 4)...), uint8(60))
	}
	f.Add([]byte(strings.Repeat("x", 500)), uint8(14))
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		s := chopped(data, int(size)+14)
		if s.Len() == 0 {
			return
		}
		p, err := Propose(s, nil, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		wantPolicy(t, p)
	})
}
