package contender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"levee/internal/lab"
)

// NFT is nftables at netdev ingress with the rules of the demo policy.
func NFT() Defence {
	return &nft{
		name: "nft netdev ingress", tables: []string{"netdev levee_demo"}, rules: nftRules,
		what: "nftables at netdev ingress, its first hook; the same rules, a counter each",
	}
}

// nft are tables of nftables; packets meet that of family netdev first.
type nft struct {
	name, what string
	tables     []string // family and name
	rules      string   // with %[1]s for the device
	site       Site
}

func (n *nft) Name() string     { return n.name }
func (n *nft) Hook() Hook       { return NetdevIn }
func (n *nft) Rules() string    { return fmt.Sprintf(n.rules, "eth0") }
func (n *nft) Describe() string { return n.what }

func (n *nft) Install(ctx context.Context, s Site) error {
	n.site = s
	if err := Need("nft", "nftables"); err != nil {
		return err
	}
	_, err := Run(ctx, s.Host, fmt.Appendf(nil, n.rules, s.Device), "nft", "-f", "-")
	return err
}

// nftListing is the part of `nft --json list table` that is read.
type nftListing struct {
	Nftables []struct {
		Rule *struct {
			Expr []struct {
				Counter *struct {
					Packets uint64 `json:"packets"`
				} `json:"counter"`
				Drop json.RawMessage `json:"drop"`
			} `json:"expr"`
		} `json:"rule"`
	} `json:"nftables"`
}

func (n *nft) Dropped(ctx context.Context) (uint64, error) {
	var sum uint64
	for _, t := range n.tables {
		family, name, _ := strings.Cut(t, " ")
		out, err := Run(ctx, n.site.Host, nil, "nft", "--json", "list", "table", family, name)
		if err != nil {
			return 0, err
		}
		dropped, err := nftDropped(out)
		if err != nil {
			return 0, err
		}
		sum += dropped
	}
	return sum, nil
}

// nftDropped adds up the counters of the rules that drop.
func nftDropped(listing []byte) (uint64, error) {
	var l nftListing
	if err := json.Unmarshal(listing, &l); err != nil {
		return 0, fmt.Errorf("reading what nft lists: %w", err)
	}
	var sum uint64
	rules := 0
	for _, e := range l.Nftables {
		if e.Rule == nil {
			continue
		}
		rules++
		var packets uint64
		drops := false
		for _, x := range e.Rule.Expr {
			if x.Counter != nil {
				packets = x.Counter.Packets
			}
			drops = drops || x.Drop != nil
		}
		if drops {
			sum += packets
		}
	}
	if rules == 0 {
		return 0, errors.New("nft lists no rules: somebody removed them")
	}
	return sum, nil
}

func (n *nft) Remove(ctx context.Context) error {
	if n.site.Host == nil {
		return nil // never installed
	}
	var script []byte
	for _, t := range n.tables {
		// Declared first, so that deleting what is not there is no error.
		script = fmt.Appendf(script, "table %[1]s {}\ndelete table %[1]s\n", t)
	}
	_, err := Run(ctx, n.site.Host, script, "nft", "-f", "-")
	return err
}

// IPTables returns the chain INPUT of iptables and ip6tables with the rules of the demo policy.
func IPTables() Defence {
	return &iptables{
		name: "iptables INPUT", hook: LocalIn, counts: chain{"filter", "INPUT"},
		sets: ipsetRules, rules4: iptablesRules, rules6: ip6tablesRules,
		what: "iptables and ip6tables, chain INPUT, as Debian ships them; the same rules, sets " +
			"by ipset",
	}
}

// chain is one of those that iptables has from the start.
type chain struct{ table, name string }

// iptables are rules of iptables and of ip6tables, and the sets of both.
type iptables struct {
	name, what     string
	hook           Hook
	sets           string
	rules4, rules6 string
	counts         chain   // where the rules with target DROP are
	further        []chain // with rules
	site           Site
}

func (t *iptables) Name() string     { return t.name }
func (t *iptables) Hook() Hook       { return t.hook }
func (t *iptables) Describe() string { return t.what }

func (t *iptables) Rules() string {
	if t.rules4 == t.rules6 {
		return t.sets + t.rules4
	}
	return t.sets + t.rules4 + t.rules6
}

// families returns the programs, with the command by which each loads its rules.
func (t *iptables) families() []struct{ list, restore, rules string } {
	all := []struct{ list, restore, rules string }{{"iptables", "iptables-restore", t.rules4}}
	if lab.HaveIPv6() {
		all = append(all, struct{ list, restore, rules string }{"ip6tables", "ip6tables-restore",
			t.rules6})
	}
	return all
}

func (t *iptables) Install(ctx context.Context, s Site) error {
	t.site = s
	if err := Need("iptables-restore", "iptables"); err != nil {
		return err
	}
	if t.sets != "" {
		if err := Need("ipset", "ipset"); err != nil {
			return err
		}
		if _, err := Run(ctx, s.Host, []byte(t.sets), "ipset", "restore"); err != nil {
			return err
		}
	}
	for _, f := range t.families() {
		if _, err := Run(ctx, s.Host, []byte(f.rules), f.restore); err != nil {
			return err
		}
	}
	return nil
}

func (t *iptables) Dropped(ctx context.Context) (uint64, error) {
	var sum uint64
	for _, f := range t.families() {
		out, err := Run(ctx, t.site.Host, nil, f.list, "-w", "-t", t.counts.table, "-nvxL",
			t.counts.name)
		if err != nil {
			return 0, err
		}
		n, err := iptablesDropped(string(out))
		if err != nil {
			return 0, fmt.Errorf("reading what %s lists: %w", f.list, err)
		}
		sum += n
	}
	return sum, nil
}

// iptablesDropped adds up the counters of the rules with target DROP: columns pkts, bytes, target.
func iptablesDropped(listing string) (uint64, error) {
	var sum uint64
	drops := 0
	for line := range strings.Lines(listing) {
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != "DROP" {
			continue
		}
		n, err := strconv.ParseUint(f[0], 10, 64)
		if err != nil {
			return 0, err
		}
		drops++
		sum += n
	}
	if drops == 0 {
		return 0, errors.New("no rule drops: somebody removed them")
	}
	return sum, nil
}

// Remove also takes the chains themselves away, where iptables can (1.8.8 and later): an empty one
// is still a hook that each packet passes.
func (t *iptables) Remove(ctx context.Context) error {
	if t.site.Host == nil {
		return nil // never installed
	}
	var errs []error
	for _, f := range t.families() {
		for _, c := range append([]chain{t.counts}, t.further...) {
			_, err := Run(ctx, t.site.Host, nil, f.list, "-w", "-t", c.table, "-F", c.name)
			errs = append(errs, err)
			// An older iptables refuses to delete what is built in, which changes nothing.
			_, _ = Run(ctx, t.site.Host, nil, f.list, "-w", "-t", c.table, "-X")
		}
	}
	if t.sets != "" {
		_, err := Run(ctx, t.site.Host, nil, "ipset", "destroy")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
