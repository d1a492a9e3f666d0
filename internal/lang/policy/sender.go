package policy

import (
	"slices"

	"levee/internal/lang/field"
)

// Senders are those that rules for what leaves name, in the order in which they do. Rules ask for
// places in these lists, from 1 on.
type Senders struct {
	Users      []string
	Groups     []string
	Services   []string // units of systemd
	Containers []string
}

// Of returns the list of a field; nil of one that names nobody.
func (s *Senders) Of(f field.Field) *[]string {
	switch f {
	case field.User:
		return &s.Users
	case field.Group:
		return &s.Groups
	case field.Service:
		return &s.Services
	case field.Container:
		return &s.Containers
	}
	return nil
}

// Name returns who a value of a field stands for; "" if nobody.
func (s *Senders) Name(f field.Field, v uint64) string {
	if list := s.Of(f); list != nil && 0 < v && v <= uint64(len(*list)) {
		return (*list)[v-1]
	}
	return ""
}

// Told replaces the names in facts about a packet by the numbers that programs use for them. A name
// in no rule gets the number for all other names.
func (p *Policy) Told(all []Told) []Told {
	out := slices.Clone(all)
	for i := range out {
		if list := p.Senders.Of(out[i].Field); list != nil && out[i].Name != "" {
			out[i].Value = uint64(slices.Index(*list, out[i].Name) + 1)
		}
	}
	return out
}
