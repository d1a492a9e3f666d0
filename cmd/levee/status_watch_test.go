package main

import (
	"testing"
	"time"
)

func TestRatesAreOfTheTimeBetweenTwoReadings(t *testing.T) {
	report := func(packets, bytes uint64) *statusReport {
		return &statusReport{Interfaces: []statusInterface{{Ifindex: 3, Netns: 7,
			Rules: []statusRule{{id: "a", Packets: packets, Bytes: bytes}}}}}
	}
	at := time.Unix(1000, 0)
	one := report(100, 6400)
	seen := one.rates(nil, at)
	if r := one.Interfaces[0].Rules[0]; r.PacketsPerSecond != nil || r.BitsPerSecond != nil {
		t.Error("the first reading has a rate")
	}
	two := report(1100, 70400)
	seen = two.rates(seen, at.Add(2*time.Second))
	if r := two.Interfaces[0].Rules[0]; *r.PacketsPerSecond != 500 || *r.BitsPerSecond != 256000 {
		t.Errorf("%v packets and %v bits a second", *r.PacketsPerSecond, *r.BitsPerSecond)
	}
	anew := report(3, 180) // taken off and put up again meanwhile
	seen = anew.rates(seen, at.Add(3*time.Second))
	if r := anew.Interfaces[0].Rules[0]; r.PacketsPerSecond != nil {
		t.Errorf("%v packets a second of a counter that began anew", *r.PacketsPerSecond)
	}
	if got := anew.rates(seen, at.Add(3*time.Second)); len(got) != 1 {
		t.Error(got)
	}
}

func TestShortRates(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.4: "0", 12: "12", 999: "999", 999.7: "1k", 3400: "3.4k", 1.254e6: "1.25M",
		10e9: "10G", 999.6e6: "1G",
	} {
		if got := shortRate(&v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
	if got := shortRate(nil); got != "" {
		t.Errorf("no rate is %q", got)
	}
}
