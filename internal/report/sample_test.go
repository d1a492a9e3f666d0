package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"levee/internal/host"
)

// sample is a document with everything that one can have: every kind of chart, gaps, bounds,
// outliers, refusals. Its figures are made up, from a fixed seed.
func sample() *Document {
	random := rand.New(rand.NewPCG(1, 2))
	noisy := func(v float64) []float64 {
		out := make([]float64, 7)
		for i := range out {
			out[i] = v * (1 + 0.05*random.NormFloat64())
		}
		return out
	}
	d := &Document{
		Bench: "sample", Title: "Places to drop a packet", Command: "levee bench sample --seed 1",
		Version: "test",
		What:    "Packets a second that one core takes and drops, the same flood for all.",
		Started: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
		Machine: host.Info{Kernel: "6.18.5 #1 SMP PREEMPT_DYNAMIC", Arch: "amd64", CPU: "Some CPU",
			Cores: 2, MHz: "2450.000",
			Tools:       map[string]string{"nft": "nftables v1.0.6"},
			Mitigations: map[string]string{"retbleed": "Mitigation: untrained return thunk"}},
		Notes: []string{"veth has no DMA: ratios carry over, absolutes do not"},
	}
	d.Set("policy", "demo.levee")
	d.Set("window", "1s")
	ladder := d.Chart(Chart{ID: "ladder-pps", Title: "Packets a second", Kind: Bar, Better: More,
		Y: Axis{Label: "dropped", Unit: "packets/s"}})
	for i, rung := range []string{"xdp native", "levee", "tc ingress", "nft netdev ingress",
		"iptables raw", "iptables INPUT", "socket filter", "recvmmsg"} {
		pps := 11e6 / math.Pow(1.6, float64(i))
		for f, family := range []string{"IPv4", "IPv6"} {
			rounds := noisy(pps * (1 - 0.15*float64(f)))
			if i == 3 {
				rounds[4] *= 0.4 // disturbed
			}
			p := Measured(0, rounds).Of(rung).Bound(i == 0)
			if i == 6 && f == 1 {
				p = Gap(0, "packets do not balance: 5000000 offered, 4100000 received").Of(rung)
				d.Refuse("socket filter, IPv6", p.Why)
			}
			ladder.Add(family, p)
		}
	}
	sets := d.Chart(Chart{ID: "sets-lookup", Title: "A look-up in a set",
		What: "Above the same loop without one.", Kind: Line, Better: Less,
		X: Axis{Label: "entries", Log: true}, Y: Axis{Label: "time", Unit: "ns", Log: true}})
	for i, name := range []string{"levee static", "levee dynamic", "kernel LPM trie",
		"kernel hash map"} {
		for n := 10.0; n <= 1e6; n *= 10 {
			if i == 3 && n == 1e4 {
				sets.Add(name, Gap(n, "wrong answers: 12 of 131072"))
				continue
			}
			sets.Add(name, Measured(n, noisy(float64(4*(i+1))*math.Pow(n, 0.12*float64(i+1)))))
		}
	}
	goodput := d.Chart(Chart{ID: "service", Title: "Answers under flood", Kind: Time,
		X: Axis{Label: "time", Unit: "s"}, Y: Axis{Label: "answers a second", Unit: "answers/s"},
		Marks: []Mark{{10, 20, "flood"}}})
	for _, name := range []string{"with levee", "without"} {
		for s := range 30 {
			v := 900 + 40*random.NormFloat64()
			if name == "without" && s >= 10 && s < 20 {
				v = 60 + 20*random.Float64()
			}
			p := Value(float64(s), v)
			p.Outlier = name == "with levee" && s == 4
			goodput.Add(name, p)
		}
	}
	latency := d.Chart(Chart{ID: "latency", Title: "Round trips", Kind: Histogram,
		X: Axis{Label: "round trip", Unit: "us", Log: true}, Y: Axis{Label: "probes"}})
	for b := range 24 {
		from, to := 10*math.Pow(1.25, float64(b)), 10*math.Pow(1.25, float64(b+1))
		latency.Add("levee", Bin(from, to, math.Round(4000*math.Exp(-math.Pow(float64(b)-6, 2)/8))))
		latency.Add("nft", Bin(from, to, math.Round(2500*math.Exp(-math.Pow(float64(b)-12, 2)/14))))
	}
	spread := d.Chart(Chart{ID: "spread", Title: "Round trips by place", Kind: Box, Better: Less,
		Y: Axis{Label: "round trip", Unit: "us", Log: true}})
	for i, place := range []string{"levee", "nft", "none"} {
		for _, state := range []string{"quiet", "loaded"} {
			values := noisy(20 * float64(1+i*len(state)))
			if place == "none" && state == "loaded" {
				values = nil
			}
			spread.Add(state, Boxed(place, values))
		}
	}
	t := d.Table("certificate", "Saturation and balance", Column{Name: "rung"},
		Column{Name: "windows"}, Column{Name: "core busy", Unit: "%"},
		Column{Name: "off balance", Unit: "%"})
	for i, rung := range []string{"xdp native", "levee", "tc ingress"} {
		t.Row(Text(rung), Number(float64(48-i)),
			Quantity(99.1+float64(i)/10, "%.1f", 99.1+float64(i)/10), Number(0.002*float64(i)))
	}
	return d
}

// hostile puts the same text wherever a document holds text.
func hostile(text string) *Document {
	d := &Document{Bench: text, Title: text, What: text, Command: text, Version: text,
		Incomplete: text, Notes: []string{text},
		Setup: []Setting{{Name: text, Value: text}}, Refusals: []Refusal{{text, text}},
		Machine: host.Info{Kernel: text, CPU: text, MHz: text, Governor: text,
			Tools: map[string]string{text: text}, Mitigations: map[string]string{text: text}}}
	for _, kind := range []Kind{Bar, Line, Time, Histogram, Distribution, Box} {
		c := d.Chart(Chart{ID: "c-" + string(kind), Title: text, What: text, Kind: kind,
			X: Axis{Label: text, Unit: text}, Y: Axis{Label: text, Unit: text},
			Marks: []Mark{{1, 2, text}}})
		for i := range 2 {
			p := Bin(float64(i+1), float64(i+2), 3).Of(text + fmt.Sprint(i))
			p.Why = text
			c.Add(text, p)
			c.Add(text+"2", Gap(float64(i+1), text).Of(text+fmt.Sprint(i)))
		}
		if kind == Box {
			for i := range c.Series[0].Points {
				c.Series[0].Points[i].Spread = &Spread{1, 2, 4, 5}
			}
		}
		if kind == Histogram {
			for _, s := range c.Series {
				for i := range s.Points {
					to := s.Points[i].X + 1
					s.Points[i].XTo = &to
				}
			}
		}
	}
	d.Table("t", text, Column{text, text}).Row(Text(text))
	return d
}
