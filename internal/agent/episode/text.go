package episode

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"levee/internal/agent/incident"
	"levee/internal/lang/policy"
)

// Loosened returns a limit in the place of a drop, and Tightened the drop again.
func Loosened(text string, rate float64) string {
	body, label, _ := strings.Cut(text, ` as "`)
	return fmt.Sprintf(`limit%s rate %d/s as "%s`, strings.TrimPrefix(body, "drop"),
		int(max(1, rate)), label)
}

// rateOf returns what a limit for all together passes in a second, 0 for any other rule.
func rateOf(text string) (rate float64) {
	body, _, _ := strings.Cut(text, ` as "`)
	if _, after, is := strings.Cut(body, " rate "); is && !strings.Contains(body, " by ") {
		rate, _ = strconv.ParseFloat(strings.TrimSuffix(after, "/s"), 64) // 0
	}
	return rate
}

// Tightened returns the drop before Loosened made it a limit.
func Tightened(text string) string {
	body, label, _ := strings.Cut(text, ` as "`)
	if at := strings.LastIndex(body, " rate "); at >= 0 {
		body = body[:at]
	}
	return "drop" + strings.TrimPrefix(body, "limit") + ` as "` + label
}

// Answers to a flood besides drops, in the order in which they are tried.
const (
	Cookie             = "cookie"                // for SYNs, or for DNS queries
	LimitUnproven      = "limit not proven flow" // on who has not sent a value of a reply back
	LimitBySource      = "limit by source"
	LimitByName        = "limit by dns-name/2"
	Greylist           = "greylist"         // who is there sends again
	LimitStrangers     = "limit not from {" // on who did not come before the flood
	LimitByDestination = "limit by destination"
	Limit              = "limit"
)

// Asks says whether an action asks who sends: clients are served once they have answered, or sent
// again. What it drops costs them no more than that.
func Asks(action string) bool { return action == Cookie || action == Greylist }

// answerOf returns which answer a rule of a detector is.
func answerOf(r *incident.Rule, of *policy.Detect) string {
	text := r.Rule
	if of.KeepText != "" {
		text = strings.Replace(text, " not from "+of.KeepText+" ", " ", 1)
	}
	for _, a := range []string{LimitUnproven, LimitBySource, LimitByName, LimitStrangers,
		LimitByDestination} {
		if r.Action == Limit && strings.Contains(text, strings.TrimPrefix(a, Limit)) {
			return a
		}
	}
	return r.Action
}

// Texts returns the texts of rules, a line each.
func Texts(rules []Live) string {
	var texts []string
	for _, l := range rules {
		texts = append(texts, l.Rule.Rule)
	}
	return strings.Join(texts, "\n")
}

// LeaseOf returns the longest lease of rules.
func LeaseOf(rules []Live) (lease time.Duration) {
	for i := range rules {
		lease = max(lease, rules[i].lease())
	}
	return lease
}
