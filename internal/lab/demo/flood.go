package demo

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
	"levee/internal/lab/gen"
	"levee/internal/packet"
)

// Kind is a kind of flood against the service: packets of so many sorts in turn.
type Kind struct {
	Name, What string
	Floods     []gen.Flood
}

var (
	web  = []uint16{servicePort}
	bare = gen.Flood{Kind: gen.SYN, Ports: web}
	full = gen.Flood{Kind: gen.SYN, Ports: web, TCPOptions: gen.SYNOptions}
	ack  = gen.Flood{Kind: gen.ACK, Ports: web}
	rst  = gen.Flood{Kind: gen.ACK, Ports: web, Flags: packet.RST}
	fin  = gen.Flood{Kind: gen.ACK, Ports: web, Flags: packet.FIN | packet.ACK}
	udp  = gen.Flood{Kind: gen.UDP, Ports: gen.PortRange(1, 65535)}
	open = gen.Flood{Kind: gen.UDP, Ports: []uint16{udpPort}}
	echo = gen.Flood{Kind: gen.ICMPEcho}
	frag = gen.Flood{Kind: gen.Fragment}

	// Kinds are all of them.
	Kinds = []Kind{
		{"udp", "UDP to all ports", []gen.Flood{udp}},
		{"syn", "bare TCP SYN to the service", []gen.Flood{bare}},
		{"syn-options", "TCP SYN to the service, with the options of Linux", []gen.Flood{full}},
		{"ack", "TCP ACK to the service", []gen.Flood{ack}},
		{"rst", "TCP RST to the service", []gen.Flood{rst}},
		{"fin", "TCP FIN and ACK to the service", []gen.Flood{fin}},
		{"udp-open", "UDP to a port that is open", []gen.Flood{open}},
		{"icmp", "ICMP echo requests", []gen.Flood{echo}},
		{"fragment", "IP fragments that are not the first", []gen.Flood{frag}},
		{"mixture", "all of these in turn",
			[]gen.Flood{udp, bare, full, ack, rst, fin, open, echo, frag}},
	}
)

// Spoofed aims a flood at an address, from 268 million sources or more and all ports that clients
// have.
func Spoofed(f gen.Flood, to netip.Addr) gen.Flood {
	f.To, f.Sources = to, gen.DefaultSources(to)
	if f.Kind != gen.ICMPEcho && f.Kind != gen.Fragment {
		f.FromPorts = gen.PortRange(1024, 65535)
	}
	return f
}

// SendFirst sends a flood, after the visitors, with whom it shares the world's core, and before all
// else that runs on the machine. A generator that waits busily takes 95 % of that core: who
// measures a process that may have to run there takes Send.
func SendFirst(ctx context.Context, c gen.Config) (gen.Report, error) {
	return send(ctx, c, floodRank)
}

// Send sends a flood, after the visitors, with whom it shares the world's core.
func Send(ctx context.Context, c gen.Config) (gen.Report, error) {
	return send(ctx, c, rank{nice: floodNice})
}

func send(ctx context.Context, c gen.Config, of rank) (r gen.Report, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// never unlocked: the thread ends with the goroutine, and its rank
		runtime.LockOSThread()
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, of.nice)
		if of.first > 0 {
			_ = kernel.GoFirst(0, of.first) // a group may have no budget: then nice has to do
			c.Rests = true
		}
		r, err = gen.Run(ctx, c)
	}()
	<-done
	return r, err
}

// maxCapture bounds what is read of a capture, in bytes.
const maxCapture = 64 << 20

// capture reads a capture of IPv4 TCP and aims it at the service; everything else about the packets
// stays as it was recorded.
func capture(path string, to netip.AddrPort) (*gen.Replay, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the capture: %w", err)
	}
	defer f.Close()
	text, err := aim(io.LimitReader(f, maxCapture), retargetTCP(to))
	if err != nil {
		return nil, fmt.Errorf("reading the capture %s: %w", path, err)
	}
	return &gen.Replay{
		Open:   func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
		Repeat: true, Fast: true, Rewrite: true,
	}, nil
}

// AimUDP copies a capture's untagged IPv4 packets of UDP, also in fragments, with their destination
// changed. Ports and all else stay as they were recorded.
func AimUDP(in io.Reader, to netip.Addr) ([]byte, error) {
	return aim(io.LimitReader(in, maxCapture), func(frame []byte) bool {
		ip, behind := ipv4Of(frame, packet.ProtoUDP)
		if ip == nil {
			return false
		}
		var check []byte
		// Only the first fragment has the checksum; zero is none.
		if binary.BigEndian.Uint16(ip[6:])&0x1fff == 0 {
			if len(behind) < 8 {
				return false
			}
			if check = behind[6:]; binary.BigEndian.Uint16(check) == 0 {
				check = nil
			}
		}
		redirect(ip, check, to)
		return true
	})
}

// aim copies those frames of a capture that change takes, as it leaves them.
func aim(in io.Reader, change func(frame []byte) bool) ([]byte, error) {
	r, err := packet.NewReader(in)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := packet.NewWriter(&out)
	if err != nil {
		return nil, err
	}
	frames := 0
	for {
		rec, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		frame, _ := rec.Whole(nil)
		frame = bytes.Clone(frame)
		if !change(frame) {
			continue
		}
		frames++
		if err := w.Write(frame, len(frame), rec.Time); err != nil {
			return nil, err
		}
	}
	if frames == 0 {
		return nil, errors.New("it has no such packets over IPv4")
	}
	return out.Bytes(), nil
}

// retargetTCP changes destination and port of whole segments.
func retargetTCP(to netip.AddrPort) func(frame []byte) bool {
	return func(frame []byte) bool {
		ip, t := ipv4Of(frame, packet.ProtoTCP)
		if ip == nil || len(t) < 20 || binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 {
			return false
		}
		redirect(ip, t[16:], to.Addr())
		adjust(t[16:], binary.BigEndian.Uint16(t[2:]), to.Port())
		binary.BigEndian.PutUint16(t[2:], to.Port())
		return true
	}
}

// ipv4Of returns the IP packet of an untagged frame that carries a protocol, and what is behind its
// header; nil for other frames.
func ipv4Of(frame []byte, proto uint8) (ip, behind []byte) {
	const eth, least = 14, 20
	if len(frame) < eth+least || binary.BigEndian.Uint16(frame[12:]) != 0x0800 {
		return nil, nil
	}
	ip = frame[eth:]
	header := int(ip[0]&15) * 4
	if ip[0]>>4 != 4 || header < least || ip[9] != proto || len(ip) < header {
		return nil, nil
	}
	return ip, ip[header:]
}

// redirect changes a packet's destination, and its checksums with it, right or wrong as they were
// (RFC 1624); check is that of the transport, nil where there is none.
func redirect(ip, check []byte, to netip.Addr) {
	addr := to.As4()
	for i := 0; i < 4; i += 2 {
		old, now := binary.BigEndian.Uint16(ip[16+i:]), binary.BigEndian.Uint16(addr[i:])
		adjust(ip[10:], old, now)
		if check != nil {
			adjust(check, old, now)
		}
	}
	copy(ip[16:], addr[:])
}

// adjust is equation 3 of RFC 1624: HC' = ~(~HC + ~m + m').
func adjust(check []byte, old, now uint16) {
	sum := uint32(^binary.BigEndian.Uint16(check)) + uint32(^old) + uint32(now)
	sum = sum&0xffff + sum>>16
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(check, ^uint16(sum))
}
