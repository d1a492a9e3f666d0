package difftest

import (
	"fmt"
	"strings"
)

func (g *generator) sets() {
	for i := range g.r.IntN(4) {
		g.addressSet(fmt.Sprintf("net%d", i))
	}
	if g.chance(3) {
		g.line("set listed = file(%q)", setFileName)
		g.addressSets = append(g.addressSets, "listed")
		g.lookedUp = append(g.lookedUp, "listed")
	}
	for i := range g.r.IntN(3) {
		lease := ""
		if g.chance(2) {
			lease = ", lease " + g.pick("500ms", "30s", "10m", "12h", "7d", "2w")
		}
		name := fmt.Sprintf("found%d", i)
		g.line("set %s = dynamic(max %d%s)", name, g.between(64, 5000), lease)
		g.lookedUp = append(g.lookedUp, name)
	}
	if len(g.lookedUp) > 0 {
		g.tableSet = g.pick(g.lookedUp...)
	}
	for i := range g.r.IntN(3) {
		name := fmt.Sprintf("doors%d", i)
		elems := g.some(1+g.r.IntN(12), g.portElement)
		if len(g.portSets) > 0 && g.chance(2) {
			elems = append(elems, g.pick(g.portSets...))
		}
		g.line("set %s = { %s }", name, strings.Join(elems, ", "))
		g.portSets = append(g.portSets, name)
	}
	for i := range g.r.IntN(3) {
		name := fmt.Sprintf("offers%d", i)
		elems := g.some(1+g.r.IntN(8), g.serviceElement)
		g.line("set %s = { %s,\n}", name, strings.Join(elems, ",\n  "))
		g.serviceSets = append(g.serviceSets, name)
	}
	g.endpoints()
	g.moreFiles()
	g.moreDynamic()
	g.nameSetsOf()
}

// moreDynamic are sets of services, endpoints and names that are filled at run time.
func (g *generator) moreDynamic() {
	for _, d := range []struct {
		set, of string
		to      *[]string
	}{{"openings", "services", &g.serviceSets}, {"partners", "endpoints",
		&g.endpointSets}, {"strangers", "endpoints", &g.endpointSets}, {"told", "names",
		&g.nameSets}} {
		if g.chance(3) {
			g.line("set %s = dynamic(of %s, max %d, lease 10m)", d.set, d.of, g.between(64, 5000))
			*d.to = append(*d.to, d.set)
			g.files = append(g.files, d.set)
		}
	}
}

// endpoints are sets of addresses with services, short and long.
func (g *generator) endpoints() {
	for i := range g.r.IntN(3) {
		name := fmt.Sprintf("ends%d", i)
		elems := g.some(1+g.size(), g.endpointElement)
		if len(g.endpointSets) > 0 && g.chance(2) {
			elems = append(elems, g.pick(g.endpointSets...))
		}
		g.line("set %s = { %s }", name, strings.Join(elems, ",\n    "))
		g.endpointSets = append(g.endpointSets, name)
	}
}

// moreFiles are sets from files that do not hold addresses.
func (g *generator) moreFiles() {
	for _, f := range []struct {
		set, name string
		to        *[]string
	}{{"portlist", "ports.txt", &g.portSets}, {"servicelist", "services.txt",
		&g.serviceSets}, {"endlist", "endpoints.txt", &g.endpointSets}} {
		if g.chance(4) {
			g.line("set %s = file(%q)", f.set, f.name)
			*f.to = append(*f.to, f.set)
			g.files = append(g.files, f.set)
		}
	}
}

func (g *generator) addressSet(name string) {
	elems := g.some(1+g.size(), g.address)
	if len(g.addressSets) > 0 && g.chance(2) {
		elems = append(elems, g.pick(g.addressSets...))
	}
	g.line("set %s = { %s }", name, strings.Join(elems, ",\n    "))
	g.addressSets = append(g.addressSets, name)
}

// some returns n elements, all different.
func (g *generator) some(n int, make func() string) []string {
	var elems []string
	seen := map[string]bool{}
	for range n {
		if e := make(); !seen[e] {
			seen[e] = true
			elems = append(elems, e)
		}
	}
	return elems
}
