package dashboard

import (
	"context"
	"time"
)

func (d *demo) events(ctx context.Context, after uint64,
	send func(uint64, *demoEvent) error) {
	texts := [][2]string{
		{"lease", "203.0.113.64 into abusers for 1h, by ids: ET SCAN Suspicious inbound to mySQL"},
		{"incident", "floods 12: reflected DNS to 192.0.2.10 at 45 k packets/s"},
		{"rule", `drop udp from port 53 len 1180-1480 as "flood-12-1"`},
		{"lease", "198.51.100.77 into abusers for 1h, by trap: 14 passwords in 20 s"},
		{"set", "203.0.113.9 out of abusers, by uid 0"},
		{"lease", "2001:db8:99::/64 into abusers for 1h, by ids: ET SCAN NMAP"},
	}
	if d.hostile {
		texts = append(texts, [2]string{"lease", hostileText})
	}
	for i := after; ; i++ {
		e := texts[int(i)%len(texts)]
		if send(i+1, &demoEvent{time.Now(), e[0], e[1]}) != nil {
			return
		}
		pause := 3 * time.Second
		if i < after+12 {
			pause = 0
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// liveRules are those of the page.
func (d *demo) liveRules() []any {
	type m = map[string]any
	origin := "api:ops"
	if d.hostile {
		origin = hostileText
	}
	until := d.now.Add(time.Hour).Format(time.RFC3339Nano)
	return []any{
		m{"id": "live-3", "dev": "eth0", "origin": origin, "state": "live", "until": until,
			"rule": `drop udp from 203.0.113.0/24 as "live-3"`, "packets": 12_000},
		m{"id": "flood-12-1", "dev": "eth0", "origin": "floods", "state": "live", "until": until,
			"rule": `drop udp from port 53 len 1180-1480 as "flood-12-1"`, "packets": 1_814_002,
			"incident": "12"}}
}

func (d *demo) incidents() []any {
	at := func(ago time.Duration) string { return d.now.Add(-ago).Format(time.RFC3339Nano) }
	begin := 9*time.Minute + 50*time.Second
	sentence := "Reflected DNS answers to 192.0.2.10 rose from 12 to 45,200 packets/s; dropped " +
		"by source port and length."
	if d.hostile {
		sentence = hostileText
	}
	type m = map[string]any
	one := func(id string, more m) m {
		out := m{"id": id, "detector": "floods", "dev": "eth0", "mode": "enforce",
			"state": d.states[id], "notes": []any{}}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	rule := func(text, state string, packets int, coverage float64) m {
		return m{"rule": text, "label": "flood", "action": "drop", "state": state,
			"packets": packets, "bytes": packets * 1240, "coverage": coverage, "collateral": 0.0}
	}
	return []any{
		one("12", m{"sentence": sentence, "began": at(begin),
			"detected": at(begin - 300*time.Millisecond), "acted": at(begin - 610*time.Millisecond),
			"before": m{"packets_per_second": 9200, "bits_per_second": 41e6},
			"seen": m{"kind": "reflection", "destination": "192.0.2.10/32",
				"packets_per_second": 45_200, "bits_per_second": 448e6,
				"peak_packets_per_second": 46_900, "threshold": 14_000, "learned": true,
				"sources": 3120, "forged_sources": false},
			"rules": []any{rule(`drop udp from port 53 len 1180-1480 as "flood-12-1"`, "live",
				1_814_002, 0.998)},
			"collateral": m{"predicted": 0.0, "at_most": 0.0003, "measured": 0.0001,
				"good_packets": 9012}}),
		one("11", m{"sentence": "SYNs to 192.0.2.11 port 443 with a window of 1024 rose to 8,100 " +
			"packets/s.", "mode": "propose", "began": at(3 * time.Hour),
			"detected": at(3 * time.Hour),
			"before":   m{"packets_per_second": 2200, "bits_per_second": 11e6},
			"seen": m{"kind": "syn", "destination": "192.0.2.11/32", "packets_per_second": 8100,
				"bits_per_second": 3.9e6, "threshold": 5000, "sources": 8000,
				"forged_sources": true},
			"rules": []any{rule(`drop tcp syn port 443 window 1024 as "flood-11-1"`, "proposed",
				0, 0.993)},
			"collateral": m{"predicted": 0.0002, "at_most": 0.0009, "good_packets": 6100}}),
		one("10", m{"sentence": "UDP to 192.0.2.10 rose to 61,000 packets/s for 20 minutes.",
			"began": at(22 * time.Hour), "detected": at(22 * time.Hour),
			"acted":  at(22*time.Hour - 400*time.Millisecond),
			"ended":  at(21*time.Hour + 40*time.Minute),
			"closed": at(21*time.Hour + 39*time.Minute),
			"before": m{"packets_per_second": 8100, "bits_per_second": 37e6},
			"seen": m{"kind": "udp", "destination": "192.0.2.10/32", "packets_per_second": 61_000,
				"bits_per_second": 31e6, "threshold": 14_000, "learned": true, "sources": 100_000,
				"forged_sources": true},
			"rules": []any{rule("drop udp port 1024-65535 len 60 ttl 52-58", "gone", 73_100_000,
				0.9991)},
			"collateral": m{"predicted": 0.0, "at_most": 0.0003, "measured": 0.0,
				"good_packets": 10_200}}),
		one("9", m{"sentence": "ICMP to 192.0.2.12 rose to 3,000 packets/s.",
			"began": at(50 * time.Hour), "detected": at(50 * time.Hour),
			"acted": at(50*time.Hour - time.Second), "closed": at(50*time.Hour - time.Minute),
			"seen":  m{"kind": "icmp", "packets_per_second": 3000, "bits_per_second": 2e6},
			"rules": []any{rule("drop icmp type 8 len 84", "gone", 120_000, 1)}}),
	}
}
