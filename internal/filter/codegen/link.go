package codegen

import "slices"

// Link says where a program of Spec is attached.
type Link struct {
	Program string // in Spec.Programs
	At      Point
}

// Judge returns the name of the program that judges packets, "" if there is not exactly one.
func (p *Program) Judge() (name string) {
	judges := func(l Link) bool { return l.At == Ingress }
	i := slices.IndexFunc(p.Links, judges)
	if i < 0 || slices.ContainsFunc(p.Links[i+1:], judges) {
		return ""
	}
	return p.Links[i].Program
}
