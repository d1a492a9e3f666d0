package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// NFT is nftables at netdev ingress.
func NFT() Defence { return &nft{} }

type nft struct{ site Site }

func (*nft) Name() string  { return "nft netdev ingress" }
func (*nft) Hook() Hook    { return NetdevIn }
func (*nft) Rules() string { return fmt.Sprintf(nftRules, "eth0") }
func (*nft) Describe() string {
	return "nftables at netdev ingress, its first hook; the same rules, a counter each"
}

func (n *nft) Install(ctx context.Context, s Site) error {
	n.site = s
	if err := need("nft", "nftables"); err != nil {
		return err
	}
	_, err := run(ctx, s.Host, fmt.Sprintf(nftRules, s.Device), "nft", "-f", "-")
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
	out, err := run(ctx, n.site.Host, "", "nft", "--json", "list", "table", "netdev", "levee_demo")
	if err != nil {
		return 0, err
	}
	return nftDropped(out)
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
	// Declared first, so that deleting what is not there is no error.
	_, err := run(ctx, n.site.Host, "table netdev levee_demo {}\ndelete table netdev levee_demo\n", "nft", "-f", "-")
	return err
}

// IPTables is the chain INPUT of iptables and ip6tables.
func IPTables() Defence { return &iptables{} }

type iptables struct{ site Site }

func (*iptables) Name() string  { return "iptables INPUT" }
func (*iptables) Hook() Hook    { return LocalIn }
func (*iptables) Rules() string { return ipsetRules + iptablesRules + ip6tablesRules }
func (*iptables) Describe() string {
	return "iptables and ip6tables, chain INPUT, as Debian ships them; the same rules, sets by ipset"
}

func (t *iptables) Install(ctx context.Context, s Site) error {
	t.site = s
	for program, pkg := range map[string]string{"iptables-restore": "iptables", "ipset": "ipset"} {
		if err := need(program, pkg); err != nil {
			return err
		}
	}
	for _, step := range []struct{ program, input string }{
		{"ipset", ipsetRules}, {"iptables-restore", iptablesRules}, {"ip6tables-restore", ip6tablesRules},
	} {
		var args []string
		if step.program == "ipset" {
			args = []string{"restore"}
		}
		if _, err := run(ctx, s.Host, step.input, step.program, args...); err != nil {
			return err
		}
	}
	return nil
}

func (t *iptables) Dropped(ctx context.Context) (uint64, error) {
	var sum uint64
	for _, program := range []string{"iptables", "ip6tables"} {
		out, err := run(ctx, t.site.Host, "", program, "-w", "-nvxL", "INPUT")
		if err != nil {
			return 0, err
		}
		n, err := iptablesDropped(string(out))
		if err != nil {
			return 0, fmt.Errorf("reading what %s lists: %w", program, err)
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

func (t *iptables) Remove(ctx context.Context) error {
	var errs []error
	for _, program := range []string{"iptables", "ip6tables"} {
		_, err := run(ctx, t.site.Host, "", program, "-w", "-F", "INPUT")
		errs = append(errs, err)
	}
	_, err := run(ctx, t.site.Host, "", "ipset", "destroy")
	return errors.Join(append(errs, err)...)
}
