package resolve

import (
	"fmt"
	"slices"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
	"levee/internal/lang/spec"
	"levee/internal/packet"
)

// test keeps a test, whose steps are resolved when all rules are known.
func (r *resolver) test(s *ast.Test) {
	switch {
	case strings.TrimSpace(s.Name.Text) == "":
		r.c.Errorf(s.Name.Pos, "say what the test shows.", "the test has no name")
	case len(s.Steps) == 0 && !r.file.Failed:
		r.c.Warnf(s.Pos, "write: packet tcp port 22 expect pass.", "the test %q has no packets",
			diag.Clip(s.Name.Text))
	}
	r.tests = append(r.tests, s)
}

func (r *resolver) resolveTest(of *ast.Test) {
	t := &policy.Test{Name: of.Name.Text, Pos: r.pos(of.Pos)}
	for i := range of.Steps {
		s := &of.Steps[i]
		step := policy.Step{Text: s.String(), Pos: r.pos(s.Pos)}
		if s.Set != nil {
			r.entry(&step, s)
		} else {
			r.packet(&step, s)
		}
		t.Steps = append(t.Steps, step)
	}
	r.pol.Tests = append(r.pol.Tests, t)
}

// entry resolves `set NAME has ENTRY`.
func (r *resolver) entry(step *policy.Step, s *ast.Step) {
	d := r.named(s.Set.Text)
	switch {
	case d == nil:
		hint := r.nearestSet(s.Set.Text)
		if strings.HasPrefix(hint, "define") {
			hint = "define it: set " + diag.Clip(s.Set.Text) + " = dynamic(max 1000)."
		}
		r.c.Errorf(s.Set.Pos, hint, "there is no set named %q", diag.Clip(s.Set.Text))
	case d.bad:
	case d.set.Kind != policy.Dynamic:
		r.c.Errorf(s.Set.Pos, "the other sets have what the policy gives them.",
			"%q is not a dynamic set; only these can be filled in a test", diag.Clip(s.Set.Text))
	default:
		step.Set = d.set
	}
	t := literal.LooksLike(s.Entry.Text)
	if step.Set != nil {
		t = step.Set.Type
	}
	e, p := literal.Entry(t, s.Entry.Text)
	r.problem(s.Entry.Pos, p)
	step.Entry = e
}

// packet resolves a packet and what is expected of it.
func (r *resolver) packet(step *policy.Step, s *ast.Step) {
	step.Leaves, step.Judged = s.Leaves, s.Expect.Text != ""
	if step.Judged {
		step.Expect = named(s.Expect.Text)
	}
	if s.Leaves && step.Judged && r.pol.Out == nil && !r.file.Failed {
		r.c.Errorf(s.Expect.Pos, "write rules for it, as in: out drop tcp port 25.",
			"the policy has no rule for what leaves: all of it passes")
	}
	if s.By != nil {
		step.By = s.By.Text
	}
	if s.Label != nil {
		step.Label = s.Label.Text
		r.expectLabel(*s.Label)
	}
	if s.Hex != nil {
		step.Frame = r.keepFrame(s.Pos, spec.Hex(r.c, *s.Hex, spec.FrameHint))
		return
	}
	if r.frames > spec.MaxFrames {
		return
	}
	step.Tells = spec.Tells(s.Spec)
	if !s.Leaves {
		r.senderArrives(s.Spec)
	}
	words, ok := spec.Read(r.c, s.Spec)
	if !ok {
		return
	}
	frame, err := packet.Build(words)
	if err != nil {
		at := s.Pos
		if n := len(s.Spec); n > 0 {
			at = s.Spec[0].Pos
			at.EndCol = max(at.EndCol, lastOnLine(s.Spec, at))
		}
		r.c.Errorf(at, "", "this packet cannot be built: %v", err)
		return
	}
	step.Frame = r.keepFrame(s.Pos, frame)
}

// keepFrame returns the frame, or nil when the tests have had too many bytes.
func (r *resolver) keepFrame(at diag.Pos, frame []byte) []byte {
	before := r.frames
	if r.frames += len(frame); r.frames <= spec.MaxFrames {
		return frame
	}
	if before <= spec.MaxFrames {
		r.c.Errorf(at, "shorter packets test the same; \"len\" makes them long.",
			"the packets of all tests have more than %d MiB together", spec.MaxFrames>>20)
	}
	return nil
}

// lastOnLine returns the end of the last word that stands in the line of at.
func lastOnLine(ts []ast.Term, at diag.Pos) int32 {
	end := at.EndCol
	for i := range ts {
		if ts[i].Pos.Line == at.Line {
			end = max(end, ts[i].Pos.EndCol)
		}
	}
	return end
}

// deciders are the words that stand behind `by` without quotes.
var deciders = []string{"protect", "malformed", "essential", "default"}

func (r *resolver) expectLabel(w ast.Word) {
	// the rule with the label may be one that was not understood
	if r.labels[w.Text] > 0 || r.file.Failed {
		return
	}
	var labels []string
	for _, l := range r.labelled {
		if l.rule < 1000 {
			labels = append(labels, l.text)
		}
	}
	hint := "a label stands behind a rule: pass tcp port 22 as \"ssh\"."
	if m := diag.Nearest(w.Text, labels); m != "" {
		hint = diag.DidYouMean(m)
	} else if slices.Contains(deciders, w.Text) {
		hint = fmt.Sprintf("without quotes: by %s.", w.Text)
	}
	r.c.Errorf(w.Pos, hint, "no rule has the label %q", diag.Clip(w.Text))
}
