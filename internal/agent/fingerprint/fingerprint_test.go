package fingerprint

import (
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"levee/internal/packet"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func build(t testing.TB, s packet.Spec) []byte {
	t.Helper()
	b, err := packet.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func host(net string, n int) netip.Addr {
	a := netip.MustParseAddr(net).As4()
	a[2], a[3] = byte(n>>8), byte(n)
	return netip.AddrFrom4(a)
}

// answer is a reflected answer of DNS.
func answer(t testing.TB, n int) []byte {
	t.Helper()
	m := dnsmessage.Message{Header: dnsmessage.Header{Response: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("example.org."),
			Type: dnsmessage.TypeALL, Class: dnsmessage.ClassINET}}}
	text, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	size := 20 + 8 + 1200
	f := build(t, packet.Spec{Proto: new(uint8(17)), From: host("198.51.0.0", n%50),
		To: netip.MustParseAddr("192.0.2.1"), FromPort: new(uint16(53)),
		ToPort: new(uint16(1024 + n%60000)), Len: &size})
	copy(f[14+20+8:], text)
	return f
}

func syn(t testing.TB, n int) []byte {
	return build(t, packet.Spec{Proto: new(uint8(6)), From: host("203.0.0.0", n),
		To: netip.MustParseAddr("192.0.2.1"), FromPort: new(uint16(1024 + n*7%60000)),
		ToPort: new(uint16(443)), Flags: new(uint8(2)), TTL: new(uint8(64 + n%100))})
}

func TestAFloodOfTwoVectors(t *testing.T) {
	c := New(Options{Each: 100})
	for n := range 1000 {
		at := begin.Add(time.Duration(n) * 10 * time.Millisecond)
		c.Add(at, answer(t, n), 14+20+8+1200)
		if n%4 == 0 {
			c.Add(at, syn(t, n), 60)
		}
		if n%100 == 0 { // what comes along is no vector
			c.Add(at, build(t, packet.Spec{Proto: new(uint8(1)), From: host("203.0.0.0", 1),
				To: netip.MustParseAddr("192.0.2.1"), Type: new(uint8(8))}), 60)
		}
	}
	f, err := c.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	if f.Target != "Anonymous" || f.Packets != 126_000 || f.Duration != 9 || len(f.Key) != 32 ||
		f.Start != "2026-03-01 12:00:00+00:00" || f.AvgPps != 126_000*1000/9990 || f.IPs != 301 {
		t.Errorf("%+v", f)
	}
	want := []string{"Multi-vector attack", "UDP", "Amplification attack", "TCP",
		"TCP flood attack",
		"TCP SYN flag attack"}
	if !slices.Equal(f.Tags, want) || len(f.Vectors) != 2 {
		t.Errorf("tags %q, %d vectors", f.Tags, len(f.Vectors))
	}
	dns, tcp := f.Vectors[0], f.Vectors[1]
	if *dns.Service != "DNS" || dns.Source != 53 || dns.Ports != "random" || len(dns.IPs) != 50 ||
		!reflect.DeepEqual(dns.QueryName, Spread{"example.org": 1}) ||
		!reflect.DeepEqual(dns.QueryType, Spread{"ANY": 1}) ||
		!reflect.DeepEqual(dns.Length, Spread{"1242": 1}) || *dns.Fraction < 0.98 ||
		dns.Flags != nil {
		t.Errorf("%+v", dns)
	}
	if tcp.Service != nil || tcp.Source != "random" || tcp.TTL != "random" ||
		tcp.QueryName != nil ||
		!reflect.DeepEqual(tcp.Ports, Spread{"443": 1}) ||
		!reflect.DeepEqual(tcp.Flags, Spread{"......S.": 1}) || tcp.Packets != 25_000 {
		t.Errorf("%+v", tcp)
	}
}

// TestTheNamesAreThoseOfTheFormat holds the fields to those of fingerprint_format.md.
func TestTheNamesAreThoseOfTheFormat(t *testing.T) {
	c := New(Options{ShowTarget: true})
	for n := range 10 {
		c.Add(begin, syn(t, n), 60)
	}
	f, err := c.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]any{"attack_vectors": []any{}, "target": "", "tags": []any{},
		"key": "", "time_start": "", "time_end": "", "duration_seconds": 0.0,
		"total_megabytes": 0.0,
		"total_packets":   0.0, "total_ips": 0.0, "avg_bps": 0.0, "avg_pps": 0.0, "avg_Bpp": 0.0} {
		if reflect.TypeOf(got[name]) != reflect.TypeOf(kind) {
			t.Errorf("%s is %v", name, got[name])
		}
	}
	vector := got["attack_vectors"].([]any)[0].(map[string]any)
	for _, name := range []string{"service", "protocol", "fraction_of_attack", "source_port",
		"destination_ports", "tcp_flags", "nr_packets", "nr_megabytes", "time_start",
		"duration_seconds", "source_ips", "ethernet_type", "frame_len", "fragmentation_offset",
		"ttl"} {
		if _, there := vector[name]; !there {
			t.Errorf("a vector has no %s", name)
		}
	}
	if got["target"] != "192.0.2.1" || vector["service"] != nil {
		t.Errorf("%s", text)
	}
}

func TestFragmentsAndCarpets(t *testing.T) {
	c := New(Options{ShowTarget: true})
	for n := range 512 {
		c.Add(begin.Add(time.Duration(n)*time.Second), build(t, packet.Spec{Proto: new(uint8(17)),
			From: host("203.0.0.0", n), To: host("192.0.2.0", 2<<8|n%200), Frag: new(uint16(185))}),
			1514)
	}
	f, err := c.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	v := f.Vectors[0]
	if f.Target != "192.0.2.0/24" || !slices.Contains(f.Tags, "Carpet bombing attack") ||
		!slices.Contains(f.Tags, "Fragmentation attack") || *v.Service != fragments ||
		v.Fraction != nil || !reflect.DeepEqual(v.Offset, Spread{"1480": 1}) {
		t.Errorf("%+v, %+v", f, v)
	}
}

func TestNothingToDescribe(t *testing.T) {
	c := New(Options{Target: netip.MustParsePrefix("198.51.100.0/24")})
	c.Add(begin, syn(t, 1), 60)
	c.Add(begin, nil, 0)
	if _, err := c.Fingerprint(); !errors.Is(err, ErrNothing) {
		t.Error(err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	var c counts
	for n := range 3 * maxValues {
		c.add(string(rune('a'+n%26)) + time.Duration(n).String())
	}
	if len(c) > maxValues+1 {
		t.Errorf("%d values", len(c))
	}
}

// FuzzAdd holds for any frame: no panic, and what comes out is JSON.
func FuzzAdd(f *testing.F) {
	f.Add(answer(f, 1), uint16(1500))
	f.Add(syn(f, 1), uint16(60))
	f.Add([]byte{}, uint16(0))
	f.Fuzz(func(t *testing.T, frame []byte, length uint16) {
		c := New(Options{})
		for range 3 {
			c.Add(begin, frame, int(length))
		}
		out, err := c.Fingerprint()
		if err != nil {
			return
		}
		if _, err := json.Marshal(out); err != nil {
			t.Fatal(err)
		}
	})
}
