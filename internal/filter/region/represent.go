package region

import (
	"cmp"
	"slices"

	"levee/internal/filter/ir"
	"levee/internal/filter/oracle"
)

// Representative is a packet that stands for those of one class which one rule decides.
type Representative struct {
	Slot    int // of Question.Policy
	Outcome Outcome
	Class   ir.Class
	// Example was judged by the oracle as Slot says; nil if no test can show a packet of the class.
	Example *Example
	// Unknown lists the properties that only run time knows, of the packets that were found last.
	Unknown []string
}

// mostBoxes bounds the kinds of packets of one class and rule of which an example is made.
const mostBoxes = 64

// Representatives are packets of the question without tags that are no fragments: for each class
// one for each rule that decides some of them, in the order of the rules. Those for which nothing
// has to have been before come first. open says that there are more kinds than could be followed.
func (q *Question) Representatives() (out []Representative, open bool) {
	type key struct {
		slot  int
		class ir.Class
	}
	found := map[key]*Representative{}
	judge := oracle.New(q.Policy.Whole())
	w := &walk{Question: q}
	w.decides = func(s *space, r *rule, _ *rule, of Sources, boxes []box) {
		if s.tags > 0 {
			return
		}
		for _, c := range of.Classes {
			if c.Family == ir.NonIP || c.Fragment {
				continue
			}
			k := key{r.slot, c}
			for _, b := range boxes[:min(len(boxes), mostBoxes)] {
				if have := found[k]; have != nil && have.Example.plain() {
					break
				}
				n := Representative{Slot: r.slot, Outcome: r.outcome, Class: c}
				_, n.Unknown = s.words(b, nil)
				n.Example = s.show(b, []ir.Class{c}, func(e *Example) bool {
					slot, ok := e.judge(judge, q.Policy)
					return ok && slot == r.slot
				})
				if found[k] == nil || n.Example != nil &&
					(found[k].Example == nil || n.Example.plain()) {
					found[k] = &n
				}
			}
		}
	}
	w.all()
	for _, n := range found {
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b Representative) int {
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Class.Index(), b.Class.Index()))
	})
	return out, w.open
}

// plain says that nothing has to have been before the packet.
func (e *Example) plain() bool { return e != nil && len(e.Entries)+len(e.Before) == 0 }

// ClassWords returns the packets of a class in words: "IPv4 whole TCP".
func ClassWords(c ir.Class) string { return kindsOf([]ir.Class{c}) }
