package plan

import "math"

// Report is the plan of a program in the object of `levee check --explain-compile --json`.
type Report struct {
	ReportCost
	Functions int           `json:"functions"`
	Maps      []ReportMap   `json:"maps"`
	Blocks    []ReportBlock `json:"blocks"`
}

// ReportCost is Cost.
type ReportCost struct {
	Ns           float64 `json:"ns"`       // a packet, of packets in no order
	NsLeast      float64 `json:"ns_least"` // of packets that the CPU predicts
	Instructions int     `json:"instructions"`
	Bytes        int     `json:"bytes"`
}

// ReportMap is a map that the program has.
type ReportMap struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	For   string `json:"for"`
	Lives string `json:"lifetime,omitempty"` // private maps live with their program
}

// ReportBlock is a node of the tree.
type ReportBlock struct {
	In   string `json:"in,omitempty"` // the block around it
	ID   string `json:"id"`
	Kind string `json:"kind"`
	What string `json:"what"`
	Why  string `json:"why,omitempty"`
	ReportCost
}

func costOf(c Cost) ReportCost {
	tenths := func(ns float64) float64 { return math.Round(10*ns) / 10 }
	return ReportCost{tenths(c.Ns), tenths(c.Least), c.Instructions, c.Bytes}
}

// Report returns the plan as JSON has it: its blocks in the order of the tree. A block that was
// there before is not taken apart again.
func (p *Plan) Report() *Report {
	out := &Report{ReportCost: costOf(p.Cost), Functions: p.Ledger.Functions, Maps: []ReportMap{},
		Blocks: []ReportBlock{}}
	for _, m := range p.Ledger.Maps {
		out.Maps = append(out.Maps, ReportMap{m.Name, m.Bytes, m.For, string(m.Lifetime)})
	}
	seen := map[ID]bool{}
	var add func(b Block, in ID)
	add = func(b Block, in ID) {
		n := b.About()
		out.Blocks = append(out.Blocks,
			ReportBlock{string(in), string(n.ID), b.Kind(), n.What, n.Why, costOf(n.Cost)})
		if seen[n.ID] {
			return
		}
		seen[n.ID] = true
		for _, below := range b.Blocks() {
			add(below, n.ID)
		}
	}
	for _, c := range p.Chains {
		add(c, "")
	}
	return out
}
