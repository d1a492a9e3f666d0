package gen

import (
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"levee/internal/lang/spec"
	"levee/internal/packet"
	"levee/internal/packet/template"
)

// write runs the generator program n times over pages full of 0xa5, as a receiver that scribbled
// over everything would leave them, and returns the frames. The payload behind the headers is
// written once a page, not each time, so it is taken from the template.
func write(t *testing.T, f Flood, n int) [][]byte {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads an eBPF program")
	}
	dev := device{name: "eth0", index: 1, mtu: 1500, mac: [6]byte{2, 0, 0, 0, 0, 2},
		dst: [6]byte{2, 0, 0, 0, 0, 1}, inLab: true}
	if err := f.complete(dev); err != nil {
		t.Fatal(err)
	}
	tmpl, err := template.Compile([]spec.Packet{f.packet()}, template.Defaults{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	prog, err := tmpl.Program(0, false)
	if err != nil {
		t.Fatal(err)
	}
	l := &live{prog: prog, pace: livePace{Ifindex: 1}}
	if err := l.load(nil); err != nil {
		t.Fatalf("%+v", err)
	}
	defer l.objs.Close()
	if err := l.objs.State.Set(liveRun{Limit: uint64(n), Deadline: math.MaxUint64}); err != nil {
		t.Fatal(err)
	}
	page := slices.Clone(prog.First)
	for i := range page[:14+4*len(f.VLANs)+f.ipHeader()+f.l4Header()] {
		page[i] = 0xa5
	}
	var frames [][]byte
	for range n {
		opts := &ebpf.RunOptions{Data: page, DataOut: make([]byte, len(page)+256)}
		verdict, err := l.objs.Gen.Run(opts)
		if err != nil || verdict != 4 { // XDP_REDIRECT
			t.Fatalf("verdict %d, %v", verdict, err)
		}
		frames = append(frames, opts.DataOut)
		if want := tmpl.Frame(make([]byte, len(page)),
			uint64(len(frames)-1)); !bytes.Equal(opts.DataOut, want) {
			t.Fatalf("frame %d: program and user space differ:\n%x\n%x", len(frames)-1,
				opts.DataOut, want)
		}
	}
	if verdict, err := l.objs.Gen.Run(&ebpf.RunOptions{Data: page}); err != nil || verdict != 1 {
		t.Fatalf("behind the limit: verdict %d, %v", verdict, err)
	}
	return frames
}

var families = []struct {
	to      netip.Addr
	sources []netip.Prefix
}{
	{server4, prefixes("10.0.0.0/9", "192.0.2.128/25", "203.0.113.9/32")},
	{server6, prefixes("2001:db8:7::/64", "2001:db8:8000::/33", "2001:db8:0:5::8/125")},
}

func TestFramesAreValidWhateverTheirKind(t *testing.T) {
	for _, kind := range []Kind{UDP, SYN, ACK, ICMPEcho, Fragment} {
		for _, fam := range families {
			for _, vlans := range [][]uint16{nil, {7}, {100, 4094}} {
				for _, lengths := range [][]int{nil, {1500, 61, 90, 1200, 100}} {
					f := Flood{
						Kind: kind, To: fam.to, Sources: fam.sources, VLANs: vlans,
						Lengths:   lengths,
						FromPorts: Shuffled(PortRange(1024, 1033), 3), Ports: []uint16{9, 10},
						TTL: 99,
					}
					name := fmt.Sprintf("%v %v vlan %v len %v", kind, fam.to, vlans, lengths)
					t.Run(name, func(t *testing.T) { checkFrames(t, &f, write(t, f, 40)) })
				}
			}
		}
	}
}

func checkFrames(t *testing.T, f *Flood, frames [][]byte) {
	sources := map[netip.Addr]bool{}
	for i, b := range frames {
		p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
		if e := p.ErrorLayer(); e != nil {
			t.Fatalf("frame %d: %v\n%s", i, e.Error(), p.Dump())
		}
		for _, layer := range p.Layers() {
			if l, ok := layer.(interface {
				SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
			}); ok {
				if err := l.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err, bad := p.VerifyChecksums(); f.Kind != Fragment && (err != nil || len(bad) > 0) {
			t.Fatalf("frame %d: checksum %v %v\n%s", i, err, bad, p.Dump())
		}
		var d packet.Packet
		packet.Decode(b, &d)
		if d.Malformed != 0 {
			t.Fatalf("frame %d is malformed (%v)\n%s", i, d.Malformed, p.Dump())
		}
		eth := p.LinkLayer().(*layers.Ethernet)
		if eth.SrcMAC[5] != 2 || eth.DstMAC[5] != 1 {
			t.Errorf("frame %d: from %s to %s", i, eth.SrcMAC, eth.DstMAC)
		}
		src, dst := p.NetworkLayer().NetworkFlow().Endpoints()
		from, _ := netip.AddrFromSlice(src.Raw())
		to, _ := netip.AddrFromSlice(dst.Raw())
		inside := slices.ContainsFunc(f.Sources,
			func(q netip.Prefix) bool { return q.Contains(from) })
		if to != f.To || !inside || sources[from] {
			t.Errorf("frame %d: from %s (seen before: %v) to %s", i, from, sources[from], to)
		}
		sources[from] = true
		if n := len(b) - 14 - 4*len(f.VLANs); len(f.Lengths) > 0 &&
			n != f.Lengths[i%len(f.Lengths)] {
			t.Errorf("frame %d: IP length %d", i, n)
		}
		checkTransport(t, f, i, p)
	}
}

func checkTransport(t *testing.T, f *Flood, i int, p gopacket.Packet) {
	from, to := f.FromPorts[i%len(f.FromPorts)], f.Ports[i%len(f.Ports)]
	ok := false
	switch f.Kind {
	case UDP:
		u, is := p.TransportLayer().(*layers.UDP)
		ok = is && uint16(u.SrcPort) == from && uint16(u.DstPort) == to &&
			int(u.Length) == 8+len(u.Payload)
	case SYN, ACK:
		u, is := p.TransportLayer().(*layers.TCP)
		ok = is && uint16(u.SrcPort) == from && uint16(u.DstPort) == to &&
			u.SYN == (f.Kind == SYN) && u.ACK == (f.Kind == ACK) && !u.RST && !u.FIN
	case ICMPEcho:
		if f.To.Is4() {
			u, is := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
			ok = is && u.TypeCode.Type() == layers.ICMPv4TypeEchoRequest
		} else {
			u, is := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
			ok = is && u.TypeCode.Type() == layers.ICMPv6TypeEchoRequest
		}
	case Fragment:
		if f.To.Is4() {
			u, is := p.NetworkLayer().(*layers.IPv4)
			ok = is && u.FragOffset == fragmentOffset && u.Protocol == layers.IPProtocolUDP &&
				u.Flags == 0
		} else {
			u, is := p.Layer(layers.LayerTypeIPv6Fragment).(*layers.IPv6Fragment)
			ok = is && u.FragmentOffset == fragmentOffset && u.NextHeader == layers.IPProtocolUDP
		}
	}
	if !ok {
		t.Errorf("frame %d is not what was asked for:\n%s", i, p.Dump())
	}
}

func TestFragmentHeadersHaveRightIPv4Checksums(t *testing.T) {
	f := Flood{Kind: Fragment, To: server4, Sources: families[0].sources}
	for i, b := range write(t, f, 20) {
		ip := gopacket.NewPacket(b, layers.LayerTypeEthernet,
			gopacket.Default).NetworkLayer().(*layers.IPv4)
		if err, r := ip.VerifyChecksum(); err != nil || !r.Valid {
			t.Errorf("frame %d: %v %+v", i, err, r)
		}
	}
}

func TestFlagsMayBeChosen(t *testing.T) {
	for _, fam := range families {
		f := Flood{Kind: SYN, To: fam.to, Sources: fam.sources, Flags: 0x29} // URG, PSH, FIN
		for i, b := range write(t, f, 3) {
			p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
			u := p.TransportLayer().(*layers.TCP)
			if err := u.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
				t.Fatal(err)
			}
			err, sum := u.VerifyChecksum()
			if !u.URG || !u.PSH || !u.FIN || u.SYN || u.ACK || u.RST || err != nil || !sum.Valid {
				t.Errorf("frame %d: %v %v %+v", i, u, err, sum)
			}
		}
	}
}

func TestUDPChecksumMayBeLeftOut(t *testing.T) {
	for _, fam := range families {
		f := Flood{To: fam.to, Sources: fam.sources, NoChecksum: true}
		for i, b := range write(t, f, 5) {
			u := gopacket.NewPacket(b, layers.LayerTypeEthernet,
				gopacket.Default).TransportLayer().(*layers.UDP)
			if u.Checksum != 0 {
				t.Errorf("frame %d: checksum %#x", i, u.Checksum)
			}
		}
	}
}

func TestTheSeedDecidesAllBytes(t *testing.T) {
	f := Flood{Kind: SYN, To: server4, Sources: families[0].sources}
	if !slices.EqualFunc(write(t, f, 20), write(t, f, 20), bytes.Equal) {
		t.Error("two runs with one seed differ")
	}
}

// The space of a single address wraps at once; that of two alternates.
func TestSmallSpacesComeAroundAgain(t *testing.T) {
	for _, c := range []struct {
		prefix string
		space  int
	}{{"192.0.2.7/32", 1}, {"192.0.2.6/31", 2}, {"192.0.2.0/30", 4}} {
		f := Flood{To: server4, Sources: prefixes(c.prefix)}
		var first []byte
		for i, b := range write(t, f, 3*c.space) {
			src := b[26:30]
			if i < c.space {
				first = append(first, src...)
			} else if k := i % c.space * 4; !bytes.Equal(src, first[k:k+4]) {
				t.Errorf("%s: packet %d is from %v, its first turn was from %v", c.prefix, i, src,
					first[k:k+4])
			}
		}
	}
}
