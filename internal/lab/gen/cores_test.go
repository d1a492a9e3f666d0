package gen

import (
	"errors"
	"slices"
	"testing"

	"levee/internal/lab/labtest"
	"levee/internal/packet"
	"levee/internal/usage"
)

// TestSharesAreAllPackets: each is of one share, whatever the number of cores.
func TestSharesAreAllPackets(t *testing.T) {
	for cores := range uint64(5) {
		for _, all := range []uint64{1, 2, 3, 100, 101} {
			var got []uint64
			for i := range max(1, cores) {
				s := share{i, cores}
				for n := range s.count(all) {
					got = append(got, s.number(n))
				}
			}
			slices.Sort(got)
			if uint64(len(got)) != all || got[0] != 0 || got[all-1] != all-1 ||
				len(slices.Compact(got)) != int(all) {
				t.Errorf("%d packets of %d cores: %d", all, cores, got)
			}
		}
	}
	if n := (share{1, 4}).count(noLimit); n != noLimit {
		t.Errorf("without a limit: %d", n)
	}
}

// TestSeveralCoresSendWhatOneWould: as many packets, from as many sources, at the rate.
func TestSeveralCoresSendWhatOneWould(t *testing.T) {
	labtest.NeedTwoCores(t)
	l := labtest.New(t)
	for _, path := range severalCores {
		for _, rate := range []float64{0, 20000} {
			rx := receive(t, l, 23, packet.ProtoUDP, 26, 0)
			text := "ipv4 udp from 10.0.0.0/8 permuted port 1024-65535"
			if path == Sendmmsg {
				text = "ipv4 udp port 1024-65535"
			}
			const count = 10_001
			c := into(l, Config{Template: packets(t, text), Path: path, Count: count, Rate: rate,
				More: []int{1}})
			c.CPU = 0
			r, err := Run(t.Context(), c)
			if err != nil || r.Sent != count || r.Errors != 0 || r.Gaps.Count() == 0 {
				t.Errorf("%s at %g: sent %d, errors %d, %v", path, rate, r.Sent, r.Errors, err)
			}
			if got := rx.received(t, r.Sent-r.Refused); got != r.Sent-r.Refused {
				t.Errorf("%s: sent %d, refused %d, received %d", path, r.Sent, r.Refused, got)
			}
			rx.detach()
		}
	}
	for _, c := range []Config{{Path: Live}, {Path: AFXDP}, {Path: Auto},
		{Path: Packet, CPU: 1}, {Path: Packet, CPU: -1}} {
		c.Template, c.More, c.Count = packets(t, "ipv4 udp port 9"), []int{1}, 1
		c.Namespace, c.Device = into(l, Config{}).Namespace, into(l, Config{}).Device
		if _, err := Run(t.Context(), c); !errors.Is(err, usage.ErrWrong) {
			t.Errorf("%q from cores %d and %d: %v", c.Path, c.CPU, c.More, err)
		}
	}
}
