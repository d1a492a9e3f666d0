package ast

// Limit holds the words behind the match of a rule that begins with limit: `rate RATE [burst N] [by
// KEY, ...] [memory SIZE]`, or rates by prefix in the place of the first two.
type Limit struct {
	Rate   Word // of rates by prefix the place alone
	Rates  *Rates
	Burst  *Word
	By     []Key
	Memory *Word
}

// Key is one of the budgets that a limit keeps: `source/24,56 x32`.
type Key struct {
	Name  Word  // without prefix lengths; that of two words has one blank
	Bits  *Word // behind the slash: `24` or `24,56`
	Times *Word // how many rates the budget has
}

func (p *printer) limit(l *Limit) {
	if l.Rates != nil {
		p.rates(l.Rates)
	} else {
		p.words("rate", l.Rate.Text)
	}
	if l.Burst != nil {
		p.words("burst", l.Burst.Text)
	}
	for i := range l.By {
		if i == 0 {
			p.words("by")
		} else {
			p.b = append(p.b, ',')
		}
		p.words(l.By[i].Text())
	}
	if l.Memory != nil {
		p.words("memory", l.Memory.Text)
	}
}

// Text returns the key as it is printed.
func (k *Key) Text() string {
	text := k.Name.Text
	if k.Bits != nil {
		text += "/" + k.Bits.Text
	}
	if k.Times != nil {
		text += " " + k.Times.Text
	}
	return text
}
