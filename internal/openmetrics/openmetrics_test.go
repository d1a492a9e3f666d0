package openmetrics

import "testing"

var families = []Family{
	{Name: "a_packets", Unit: "packets", Type: Counter, Help: "Said \"so\".\nTwice\\.",
		Samples: []Sample{{Value: 18446744073709551615},
			{Labels: []Label{{"rule", "a\"b\\c\nd"}, {"label", "ü\xff"}}, Value: 3}}},
	{Name: "a_policy", Type: Info, Help: "What.", Samples: []Sample{{Value: 1}}},
	{Name: "a_trial_seconds", Unit: "seconds", Type: Gauge, Help: "Left.",
		Samples: []Sample{{Value: 0.25}}},
	{Name: "a_nothing", Type: Gauge, Help: "Nowhere."},
}

func TestBothFormats(t *testing.T) {
	for format, want := range map[Format]string{
		OpenMetrics: `# TYPE a_packets counter
# UNIT a_packets packets
# HELP a_packets Said \"so\".\nTwice\\.
a_packets_total 18446744073709552000
a_packets_total{rule="a\"b\\c\nd",label="ü�"} 3
# TYPE a_policy info
# HELP a_policy What.
a_policy_info 1
# TYPE a_trial_seconds gauge
# UNIT a_trial_seconds seconds
# HELP a_trial_seconds Left.
a_trial_seconds 0.25
# EOF
`,
		Text: `# TYPE a_packets_total counter
# HELP a_packets_total Said "so".\nTwice\\.
a_packets_total 18446744073709552000
a_packets_total{rule="a\"b\\c\nd",label="ü�"} 3
# TYPE a_policy_info gauge
# HELP a_policy_info What.
a_policy_info 1
# TYPE a_trial_seconds gauge
# HELP a_trial_seconds Left.
a_trial_seconds 0.25
`} {
		if got := string(Append(nil, format, families)); got != want {
			t.Errorf("%s\n%s\nwant\n%s", format.ContentType(), got, want)
		}
	}
}
