package dataplane

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/sets"
	"levee/internal/filter/codegen"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

const onErrorText = `on error drop
set admins = { 192.0.2.0/24 }
set abusers = dynamic(max 100)
protect from admins udp as "admin"
drop from abusers as "abuser"
pass from 203.0.113.0/24 as "customer"
default pass
`

// bringWithFallback is Up as `levee up` calls it, with failures before the swap while fail says so.
func bringWithFallback(t *testing.T, text string, fail func(step string) bool) (*Report, error) {
	t.Helper()
	p, ds := resolve.Parse("new.levee", []byte(text), nil)
	if ds.HasErrors() {
		t.Fatal(ds)
	}
	compile := func(p *policy.Policy) CompileFunc {
		return func(target codegen.Target) (*codegen.Program, error) {
			prog, err := codegen.Compile(p, target)
			if err == nil {
				prog.Spec.Programs[codegen.ProgramName].Name = handName()
			}
			return prog, err
		}
	}
	o := UpOptions{Dev: "lv0", PolicyPath: "/etc/new.levee", Source: []byte(text)}
	if p.OnError != policy.KeepLast {
		o.Fallbacks = fallbacks(compile(p.Fallback(true)), compile(p.Fallback(false)))
	}
	return Up(stepping(t.Context(), func(step string) error {
		if fail(step) {
			return errInjected
		}
		return nil
	}), o, compile(p))
}

// fallbacks returns the programs that `on error` falls back to, in the order of trial.
func fallbacks(all ...CompileFunc) (out []Fallback) {
	for _, c := range all {
		out = append(out, Fallback{Compile: c})
	}
	return out
}

// first fails a step the first so many times.
func first(name string, times int) func(string) bool {
	return func(step string) bool {
		if step != name {
			return false
		}
		times--
		return times >= 0
	}
}

func TestOnErrorPutsTheFallbackInForce(t *testing.T) {
	n := newTestNet(t)
	for _, c := range []struct {
		name  string
		fail  string
		times int
		sets  int
		fresh bool
	}{
		{"load", "load", 1, 1, false},
		{"attach", "swap", 1, 1, false},
		{"first policy, load", "load", 1, 1, true},
		{"first policy, attach", "swap", 1, 1, true},
		{"with the sets it cannot be loaded either", "load", 2, 0, false},
	} {
		n.run(t, c.name, func(t *testing.T) {
			if c.fresh {
				_, _ = Down(t.Context(), "lv0")
			} else if err := bringPolicy(t, "lv0", abuserPolicy(100), 0); err != nil {
				t.Fatal(err)
			} else if _, err := sets.Add(t.Context(), "", "abusers",
				entriesOf("198.51.100.1/32")); err != nil {
				t.Fatal(err)
			}
			rep, err := bringWithFallback(t, onErrorText, first(c.fail, c.times))
			if err != nil || rep == nil || !errors.Is(rep.Fallback, attach.ErrUnable) ||
				!errors.Is(rep.Fallback, errInjected) {
				t.Fatalf("%+v, %v", rep, err)
			}
			a := status(t)
			if !strings.Contains(a.OnError, "injected") || filepath.Base(a.Policy) != "new.levee" ||
				len(a.Sets) != c.sets {
				t.Errorf("%+v", a)
			}
			if c.sets == 1 && !c.fresh && a.Sets[0].Entries != 1 {
				t.Errorf("sets %+v", a.Sets)
			}
			admin, other := packets(&a, "admin"), packets(&a, "default")
			n.from(t, "192.0.2.1")
			n.from(t, "203.0.113.1")
			wantPackets(t, "admin", admin+1)
			wantPackets(t, "default", other+1)
			for _, s := range a.Counters {
				if s.Reason == "rule" || s.Reason == "default" &&
					(s.Action != "drop" || s.Line != 1) {
					t.Errorf("counter %+v", s)
				}
			}
			// The next policy that can be loaded ends it.
			if rep, err = bringWithFallback(t, onErrorText, first("", 0)); err != nil ||
				rep.Fallback != nil {
				t.Fatal(rep, err)
			}
			if a := status(t); a.OnError != "" || len(a.Sets) != 1 {
				t.Errorf("%+v", a)
			}
		})
	}
}

