package signature

// Report is the object of `levee propose --json`.
type Report struct {
	Sentence string       `json:"sentence"` // what was seen, and what the rules do
	Rules    []ReportRule `json:"rules"`
	Flood    ReportSample `json:"flood"`
	Good     ReportSample `json:"good"`
	Notes    []string     `json:"notes"`
	// shares of the samples that the rules drop
	Coverage         float64  `json:"coverage"`
	Collateral       *float64 `json:"collateral,omitempty"`
	CollateralAtMost *float64 `json:"collateral_at_most,omitempty"`
}

// ReportRule is one rule that is proposed.
type ReportRule struct {
	Rule          string `json:"rule"`
	Before        string `json:"before"` // rule of --policy in front of which it stands, or empty
	Line          int    `json:"line"`   // of that rule, or 0
	Flood         int    `json:"flood"`  // packets that it drops
	Good          int    `json:"good"`
	ForgedSources bool   `json:"forged_sources"`
}

// ReportSample is one of the two samples.
type ReportSample struct {
	Seen    int `json:"seen"`
	Packets int `json:"packets"` // in the sample
	LeftOut int `json:"left_out"`
	Already int `json:"already"` // dropped without the rules
	Kept    int `json:"kept"`    // protected or essential
	Dropped int `json:"dropped"` // by the rules
}

// Report returns the proposal as JSON has it.
func (p *Proposal) Report() *Report {
	out := &Report{Sentence: p.Sentence, Rules: []ReportRule{}, Coverage: p.Flood.Coverage(),
		Notes: append([]string{}, p.Notes...), Flood: reportSample(&p.Flood),
		Good: reportSample(&p.Good)}
	if p.Good.Packets > 0 {
		out.Collateral = new(p.Good.Collateral())
		out.CollateralAtMost = new(p.Good.Highest())
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		rule := ReportRule{Rule: r.Text, Flood: r.Flood, Good: r.Good, ForgedSources: r.Forged}
		if r.Before != nil {
			rule.Before, rule.Line = r.Before.Text, int(r.Before.Pos.Line)
		}
		out.Rules = append(out.Rules, rule)
	}
	return out
}

func reportSample(j *Judged) ReportSample {
	return ReportSample{Seen: j.Seen, Packets: j.Packets, LeftOut: j.LeftOut, Already: j.Already,
		Kept: j.Kept, Dropped: j.Dropped}
}
