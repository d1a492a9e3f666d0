package gen

import (
	"testing"

	"golang.org/x/sys/unix"

	"levee/internal/lab"
)

// BenchmarkFlood sends b.N packets into an XDP program that drops them, NAPI threaded and pinned
// to the other core. ns/op is of the generator; received/s is what got through the ring.
func BenchmarkFlood(b *testing.B) {
	v4 := Flood{To: server4, Sources: prefixes("10.0.0.0/8")}
	v6 := Flood{To: server6, Sources: prefixes("2001:db8:5::/48")}
	for _, c := range []struct {
		name  string
		flood Flood
		kind  Kind
		at    int16
		proto int32
	}{
		{"udp4", v4, UDP, 23, 17},
		{"syn4", v4, SYN, 23, 6},
		{"udp6", v6, UDP, 20, 17},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := newLab(b)
			// Others on this machine disturb less.
			for _, pid := range []int{0, l.Host(lab.Server).Devices[0].NAPI} {
				if err := unix.Setpriority(unix.PRIO_PROCESS, pid, -20); err != nil {
					b.Fatal(err)
				}
			}
			rx := receive(b, l, c.at, c.proto, 26, 0)
			c.flood.Kind = c.kind
			r, err := Run(b.Context(), into(l, Config{
				Flood: &c.flood, Count: uint64(b.N), Seed: 1, CPU: l.Host(lab.World).Devices[0].CPU,
			}))
			if err != nil {
				b.Fatal(err)
			}
			got := rx.received(b, r.Sent-r.Refused)
			b.ReportMetric(r.Achieved/1e6, "Mpps-sent")
			b.ReportMetric(float64(got)/r.Duration.Seconds()/1e6, "Mpps-received")
		})
	}
}