func TestLastGoodPolicyStays(t *testing.T) {
	n := newTestNet(t)
	for _, c := range []struct {
		name, text string
		fail       func(string) bool
	}{
		{"without on error", strings.TrimPrefix(onErrorText, "on error drop\n"), first("load", 1)},
		{"no error of the machine", onErrorText, first("compile", 1)},
		{"on the way", onErrorText, first("pin", 1)},
		{"the fallback fails too", onErrorText, first("load", 3)},
		{"a set that does not fit", strings.Replace(onErrorText, "max 100", "max 1", 1),
			first("", 0)},
	} {
		n.run(t, c.name, func(t *testing.T) {
			if err := bringPolicy(t, "lv0", abuserPolicy(100), 0); err != nil {
				t.Fatal(err)
			}
			if _, err := sets.Add(t.Context(), "", "abusers",
				entriesOf("198.51.100.1/32", "198.51.100.2/32")); err != nil {
				t.Fatal(err)
			}
			before := status(t)
			rep, err := bringWithFallback(t, c.text, c.fail)
			if err == nil || rep != nil {
				t.Errorf("%+v, %v", rep, err)
			}
			if after := status(t); after.Program.ID != before.Program.ID || after.OnError != "" {
				t.Errorf("program %d of %s is in force: %v", after.Program.ID, after.Policy, err)
			}
		})
	}
}

// refuseDecoder has the kernel's verifier refuse the careful decoder, as that of Linux 6.1 once
// did.
func refuseDecoder(t *testing.T, p *codegen.Program) {
	t.Helper()
	ins := p.Spec.Programs[codegen.ProgramName].Instructions
	for i := range ins {
		if f := btf.FuncMetadata(&ins[i]); f != nil && strings.HasPrefix(f.Name, "parse_") {
			bad := asm.Mov.Reg(asm.R0, asm.R9) // a register without a value
			bad.Metadata = ins[i].Metadata
			ins[i] = bad
			return
		}
	}
}

// The fallback has to be in force where the kernel refuses what every policy has.
func TestOnErrorIsInForceWhereTheDecoderIsRefused(t *testing.T) {
	n := newTestNet(t)
	p, ds := resolve.Parse("new.levee", []byte(onErrorText), nil)
	if ds.HasErrors() {
		t.Fatal(ds)
	}
	refused := func(p *policy.Policy) CompileFunc {
		return func(target codegen.Target) (*codegen.Program, error) {
			prog, err := codegen.Compile(p, target)
			if err == nil {
				prog.Spec.Programs[codegen.ProgramName].Name = handName()
				refuseDecoder(t, prog)
			}
			return prog, err
		}
	}
	last := refused(p.Fallback(false))
	for _, mode := range allModes(t) {
		for _, trial := range []time.Duration{0, time.Hour} {
			n.run(t, fmt.Sprint(mode, ", trial ", trial), func(t *testing.T) {
				o := UpOptions{Dev: "lv0", Mode: mode, Confirm: trial, PolicyPath: "/etc/new.levee"}
				o.Fallbacks = fallbacks(refused(p.Fallback(true)), last)
				if rep, err := Up(t.Context(), o, refused(p)); rep != nil ||
					!errors.Is(err, attach.ErrUnable) {
					t.Fatalf("with the decoder: %+v, %v", rep, err)
				}
				o.Fallbacks = append(o.Fallbacks, Fallback{Compile: Plainly(last)})
				rep, err := Up(t.Context(), o, refused(p))
				if err != nil || !errors.Is(rep.Fallback, attach.ErrUnable) {
					t.Fatalf("%+v, %v", rep, err)
				}
				if a := status(t); !strings.Contains(a.OnError,
					"the kernel takes no careful decoder") {
					t.Errorf("on error: %q", a.OnError)
				}
				n.from(t, "192.0.2.1")
				n.from(t, "203.0.113.1")
				wantPackets(t, "admin", 1)
				wantPackets(t, "default", 1)
				if _, err := Down(t.Context(), "lv0"); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
