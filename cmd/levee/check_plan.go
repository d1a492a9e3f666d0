package main

import (
	"math"

	"levee/internal/filter/plan"
)

// planned is the plan of a program in the object of `levee check --explain-compile --json`.
type planned struct {
	planCost
	Functions int            `json:"functions"`
	Maps      []plannedMap   `json:"maps"`
	Blocks    []plannedBlock `json:"blocks"`
}

// planCost is plan.Cost.
type planCost struct {
	Ns           float64 `json:"ns"`       // a packet, of packets in no order
	NsLeast      float64 `json:"ns_least"` // of packets that the CPU predicts
	Instructions int     `json:"instructions"`
	Bytes        int     `json:"bytes"`
}

type plannedMap struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	For   string `json:"for"`
	Lives string `json:"lifetime,omitempty"` // private maps live with their program
}

// plannedBlock is a node of the tree.
type plannedBlock struct {
	In   string `json:"in,omitempty"` // the block that it is in
	ID   string `json:"id"`
	Kind string `json:"kind"`
	What string `json:"what"`
	Why  string `json:"why,omitempty"`
	planCost
}

func costOf(c plan.Cost) planCost {
	tenths := func(ns float64) float64 { return math.Round(10*ns) / 10 }
	return planCost{tenths(c.Ns), tenths(c.Least), c.Instructions, c.Bytes}
}

// planOf is a plan as the command prints it: its blocks in the order of the tree. A block that was
// there before is not taken apart again.
func planOf(p *plan.Plan) *planned {
	out := &planned{planCost: costOf(p.Cost), Functions: p.Ledger.Functions, Maps: []plannedMap{},
		Blocks: []plannedBlock{}}
	for _, m := range p.Ledger.Maps {
		out.Maps = append(out.Maps, plannedMap{m.Name, m.Bytes, m.For, string(m.Lifetime)})
	}
	seen := map[plan.ID]bool{}
	var add func(b plan.Block, in plan.ID)
	add = func(b plan.Block, in plan.ID) {
		n := b.About()
		out.Blocks = append(out.Blocks,
			plannedBlock{string(in), string(n.ID), b.Kind(), n.What, n.Why, costOf(n.Cost)})
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
