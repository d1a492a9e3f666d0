package main

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane"
	"levee/internal/filter/state"
	"levee/internal/host/atomicfile"
	"levee/internal/openmetrics"
	"levee/internal/openmetrics/exporter"
)

const metricsLong = `Print what monitoring reads, as OpenMetrics: packets and bytes by rule,
entries of dynamic sets, trials, and what is in force where, for every interface.

--write puts it into a file in one step, in the text format of Prometheus, for the textfile
collector of node_exporter; a timer runs it. --listen serves it over HTTP at /metrics until a
signal: at a port of the loopback address, at an address that you name, or at unix:PATH. There
is no password: at other addresses than loopback everybody who reaches the port can read it.

A rule is named by its identity, as counters are when the policy is replaced: "label:NAME" with
a label, else "text:RULE#1".`

const metricsExample = `  sudo levee metrics
  sudo levee metrics --write /var/lib/prometheus/node-exporter/levee.prom
  sudo levee metrics --listen 9469`

type metricsFlags struct {
	status        statusFlags
	write, listen string
}

func newMetrics(e *env) *cobra.Command {
	var f metricsFlags
	cmd := &cobra.Command{
		Use:     "metrics",
		Short:   "Print or serve what Prometheus reads, by rule and set",
		Long:    metricsLong,
		Example: metricsExample,
		Args:    cli.WantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.write != "" && f.listen != "":
				return cli.Usagef(cmd, "--write and --listen exclude each other")
			case f.status.all && f.status.dev != "":
				return cli.Usagef(cmd, "--all and --dev exclude each other")
			case f.listen != "":
				network, address, err := exporter.Address(f.listen)
				if err != nil {
					return cli.Usagef(cmd, "--listen: %v", err)
				}
				return e.serveMetrics(&f, network, address)
			case f.write != "":
				text, err := e.metrics(&f, openmetrics.Text)
				if err != nil {
					return err
				}
				return atomicfile.Write(f.write, text, 0o644)
			}
			text, err := e.metrics(&f, openmetrics.OpenMetrics)
			if err != nil {
				return err
			}
			_, err = e.Stdout.Write(text)
			return err
		},
	}
	cli.DevFlag(cmd, &f.status.dev, "only this interface")
	cmd.Flags().BoolVar(&f.status.all, "all", false, "of all network namespaces")
	cmd.Flags().StringVar(&f.write, "write", "", "into this file, for node_exporter")
	cmd.Flags().StringVar(&f.listen, "listen", "",
		"serve it: PORT, ADDRESS:PORT or unix:PATH")
	return cmd
}

// metrics is the text of what runs where now.
func (e *env) metrics(f *metricsFlags, format openmetrics.Format) ([]byte, error) {
	rep, err := e.readStatus(&f.status)
	if err != nil {
		return nil, err
	}
	return openmetrics.Append(nil, format, metricsOf(rep, f.status.all)), nil
}

