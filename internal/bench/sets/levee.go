package sets

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"time"

	"levee/internal/bench/load"
	"levee/internal/bench/lookup"
	"levee/internal/dataplane/sets"
	"levee/internal/lab/contender"
	"levee/internal/lang/literal"
)

// list is prefixes, one a line.
func list(prefixes []netip.Prefix) []byte {
	b := make([]byte, 0, 20*len(prefixes))
	for _, p := range prefixes {
		b = append(p.AppendTo(b), '\n')
	}
	return b
}

// leveeStatic returns a set that the policy reads from a file.
func leveeStatic(prefixes []netip.Prefix) load.Spec {
	p := &load.Levee{Text: []byte("set s = file(\"s\")\ndrop from s as \"s\"\ndefault pass\n"),
		Files: map[string][]byte{"s": list(prefixes)}}
	return p.Spec(lookup.Structures[0].Name,
		"levee, the set read from a file; a change is the whole policy anew", nil)
}

// addsTimed is at most how many entries are taken out and put in again, one by one, for the rate.
const addsTimed = 100_000

// readEntries reads a file of prefixes, as `levee set add --from` and all other tools must.
func readEntries(file []byte) ([]sets.Entry, error) {
	prefixes, diags := literal.ReadPrefixes(bytes.NewReader(file), "s")
	if diags.HasErrors() {
		return nil, fmt.Errorf("the entries made for the measurement: %w", diags.Err())
	}
	entries := make([]sets.Entry, len(prefixes))
	for i, p := range prefixes {
		entries[i].Prefix = p
	}
	return entries, nil
}

// leveeDynamic returns a dynamic set with leases.
func leveeDynamic(prefixes []netip.Prefix, fresh netip.Addr) load.Spec {
	one := sets.Entry{Prefix: netip.PrefixFrom(fresh, fresh.BitLen())}
	text := fmt.Appendf(nil, "set s = dynamic(max %d, lease 1h)\ndrop from s as "+
		"\"s\"\ndefault pass\n", len(prefixes)+1)
	file := list(prefixes)
	spec := (&load.Levee{Text: text}).Spec(lookup.Structures[1].Name,
		"levee, a dynamic set filled from a file; a change is one entry through the library", nil)
	fill := spec.Install
	spec.Off, spec.On = nil, nil // what is taken down loses its entries
	spec.Install = func(ctx context.Context, s contender.Site) error {
		if err := fill(ctx, s); err != nil {
			return err
		}
		entries, err := readEntries(file)
		if err != nil {
			return err
		}
		return s.Host.Do(func() error {
			_, err := sets.Add(ctx, s.Device, "s", entries)
			return err
		})
	}
	spec.Change = func(ctx context.Context, s contender.Site) error {
		return s.Host.Do(func() error {
			_, err := sets.Add(ctx, s.Device, "s", []sets.Entry{one})
			return err
		})
	}
	spec.Rate = func(ctx context.Context, s contender.Site) (perSecond float64, err error) {
		err = s.Host.Do(func() error {
			perSecond, err = addsPerSecond(ctx, s.Device, prefixes[:min(len(prefixes), addsTimed)])
			return err
		})
		return perSecond, err
	}
	return spec
}

// addsPerSecond takes entries out and puts them in again, one by one.
func addsPerSecond(ctx context.Context, device string, prefixes []netip.Prefix) (float64, error) {
	set, err := sets.Open(ctx, device, "s")
	if err != nil {
		return 0, err
	}
	defer set.Close()
	if _, err := set.Delete(ctx, prefixes...); err != nil {
		return 0, err
	}
	start := time.Now()
	for i := range prefixes {
		if err := set.Add(ctx, sets.Entry{Prefix: prefixes[i]}); err != nil {
			return 0, err
		}
	}
	return float64(len(prefixes)) / time.Since(start).Seconds(), nil
}
