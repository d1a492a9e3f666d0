package status

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"levee/internal/dataplane/inspect"
	"levee/internal/filter/state"
	"levee/internal/host/lost"
	"levee/internal/openmetrics"
)

// Indices of families. Those of memories follow them, in the order of state.Values.
const (
	policyInfo = iota
	policySince
	policyTrial
	policyFallback
	policyStandIn
	policyChanged
	policyJudging
	policyPast
	rulePackets
	ruleBytes
	setEntries
	setMost
	setRefused
	lostByCard
	receivedPackets
	lostSent
	backlogDropped
	backlogSqueezed
	serviceInForce
	firstMemory
)

// ownFamilies are the families besides those of memories, without samples.
var ownFamilies = [firstMemory]openmetrics.Family{
	policyInfo: {Name: "levee_policy", Type: openmetrics.Info,
		Help: "The policy in force, the SHA-256 of its text, and the hook."},
	policySince: {Name: "levee_policy_since_seconds", Unit: "seconds",
		Help: "When the policy came into force, in seconds since 1970."},
	policyTrial: {Name: "levee_trial_seconds", Unit: "seconds",
		Help: "Time that is left to confirm the policy; 0 if it is not on trial."},
	policyFallback: {Name: "levee_fallback",
		Help: "1 if the policy could not be loaded, and what \"on error\" says is in force."},
	policyStandIn: {Name: "levee_stand_in",
		Help: "1 if a policy that was in force before is so in place of one that cannot be."},
	policyChanged: {Name: "levee_changed_files",
		Help: "Files of the policy that hold something else than when it was put in force."},
	policyJudging: {Name: "levee_judging",
		Help: "1 if packets were seen to be judged since the policy came, and still are."},
	policyPast: {Name: "levee_past",
		Help: "1 if packets come past the policy, or are judged otherwise than it says."},
	rulePackets: {Name: "levee_rule_packets", Unit: "packets", Type: openmetrics.Counter,
		Help: "Packets that the rule decided, or counted; at tc a merged one is one."},
	ruleBytes: {Name: "levee_rule_bytes", Unit: "bytes", Type: openmetrics.Counter,
		Help: "Bytes of these packets, without the frame check sequence."},
	setEntries: {Name: "levee_set_entries", Unit: "entries",
		Help: "Entries of the dynamic set."},
	setMost: {Name: "levee_set_max_entries", Unit: "entries",
		Help: "Entries that the dynamic set has room for."},
	setRefused: {Name: "levee_set_refused_entries", Unit: "entries", Type: openmetrics.Counter,
		Help: "Entries that were not taken, because the dynamic set was full."},
	lostByCard: {Name: "levee_lost_packets", Unit: "packets", Type: openmetrics.Counter,
		Help: "Packets that the card or its rings dropped before the policy, by the driver's " +
			"counter; two counters may count the same ones."},
	receivedPackets: {Name: "levee_received_packets", Unit: "packets", Type: openmetrics.Counter,
		Help: "Packets that the kernel was given by the interface."},
	lostSent: {Name: "levee_lost_sent_packets", Unit: "packets", Type: openmetrics.Counter,
		Help: "Packets that the queues to the wire dropped."},
	backlogDropped: {Name: "levee_backlog_dropped_packets", Unit: "packets",
		Type: openmetrics.Counter,
		Help: "Packets of all interfaces that found the backlog of a CPU full."},
	backlogSqueezed: {Name: "levee_backlog_squeezed_rounds", Unit: "rounds",
		Type: openmetrics.Counter,
		Help: "Receive rounds of a CPU that ended with packets left."},
	serviceInForce: {Name: "levee_service",
		Help: "1 if the policy of the service is in force at its cgroup, which is there " +
			"while it runs, or is a filter of sockets."},
}

// families collects the samples of a report.
type families struct {
	all    []openmetrics.Family
	values []state.Value // of memories: families from firstMemory on
}

// Metrics returns the families of a report. With spaces they name the network namespace too, since
// the names of interfaces are not unique then.
func Metrics(rep *Report, spaces bool) []openmetrics.Family {
	f := newFamilies()
	for i := range rep.Services {
		f.service(&rep.Services[i])
	}
	for i := range rep.Interfaces {
		f.network(&rep.Interfaces[i], spaces)
	}
	if len(rep.Interfaces) > 0 { // else levee does nothing that a backlog could spoil
		f.backlogs(rep.Backlogs)
	}
	return f.all
}

func newFamilies() *families {
	f := &families{all: slices.Clone(ownFamilies[:]), values: state.Values()}
	for _, v := range f.values {
		of := openmetrics.Family{Name: v.Metric, Unit: v.Unit, Help: v.Help}
		if v.Counter {
			of.Type = openmetrics.Counter
		}
		f.all = append(f.all, of)
	}
	return f
}