// metricsOf are the metrics of a report. With spaces they name the network namespace too, since the
// names of interfaces are not unique then.
func metricsOf(rep *statusReport, spaces bool) []openmetrics.Family {
	const (
		info = iota
		since
		trial
		fallback
		standIn
		changed
		seen
		past
		rulePackets
		ruleBytes
		entries
		most
		refused
	)
	all := []openmetrics.Family{
		info: {Name: "levee_policy", Type: openmetrics.Info,
			Help: "The policy in force, the SHA-256 of its text, and the hook."},
		since: {Name: "levee_policy_since_seconds", Unit: "seconds",
			Help: "When the policy came into force, in seconds since 1970."},
		trial: {Name: "levee_trial_seconds", Unit: "seconds",
			Help: "Time that is left to confirm the policy; 0 if it is not on trial."},
		fallback: {Name: "levee_fallback",
			Help: "1 if the policy could not be loaded, and what \"on error\" says is in force."},
		standIn: {Name: "levee_stand_in",
			Help: "1 if a policy that was in force before is so in place of one that cannot be."},
		changed: {Name: "levee_changed_files",
			Help: "Files of the policy that hold something else than when it was put in force."},
		seen: {Name: "levee_judging",
			Help: "1 if packets were seen to be judged since the policy came, and still are."},
		past: {Name: "levee_past",
			Help: "1 if packets come past the policy, or are judged otherwise than it says."},
		rulePackets: {Name: "levee_rule_packets", Unit: "packets", Type: openmetrics.Counter,
			Help: "Packets that the rule decided, or counted; at tc a merged one is one."},
		ruleBytes: {Name: "levee_rule_bytes", Unit: "bytes", Type: openmetrics.Counter,
			Help: "Bytes of these packets, without the frame check sequence."},
		entries: {Name: "levee_set_entries", Unit: "entries",
			Help: "Entries of the dynamic set."},
		most: {Name: "levee_set_max_entries", Unit: "entries",
			Help: "Entries that the dynamic set has room for."},
		refused: {Name: "levee_set_refused_entries", Unit: "entries", Type: openmetrics.Counter,
			Help: "Entries that were not taken, because the dynamic set was full."},
	}
	// Those of memories follow, in the order of the table.
	memories := len(all)
	values := state.Values()
	for _, v := range values {
		f := openmetrics.Family{Name: v.Metric, Unit: v.Unit, Help: v.Help}
		if v.Counter {
			f.Type = openmetrics.Counter
		}
		all = append(all, f)
	}
	add := func(family int, v float64, labels []openmetrics.Label) {
		f := &all[family]
		f.Samples = append(f.Samples, openmetrics.Sample{Labels: labels, Value: v})
	}
	for i := range rep.Interfaces {
		s := &rep.Interfaces[i]
		at := []openmetrics.Label{{Name: "dev", Value: s.Dev}}
		if spaces {
			at = append(at, openmetrics.Label{Name: "netns",
				Value: strconv.FormatUint(s.Netns, 10)})
		}
		at = at[:len(at):len(at)]
		add(info, 1, append(at, openmetrics.Label{Name: "policy", Value: string(s.Policy)},
			openmetrics.Label{Name: "hash", Value: s.Hash},
			openmetrics.Label{Name: "hook", Value: s.Hook}))
		add(since, float64(s.Since.UnixMilli())/1000, at)
		add(trial, s.TrialSeconds, at)
		add(fallback, oneIf(s.OnError != ""), at)
		add(standIn, oneIf(s.Instead != ""), at)
		add(changed, float64(len(s.Changed)), at)
		add(seen, oneIf(s.Judging.State == string(dataplane.Seen)), at)
		add(past, oneIf(s.Judging.why != ""), at)
		for _, r := range s.Rules {
			labels := append(at, openmetrics.Label{Name: "rule", Value: shortIdentity(r.id)},
				openmetrics.Label{Name: "label", Value: r.Label},
				openmetrics.Label{Name: "verdict", Value: r.Verdict},
				openmetrics.Label{Name: "reason", Value: r.Reason})
			add(rulePackets, float64(r.Packets), labels)
			add(ruleBytes, float64(r.Bytes), labels)
		}
		for _, set := range s.Sets {
			labels := append(at, openmetrics.Label{Name: "set", Value: set.Name})
			add(entries, float64(set.Entries), labels)
			add(most, float64(set.Max), labels)
			add(refused, float64(set.Refused), labels)
		}
		for j, v := range values {
			for _, sample := range v.Of(&s.Memories) {
				labels := at
				if l := sample.Limit; l != nil {
					labels = append(at, openmetrics.Label{Name: "rule", Value: shortIdentity(l.ID)},
						openmetrics.Label{Name: "label", Value: l.Label})
				}
				add(memories+j, sample.V, labels)
			}
		}
	}
	return all
}

func oneIf(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}

// shortIdentity is a rule's identity, of a long one its beginning with a hash of all: a rule with a
// list may have a megabyte, and monitoring systems keep each of these texts.
func shortIdentity(id string) string {
	const most = 160
	if len(id) <= most {
		return id
	}
	return fmt.Sprintf("%s...%.8x", strings.ToValidUTF8(id[:most], ""), sha256.Sum256([]byte(id)))
}

// serveMetrics answers over HTTP until a signal.
func (e *env) serveMetrics(f *metricsFlags, network, address string) error {
	if _, err := e.readStatus(&f.status); err != nil {
		return err
	}
	ctx, stop := e.Signals()
	defer stop()
	l, err := exporter.Listen(network, address)
	if err != nil {
		return err
	}
	if network == "tcp" {
		address = "http://" + address + "/metrics"
	}
	e.Sayf("serving %s, until Ctrl-C", address)
	return exporter.Serve(ctx, l, func(format openmetrics.Format) ([]byte, error) {
		return e.metrics(f, format)
	})
}
