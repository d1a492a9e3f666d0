package commands

import (
	"fmt"

	"levee/internal/lab/gen"
)

// GenReport is the object of `levee gen --json`.
type GenReport struct {
	Sent     uint64   `json:"sent"`
	Bytes    uint64   `json:"bytes"`
	Refused  uint64   `json:"refused"`             // of sent: no room in the receiver's ring
	Errors   uint64   `json:"errors"`              // not in sent
	TooShort uint64   `json:"too_short,omitempty"` // of errors: shorter than an Ethernet header
	TooLong  uint64   `json:"too_long,omitempty"`  // of errors: longer than the MTU allows
	Filled   uint64   `json:"filled,omitempty"`    // of sent: cut by the capture, filled with zeros
	Seconds  float64  `json:"seconds"`
	Rate     float64  `json:"rate"` // asked, packets a second; 0 for as fast as possible
	Achieved float64  `json:"achieved"`
	Seed     uint64   `json:"seed"`
	Path     string   `json:"path"`          // live, afxdp, packet, qdisc or sendmmsg
	How      string   `json:"how"`           // the path in words
	Why      string   `json:"why,omitempty"` // not live
	MaxGapNs int64    `json:"max_gap_ns"`
	Gaps     gapTable `json:"gaps"`
	GapsLog2 []uint64 `json:"gaps_log2"` // [i]: gaps of 2^i up to 2^(i+1) ns
}

// gapTable is percentiles of the time between readings of the clock, in ns.
type gapTable struct {
	Count   uint64 `json:"count"`
	Packets int    `json:"packets"` // from one reading to the next; 0: a batch of what was due
	P50     int64  `json:"p50_ns"`
	P90     int64  `json:"p90_ns"`
	P99     int64  `json:"p99_ns"`
	P999    int64  `json:"p99_9_ns"`
	P9999   int64  `json:"p99_99_ns"`
}

func newGapTable(g *gen.Gaps) gapTable {
	at := func(q float64) int64 { return g.Quantile(q).Nanoseconds() }
	return gapTable{g.Count(), g.Packets, at(.5), at(.9), at(.99), at(.999), at(.9999)}
}

func newGenReport(r *gen.Report) GenReport {
	return GenReport{
		Sent: r.Sent, Bytes: r.Bytes, Refused: r.Refused, Errors: r.Errors, TooShort: r.TooShort,
		TooLong: r.TooLong, Filled: r.Filled, Seconds: r.Duration.Seconds(),
		Rate: r.Rate, Achieved: r.Achieved, Seed: r.Seed,
		Path: string(r.Path), How: r.How, Why: r.Why, Gaps: newGapTable(&r.Gaps),
		MaxGapNs: r.Gaps.Max.Nanoseconds(), GapsLog2: r.Gaps.Log2[:],
	}
}

// spanned says what a gap lies between, where that is not one packet and the next.
func spanned(packets int) string {
	switch packets {
	case 0:
		return " (between batches of what was due)"
	case 1:
		return ""
	}
	return fmt.Sprintf(" (of %d packets)", packets)
}
