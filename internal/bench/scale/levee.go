package scale

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"levee/internal/dataplane"
	"levee/internal/filter/codegen"
	"levee/internal/lab/contender"
	"levee/internal/lang/policy"
)

// inForce is a policy that a tool puts into force as `levee up` does. The programs of the last load are kept, so that
// it can be switched off and on without compiling it again.
type inForce struct {
	text     []byte
	files    map[string][]byte // that it may read
	programs map[codegen.Target]*codegen.Program
}

// load compiles the policy and puts it into force.
func (p *inForce) load(ctx context.Context, s contender.Site) error {
	resolved, err := parse(p.text, p.files)
	if err != nil {
		return err
	}
	p.programs = map[codegen.Target]*codegen.Program{}
	return p.up(ctx, s, func(t codegen.Target) (*codegen.Program, error) {
		prog, err := codegen.Compile(resolved, t)
		if err == nil {
			p.programs[t] = prog
		}
		return prog, err
	})
}

// again puts it into force once more.
func (p *inForce) again(ctx context.Context, s contender.Site) error {
	return p.up(ctx, s, func(t codegen.Target) (*codegen.Program, error) {
		if prog := p.programs[t]; prog != nil {
			return prog, nil
		}
		return nil, fmt.Errorf("the policy was compiled for another target than %+v", t)
	})
}

func (p *inForce) up(ctx context.Context, s contender.Site, compile dataplane.CompileFunc) error {
	return s.Host.Do(func() error {
		_, err := dataplane.Up(ctx, dataplane.UpOptions{Dev: s.Device, Mode: dataplane.XDPNative, PolicyPath: policyName, Source: p.text}, compile)
		return err
	})
}

const policyName = "scale.levee"

func parse(text []byte, files map[string][]byte) (*policy.Policy, error) {
	p, diags := policy.Parse(policyName, text, func(name string) (io.ReadCloser, error) {
		b, ok := files[name]
		if !ok {
			return nil, fmt.Errorf("no file %s", name)
		}
		return io.NopCloser(bytes.NewReader(b)), nil
	})
	if diags.HasErrors() {
		return nil, fmt.Errorf("the policy made for the measurement: %w", diags.Err())
	}
	return p, nil
}

func takeDown(ctx context.Context, s contender.Site) error {
	return s.Host.Do(func() error {
		all, _, err := dataplane.Status(ctx, false)
		if err != nil || len(all) == 0 {
			return err
		}
		_, err = dataplane.Down(ctx, s.Device)
		return err
	})
}

// leveeDrops adds up levee's counters of rules that drop.
func leveeDrops(ctx context.Context, s contender.Site) (sum uint64, err error) {
	err = s.Host.Do(func() error {
		all, _, err := dataplane.Status(ctx, false)
		if err != nil {
			return err
		}
		for _, a := range all {
			if a.Dev != s.Device {
				continue
			}
			for _, c := range a.Counters {
				if c.Action == policy.Drop.String() {
					sum += c.Packets
				}
			}
			return nil
		}
		return errors.New("levee is not in force any more: somebody took it down")
	})
	return sum, err
}

// list is prefixes, one a line.
func list(prefixes []netip.Prefix) []byte {
	b := make([]byte, 0, 20*len(prefixes))
	for _, p := range prefixes {
		b = append(p.AppendTo(b), '\n')
	}
	return b
}

// leveeStatic is a set that the policy reads from a file.
func leveeStatic(prefixes []netip.Prefix) *tool {
	text := []byte("set s = file(\"s\")\ndrop from s as \"s\"\ndefault pass\n")
	p := &inForce{text: text, files: map[string][]byte{"s": list(prefixes)}}
	return &tool{
		name: structures[0].name, what: "levee, the set read from a file; a change is the whole policy anew", hook: contender.XDP,
		install: p.load, change: p.load, off: takeDown, on: p.again, dropped: leveeDrops, remove: takeDown,
	}
}

// addsTimed is at most how many entries are taken out and put in again, one by one, for the rate.
const addsTimed = 100_000

// readEntries reads a file of prefixes, as `levee set add --from` and all other tools must.
func readEntries(file []byte) ([]dataplane.SetEntry, error) {
	prefixes, diags := policy.ReadPrefixes(bytes.NewReader(file), "s")
	if diags.HasErrors() {
		return nil, fmt.Errorf("the entries made for the measurement: %w", diags.Err())
	}
	entries := make([]dataplane.SetEntry, len(prefixes))
	for i, p := range prefixes {
		entries[i].Prefix = p
	}
	return entries, nil
}

// leveeDynamic is a dynamic set with leases.
func leveeDynamic(prefixes []netip.Prefix, fresh netip.Addr) *tool {
	one := dataplane.SetEntry{Prefix: netip.PrefixFrom(fresh, fresh.BitLen())}
	text := fmt.Appendf(nil, "set s = dynamic(max %d, lease 1h)\ndrop from s as \"s\"\ndefault pass\n", len(prefixes)+1)
	file := list(prefixes)
	return &tool{
		name: structures[1].name, what: "levee, a dynamic set filled from a file; a change is one entry through the library", hook: contender.XDP,
		install: func(ctx context.Context, s contender.Site) error {
			if err := (&inForce{text: text}).load(ctx, s); err != nil {
				return err
			}
			entries, err := readEntries(file)
			if err != nil {
				return err
			}
			return s.Host.Do(func() error {
				_, err := dataplane.SetAdd(ctx, s.Device, "s", entries)
				return err
			})
		},
		change: func(ctx context.Context, s contender.Site) error {
			return s.Host.Do(func() error {
				_, err := dataplane.SetAdd(ctx, s.Device, "s", []dataplane.SetEntry{one})
				return err
			})
		},
		rate: func(ctx context.Context, s contender.Site) (perSecond float64, err error) {
			err = s.Host.Do(func() error {
				set, err := dataplane.OpenSet(ctx, s.Device, "s")
				if err != nil {
					return err
				}
				defer set.Close()
				some := prefixes[:min(len(prefixes), addsTimed)]
				if _, err := set.Delete(ctx, some...); err != nil {
					return err
				}
				start := time.Now()
				for i := range some {
					if err := set.Add(ctx, dataplane.SetEntry{Prefix: some[i]}); err != nil {
						return err
					}
				}
				perSecond = float64(len(some)) / time.Since(start).Seconds()
				return nil
			})
			return perSecond, err
		},
		dropped: leveeDrops, remove: takeDown,
	}
}

// leveeRules is a policy of rules; more is one rule of the policy's language for a change.
func leveeRules(text, more []byte) *tool {
	p, changed := &inForce{text: text}, &inForce{text: append(bytes.Clone(more), text...)}
	return &tool{
		name: "levee", what: "levee, all rules compiled; a change is the whole policy anew", hook: contender.XDP,
		install: p.load, change: changed.load, off: takeDown, on: p.again, dropped: leveeDrops, remove: takeDown,
	}
}