func (f *families) add(family int, v float64, labels []openmetrics.Label) {
	of := &f.all[family]
	of.Samples = append(of.Samples, openmetrics.Sample{Labels: labels, Value: v})
}

func (f *families) service(s *Service) {
	at := []openmetrics.Label{{Name: "service", Value: s.Service}}
	at = at[:1:1]
	f.policy(at, string(s.Policy), s.Hash, s.Hook, s.Since, len(s.Changed))
	f.add(serviceInForce, oneIf(s.InForce), at)
	f.counts(at, s.Rules, s.Sets, &s.Memories)
}

func (f *families) network(s *Interface, spaces bool) {
	at := []openmetrics.Label{{Name: "dev", Value: s.Dev}}
	if spaces {
		at = append(at, openmetrics.Label{Name: "netns", Value: strconv.FormatUint(s.Netns, 10)})
	}
	at = at[:len(at):len(at)]
	f.policy(at, string(s.Policy), s.Hash, s.Hook, s.Since, len(s.Changed))
	f.add(policyTrial, s.TrialSeconds, at)
	f.add(policyFallback, oneIf(s.OnError != ""), at)
	f.add(policyStandIn, oneIf(s.Instead != ""), at)
	f.add(policyJudging, oneIf(s.Judging.State == string(inspect.Seen)), at)
	f.add(policyPast, oneIf(s.Judging.Why != ""), at)
	if l := s.Lost; l != nil {
		f.add(receivedPackets, float64(l.Received), at)
		f.add(lostSent, float64(l.Sent), at)
		for _, c := range l.Card {
			labels := append(at, openmetrics.Label{Name: "counter", Value: c.Name})
			if c.Queue != nil {
				labels = append(labels, openmetrics.Label{Name: "queue",
					Value: strconv.Itoa(*c.Queue)})
			}
			f.add(lostByCard, float64(c.Packets), labels)
		}
	}
	f.counts(at, s.Rules, s.Sets, &s.Memories)
}

// policy adds what both kinds of attachments tell of their policy. at must have no spare capacity:
// several samples append to it.
func (f *families) policy(at []openmetrics.Label, policy, hash, hook string, began time.Time,
	files int) {
	f.add(policyInfo, 1, append(at, openmetrics.Label{Name: "policy", Value: policy},
		openmetrics.Label{Name: "hash", Value: hash},
		openmetrics.Label{Name: "hook", Value: hook}))
	f.add(policySince, float64(began.UnixMilli())/1000, at)
	f.add(policyChanged, float64(files), at)
}

// counts adds counters of rules, sets and memories. at must have no spare capacity.
func (f *families) counts(at []openmetrics.Label, rules []Rule, sets []Set, of *state.Memories) {
	for _, r := range rules {
		labels := append(at, openmetrics.Label{Name: "rule", Value: shortIdentity(r.ID)},
			openmetrics.Label{Name: "label", Value: r.Label},
			openmetrics.Label{Name: "verdict", Value: r.Verdict},
			openmetrics.Label{Name: "reason", Value: r.Reason})
		f.add(rulePackets, float64(r.Packets), labels)
		f.add(ruleBytes, float64(r.Bytes), labels)
	}
	for _, set := range sets {
		labels := append(at, openmetrics.Label{Name: "set", Value: set.Name})
		f.add(setEntries, float64(set.Entries), labels)
		f.add(setMost, float64(set.Max), labels)
		f.add(setRefused, float64(set.Refused), labels)
	}
	for i, v := range f.values {
		for _, sample := range v.Of(of) {
			labels := at
			if sample.Ring != "" {
				labels = append(at, openmetrics.Label{Name: "ring", Value: sample.Ring})
			}
			if l := sample.Limit; l != nil {
				labels = append(at, openmetrics.Label{Name: "rule", Value: shortIdentity(l.ID)},
					openmetrics.Label{Name: "label", Value: l.Label})
			}
			f.add(firstMemory+i, sample.V, labels)
		}
	}
}

func (f *families) backlogs(all []lost.Backlog) {
	for _, b := range all {
		at := []openmetrics.Label{{Name: "cpu", Value: strconv.Itoa(b.CPU)}}
		f.add(backlogDropped, float64(b.Dropped), at)
		f.add(backlogSqueezed, float64(b.Squeezed), at)
	}
}

func oneIf(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}

// shortIdentity returns a rule's identity, cut to 160 bytes with a hash of all of it. A rule with a
// list may have a megabyte, and monitoring systems keep each of these texts.
func shortIdentity(id string) string {
	const most = 160
	if len(id) <= most {
		return id
	}
	return fmt.Sprintf("%s...%.8x", strings.ToValidUTF8(id[:most], ""), sha256.Sum256([]byte(id)))
}
