package status

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"

	"levee/internal/dataplane/inspect"
	"levee/internal/filter/state"
	"levee/internal/openmetrics"
)

// Metrics are those of a report. With spaces they name the network namespace too, since the
// names of interfaces are not unique then.
func Metrics(rep *Report, spaces bool) []openmetrics.Family {
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
		cardLost
		received
		sentLost
		backlogDropped
		backlogSqueezed
		serves
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
		cardLost: {Name: "levee_lost_packets", Unit: "packets", Type: openmetrics.Counter,
			Help: "Packets that the card or its rings dropped before the policy, by the driver's " +
				"counter; two counters may count the same ones."},
		received: {Name: "levee_received_packets", Unit: "packets", Type: openmetrics.Counter,
			Help: "Packets that the kernel was given by the interface."},
		sentLost: {Name: "levee_lost_sent_packets", Unit: "packets", Type: openmetrics.Counter,
			Help: "Packets that the queues to the wire dropped."},
		backlogDropped: {Name: "levee_backlog_dropped_packets", Unit: "packets",
			Type: openmetrics.Counter,
			Help: "Packets of all interfaces that found the backlog of a CPU full."},
		backlogSqueezed: {Name: "levee_backlog_squeezed_rounds", Unit: "rounds",
			Type: openmetrics.Counter,
			Help: "Receive rounds of a CPU that ended with packets left."},
		serves: {Name: "levee_service",
			Help: "1 if the policy of the service is in force at its cgroup, which is there " +
				"while it runs, or is a filter of sockets."},
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
	addPolicy := func(at []openmetrics.Label, policy, hash, hook string, began time.Time,
		files int) {
		add(info, 1, append(at, openmetrics.Label{Name: "policy", Value: policy},
			openmetrics.Label{Name: "hash", Value: hash},
			openmetrics.Label{Name: "hook", Value: hook}))
		add(since, float64(began.UnixMilli())/1000, at)
		add(changed, float64(files), at)
	}
	addCounts := func(at []openmetrics.Label, rules []Rule, sets []Set, of *state.Memories) {
		for _, r := range rules {
			labels := append(at, openmetrics.Label{Name: "rule", Value: shortIdentity(r.ID)},
				openmetrics.Label{Name: "label", Value: r.Label},
				openmetrics.Label{Name: "verdict", Value: r.Verdict},
				openmetrics.Label{Name: "reason", Value: r.Reason})
			add(rulePackets, float64(r.Packets), labels)
			add(ruleBytes, float64(r.Bytes), labels)
		}
		for _, set := range sets {
			labels := append(at, openmetrics.Label{Name: "set", Value: set.Name})
			add(entries, float64(set.Entries), labels)
			add(most, float64(set.Max), labels)
			add(refused, float64(set.Refused), labels)
		}
		for j, v := range values {
			for _, sample := range v.Of(of) {
				labels := at
				if sample.Ring != "" {
					labels = append(at, openmetrics.Label{Name: "ring", Value: sample.Ring})
				}
				if l := sample.Limit; l != nil {
					labels = append(at, openmetrics.Label{Name: "rule", Value: shortIdentity(l.ID)},
						openmetrics.Label{Name: "label", Value: l.Label})
				}
				add(memories+j, sample.V, labels)
			}
		}
	}
	for i := range rep.Services {
		s := &rep.Services[i]
		at := []openmetrics.Label{{Name: "service", Value: s.Service}}
		at = at[:1:1]
		addPolicy(at, string(s.Policy), s.Hash, s.Hook, s.Since, len(s.Changed))
		add(serves, oneIf(s.InForce), at)
		addCounts(at, s.Rules, s.Sets, &s.Memories)
	}
	for i := range rep.Interfaces {
		s := &rep.Interfaces[i]
		at := []openmetrics.Label{{Name: "dev", Value: s.Dev}}
		if spaces {
			at = append(at, openmetrics.Label{Name: "netns",
				Value: strconv.FormatUint(s.Netns, 10)})
		}
		at = at[:len(at):len(at)]
		addPolicy(at, string(s.Policy), s.Hash, s.Hook, s.Since, len(s.Changed))
		add(trial, s.TrialSeconds, at)
		add(fallback, oneIf(s.OnError != ""), at)
		add(standIn, oneIf(s.Instead != ""), at)
		add(seen, oneIf(s.Judging.State == string(inspect.Seen)), at)
		add(past, oneIf(s.Judging.Why != ""), at)
		if l := s.Lost; l != nil {
			add(received, float64(l.Received), at)
			add(sentLost, float64(l.Sent), at)
			for _, c := range l.Card {
				labels := append(at, openmetrics.Label{Name: "counter", Value: c.Name})
				if c.Queue != nil {
					labels = append(labels, openmetrics.Label{Name: "queue",
						Value: strconv.Itoa(*c.Queue)})
				}
				add(cardLost, float64(c.Packets), labels)
			}
		}
		addCounts(at, s.Rules, s.Sets, &s.Memories)
	}
	if len(rep.Interfaces) == 0 {
		return all // levee does nothing here
	}
	for _, b := range rep.Backlogs {
		at := []openmetrics.Label{{Name: "cpu", Value: strconv.Itoa(b.CPU)}}
		add(backlogDropped, float64(b.Dropped), at)
		add(backlogSqueezed, float64(b.Squeezed), at)
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
