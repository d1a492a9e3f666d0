package packet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// readAll returns copies of all records, and the error that ended the file, nil for its end.
func readAll(file []byte) ([]Record, error) {
	r, err := NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	var all []Record
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		rec.Data = bytes.Clone(rec.Data)
		all = append(all, rec)
	}
}

// classic is a pcap file of one byte order, magic, link type and records.
func classic(order binary.AppendByteOrder, magic, link uint32, records ...[]byte) []byte {
	b := order.AppendUint32(nil, magic)
	b = order.AppendUint16(b, 2)
	b = order.AppendUint16(b, 4)
	b = append(b, make([]byte, 8)...)
	b = order.AppendUint32(b, 65535)
	b = order.AppendUint32(b, link)
	for i, r := range records {
		b = order.AppendUint32(b, uint32(1000+i))
		b = order.AppendUint32(b, 7)
		b = order.AppendUint32(b, uint32(len(r)))
		b = order.AppendUint32(b, uint32(len(r)))
		b = append(b, r...)
	}
	return b
}

// block is one pcapng block.
func block(order binary.AppendByteOrder, typ uint32, body []byte) []byte {
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	b := order.AppendUint32(nil, typ)
	b = order.AppendUint32(b, uint32(len(body)+12))
	return order.AppendUint32(append(b, body...), uint32(len(body)+12))
}

func sectionBlock(order binary.AppendByteOrder) []byte {
	b := order.AppendUint32(nil, byteOrderMagic)
	b = order.AppendUint16(b, 1)
	b = order.AppendUint16(b, 0)
	return block(order, blockSection, append(b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff))
}

func interfaceOf(order binary.AppendByteOrder, link uint16, snaplen uint32,
	options ...byte) []byte {
	b := order.AppendUint32(order.AppendUint16(order.AppendUint16(nil, link), 0), snaplen)
	return block(order, blockInterface, append(b, options...))
}

func enhanced(order binary.AppendByteOrder, id uint32, stamp uint64, data []byte,
	length int) []byte {
	b := order.AppendUint32(nil, id)
	b = order.AppendUint32(b, uint32(stamp>>32))
	b = order.AppendUint32(b, uint32(stamp))
	b = order.AppendUint32(b, uint32(len(data)))
	b = order.AppendUint32(b, uint32(length))
	return block(order, blockEnhanced, append(b, data...))
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

var (
	little = binary.LittleEndian
	big    = binary.BigEndian
)

func TestPcapInBothByteOrdersAndResolutions(t *testing.T) {
	one, two := must(t, Spec{}), must(t, Spec{Family: IPv6})
	for name, tt := range map[string]struct {
		order binary.AppendByteOrder
		magic uint32
		nanos int
	}{
		"little micro": {little, magicMicro, 7000}, "little nano": {little, magicNano, 7},
		"big micro": {big, magicMicro, 7000}, "big nano": {big, magicNano, 7},
	} {
		all, err := readAll(classic(tt.order, tt.magic, linkEthernet, one, two))
		if err != nil || len(all) != 2 {
			t.Fatalf("%s: %d records, %v", name, len(all), err)
		}
		if !bytes.Equal(all[0].Data, one) || !bytes.Equal(all[1].Data, two) || all[1].Number != 2 ||
			all[1].Length != len(two) {
			t.Errorf("%s: %+v", name, all)
		}
		if want := time.Unix(1001, int64(tt.nanos)).UTC(); !all[1].Time.Equal(want) {
			t.Errorf("%s: time %s, want %s", name, all[1].Time, want)
		}
	}
}

func TestPcapngBlocks(t *testing.T) {
	one := must(t, Spec{ToPort: new(uint16(53)), Len: new(61)})
	for name, o := range map[string]binary.AppendByteOrder{"little": little, "big": big} {
		nano := o.AppendUint16(o.AppendUint16(nil, 9), 1)
		nano = append(nano, 9, 0, 0, 0, 0, 0, 0, 0)
		binaryUnits := append(o.AppendUint16(o.AppendUint16(nil, 9), 1), 0x80|10, 0, 0, 0)
		shift := o.AppendUint64(o.AppendUint16(o.AppendUint16(nil, 14), 8), 100)
		simple := block(o, blockSimple, append(o.AppendUint32(nil, uint32(len(one))), one[:40]...))
		old := append(o.AppendUint16(o.AppendUint16(nil, 0), 0), make([]byte, 8)...)
		old = append(o.AppendUint32(o.AppendUint32(old, uint32(len(one))), uint32(len(one))),
			one...)
		file := join(sectionBlock(o), interfaceOf(o, linkEthernet, 40),
			interfaceOf(o, linkEthernet, 0, nano...),
			interfaceOf(o, linkEthernet, 0, append(binaryUnits, shift...)...),
			enhanced(o, 0, 1_000_001, one, 1500), block(o, 0x0bad, []byte("skipped")),
			enhanced(o, 1, 1_000_000_001, one, len(one)), enhanced(o, 2, 1024+512, one, len(one)),
			simple,
			block(o, blockPacketOld, old), sectionBlock(o), interfaceOf(o, linkRaw, 0),
			enhanced(o, 0, 0, one[14:], len(one)-14))
		all, err := readAll(file)
		if err != nil || len(all) != 6 {
			t.Fatalf("%s: %d records, %v", name, len(all), err)
		}
		for i, want := range []time.Time{time.Unix(1, 1000), time.Unix(1, 1),
			time.Unix(101, 500_000_000), {}, time.Unix(0, 0), time.Unix(0, 0)} {
			if !all[i].Time.Equal(want) {
				t.Errorf("%s: record %d: time %s, want %s", name, i, all[i].Time, want)
			}
		}
		if all[0].Length != 1500 || !bytes.Equal(all[0].Data, one) {
			t.Errorf("%s: %+v", name, all[0])
		}
		if len(all[3].Data) != 40 || all[3].Length != len(one) {
			t.Errorf("%s: simple packet block: %d of %d bytes", name, len(all[3].Data),
				all[3].Length)
		}
		if got := all[5].Data; !bytes.Equal(got[12:], one[12:]) || all[5].Length != len(one) {
			t.Errorf("%s: raw IP in the second section: % x", name, got)
		}
	}
}

func TestLinkTypesBecomeEthernet(t *testing.T) {
	four, six := must(t, Spec{}), must(t, Spec{Family: IPv6})
	sll := func(length uint16, etherType uint16) []byte {
		return be16(append(be16([]byte{0, 0, 0, 1}, length), 2, 1, 2, 3, 4, 5, 9, 9), etherType)
	}
	sll2 := append(be16(nil, EtherIPv6), 0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 1, 2, 3, 4, 5, 9, 9)
	tests := []struct {
		name  string
		link  uint32
		data  []byte
		src   string
		frame []byte
	}{
		{"raw IPv4", linkRaw, four[14:], "000000000000", four},
		{"raw IPv6", linkRaw, six[14:], "000000000000", six},
		{"raw of BSD", linkRawBSD, six[14:], "000000000000", six},
		{"raw of OpenBSD", linkRawOBSD, six[14:], "000000000000", six},
		{"IPv4", linkIPv4, four[14:], "000000000000", four},
		{"IPv6", linkIPv6, six[14:], "000000000000", six},
		{"loopback of a BSD", linkNull, append([]byte{2, 0, 0, 0}, four[14:]...), "000000000000",
			four},
		{"loopback of a BSD of the other byte order", linkNull,
			append([]byte{0, 0, 0, 30}, six[14:]...), "000000000000", six},
		{"loopback of OpenBSD", linkLoop, append([]byte{0, 0, 0, 24}, six[14:]...), "000000000000",
			six},
		{"cooked", linkSLL, append(sll(6, EtherIPv4), four[14:]...), "020102030405", four},
		{"cooked without an Ethernet address", linkSLL, append(sll(8, EtherIPv4), four[14:]...),
			"000000000000", four},
		{"cooked 2", linkSLL2, append(sll2, six[14:]...), "020102030405", six},
		{"cooked, tagged", linkSLL, append(sll(6, EtherCTag), 0, 7, 8, 0), "020102030405",
			bytesOf(t, ethernetHex+"8100 0007 0800")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all, err := readAll(classic(little, magicMicro, tt.link, tt.data, tt.data))
			if err != nil || len(all) != 2 {
				t.Fatalf("%d records, %v", len(all), err)
			}
			want := append(bytesOf(t, "000000000000"+tt.src), tt.frame[12:]...)
			for _, rec := range all {
				if !bytes.Equal(rec.Data, want) || rec.Length != len(want) {
					t.Errorf("got  % x (%d)\nwant % x", rec.Data, rec.Length, want)
				}
			}
		})
	}
}

func TestHostileCapturesGiveAnErrorThatSaysWhere(t *testing.T) {
	one := must(t, Spec{})
	good := classic(little, magicMicro, linkEthernet, one, one)
	bend := func(b []byte, at int, v uint32) []byte {
		b = bytes.Clone(b)
		little.PutUint32(b[at:], v)
		return b
	}
	ng := join(sectionBlock(little), interfaceOf(little, linkEthernet, 0))
	packets := join(ng, enhanced(little, 0, 0, one, len(one)))
	tests := []struct {
		name, want string
		file       []byte
		whole      int // records before the error
	}{
		{"empty", "0 bytes and is no capture", nil, 0},
		{"three bytes", "3 bytes", good[:3], 0},
		{"text", "no pcap or pcapng file", []byte("hello, world, this is text"), 0},
		{"gzip", "gzip file; unpack", []byte{0x1f, 0x8b, 8, 0}, 0},
		{"modified pcap", "editcap", bend(good, 0, magicModified), 0},
		{"header cut", "ends after 23 of 24 bytes of the file header", good[:23], 0},
		{"version 3", "pcap version 3.4", bend(good, 4, 4<<16|3), 0},
		{"802.11", "link type 105 (IEEE 802.11)", bend(good, 20, 105), 0},
		{"unknown link type", "link type 4660;", bend(good, 20, 0x1234), 0},
		{"record header cut", "packet 2, byte 74: the file ends after 15 of 16 bytes of the " +
			"record header; whole packets before it: 1", good[:74+15], 1},
		{"record cut", "ends after 33 of 34 bytes of the packet", good[:len(good)-1], 1},
		{"a record of 4 GiB", "claims 4294967295 captured bytes", bend(good, 74+8, 0xffffffff), 1},
		{"a record one above the limit", "claims 262145 captured bytes",
			bend(good, 24+8, maxCaptured+1), 0},
		{"cooked of 15 bytes", "15 bytes are less than the 16",
			classic(big, magicMicro, linkSLL, make([]byte, 15)), 0},
		{"loopback of 3 bytes", "3 bytes are less than the 4",
			classic(big, magicMicro, linkNull, make([]byte, 3)), 0},
		{"loopback of AppleTalk", "address family 16",
			classic(big, magicMicro, linkLoop, []byte{0, 0, 0, 16, 0}), 0},
		{"cooked 2 of 19 bytes", "19 bytes are less than the 20",
			classic(big, magicMicro, linkSLL2, make([]byte, 19)), 0},

		{"section cut", "ends after 15 of 16", ng[:15], 0},
		{"section of no byte order", "byte-order magic", bend(ng, 8, 0), 0},
		{"section of version 2", "pcapng version 2.0", bend(ng, 12, 2), 0},
		{"section of 16 bytes", "a block of 16 bytes", bend(ng, 4, 16), 0},
		{"section whose lengths differ", "28 bytes long by its start and 32 by its end",
			bend(ng, 24, 32), 0},
		{"block of 0 bytes", "a block of 0 bytes", bend(ng, 32, 0), 0},
		{"block of 13 bytes", "a block of 13 bytes", bend(ng, 32, 13), 0},
		{"block of 4 GiB", "a block of 4294967292 bytes", bend(ng, 32, 0xfffffffc), 0},
		{"packet before an interface", "interface 0; the section has described 0",
			join(sectionBlock(little), enhanced(little, 0, 0, one, 34)), 0},
		{"packet of interface 7", "interface 7; the section has described 1",
			join(packets, enhanced(little, 7, 0, one, 34)), 1},
		{"packet longer than its block", "a packet of 99 captured bytes in a block",
			bend(packets, 28+20+8+12, 99), 0},
		{"simple packet longer than its block", "captured bytes in a block of 20",
			join(ng, block(little, blockSimple, append(little.AppendUint32(nil, 100), 0, 0, 0, 0))),
			0},
		{"packet of 802.11", "link type 127 (IEEE 802.11 radiotap)",
			join(sectionBlock(little), interfaceOf(little, 127, 0),
				enhanced(little, 0, 0, one, 34)), 0},
		{"option longer than its block", "option of 200 bytes",
			join(sectionBlock(little), interfaceOf(little, 1, 0, 2, 0, 200, 0)), 0},
		{"resolution of 10^-20", "finer than 64 bits",
			join(sectionBlock(little), interfaceOf(little, 1, 0, 9, 0, 1, 0, 20, 0, 0, 0)), 0},
		{"resolution of 2^-64", "finer than 64 bits",
			join(sectionBlock(little), interfaceOf(little, 1, 0, 9, 0, 1, 0, 0xc0, 0, 0, 0)), 0},
		{"time beyond reason", "a thousand years",
			join(sectionBlock(little), interfaceOf(little, 1, 0, 9, 0, 1, 0, 0, 0, 0, 0),
				enhanced(little, 0, 1<<63, one, 34)), 0},
		{"packet block cut", "of 34 bytes of the packet", packets[:len(packets)-20], 0},
		{"packet block cut in its padding", "the length behind a block", packets[:len(packets)-4],
			0},
		{"packet block whose lengths differ", "by its end", bend(packets, len(packets)-4, 8), 0},
		{"too many interfaces", "more than 4096 interfaces",
			join(sectionBlock(little), bytes.Repeat(interfaceOf(little, 1, 0), maxInterfaces+1)),
			0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all, err := readAll(tt.file)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v; want an error with %q", err, tt.want)
			}
			if ce, ok := errors.AsType[*CaptureError](err); !ok {
				t.Errorf("%T is no *CaptureError", err)
			} else if tt.whole > 0 && ce.Packet != tt.whole+1 {
				t.Errorf("error of packet %d, want %d", ce.Packet, tt.whole+1)
			}
			if len(all) != tt.whole {
				t.Errorf("%d whole records, want %d", len(all), tt.whole)
			}
		})
	}
}

func TestReaderStaysFailed(t *testing.T) {
	file := classic(little, magicMicro, linkEthernet, must(t, Spec{}))
	r, err := NewReader(bytes.NewReader(file[:len(file)-1]))
	if err != nil {
		t.Fatal(err)
	}
	_, first := r.Next()
	_, second := r.Next()
	if first == nil || first != second || !errors.Is(first, io.ErrUnexpectedEOF) {
		t.Errorf("first %v, then %v", first, second)
	}
}

func TestReaderReturnsTheErrorOfItsSource(t *testing.T) {
	broken := errors.New("disk on fire")
	file := classic(little, magicMicro, linkEthernet, must(t, Spec{}))
	r, err := NewReader(io.MultiReader(bytes.NewReader(file[:30]), &failing{broken}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

func TestWholeFillsWhatTheSnapLengthHasCut(t *testing.T) {
	frame := must(t, Spec{ToPort: new(uint16(53)), Len: new(1500)})
	rec := Record{Data: frame[:96], Length: len(frame)}
	var p Packet
	Decode(rec.Data, &p)
	if p.Malformed != IPLength {
		t.Fatalf("the cut frame: malformed %d", p.Malformed)
	}
	dirty := bytes.Repeat([]byte{0xff}, 4096)
	for _, buf := range [][]byte{nil, dirty} {
		whole, missing := rec.Whole(buf)
		if !bytes.Equal(whole, frame) || missing != len(frame)-96 {
			t.Errorf("%d bytes, %d missing", len(whole), missing)
		}
	}
	if whole, missing := (Record{Data: frame[:96],
		Length: maxCaptured + 1}).Whole(nil); len(whole) != 96 || missing != 0 {
		t.Errorf("a length that is not believed: %d bytes, %d missing", len(whole), missing)
	}
	if whole, missing := (Record{Data: frame,
		Length: len(frame)}).Whole(nil); &whole[0] != &frame[0] || missing != 0 {
		t.Error("a whole frame was copied")
	}
}

func TestWriterIsReadBackAndByGopacket(t *testing.T) {
	at := time.Date(2026, 11, 21, 20, 0, 0, 123456789, time.UTC)
	frame := must(t, Spec{Flags: new(uint8(SYN))})
	var b bytes.Buffer
	w, err := NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(frame, 0, at), w.Write(frame[:20], 1500, at.Add(time.Nanosecond)),
		w.Write(nil, 0, time.Time{})); err != nil {
		t.Fatal(err)
	}
	all, err := readAll(b.Bytes())
	if err != nil || len(all) != 3 {
		t.Fatalf("%d records, %v", len(all), err)
	}
	if !all[0].Time.Equal(at) || !bytes.Equal(all[0].Data, frame) || all[1].Length != 1500 ||
		len(all[1].Data) != 20 || all[2].Time.Unix() != 0 {
		t.Errorf("%+v", all)
	}
	other, err := pcapgo.NewReader(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	data, info, err := other.ReadPacketData()
	if err != nil || !bytes.Equal(data, frame) || !info.Timestamp.Equal(at) ||
		other.LinkType() != layers.LinkTypeEthernet {
		t.Errorf("gopacket: % x %+v %v", data, info, err)
	}
	if err := w.Write(frame, 0, time.Date(2107, 1, 1, 0, 0, 0, 0, time.UTC)); err == nil {
		t.Error("a time beyond 2106 was written")
	}
	if err := w.Write(make([]byte, maxCaptured+1), 0, at); err == nil {
		t.Error("a frame that no reader takes was written")
	}
}

// What pcapgo writes as pcapng is what other programs write too.
func TestReaderReadsPcapngOfGopacket(t *testing.T) {
	at := time.Date(2026, 11, 21, 20, 0, 0, 123456789, time.UTC)
	frame := must(t, Spec{Flags: new(uint8(SYN)), Len: new(333)})
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriter(&b, layers.LinkTypeEthernet)
	if err != nil {
		t.Fatal(err)
	}
	info := gopacket.CaptureInfo{Timestamp: at, CaptureLength: len(frame), Length: len(frame)}
	if err := errors.Join(w.WritePacket(info, frame), w.WritePacket(info, frame),
		w.Flush()); err != nil {
		t.Fatal(err)
	}
	all, err := readAll(b.Bytes())
	if err != nil || len(all) != 2 || !bytes.Equal(all[1].Data, frame) || !all[1].Time.Equal(at) {
		t.Errorf("%v: %+v", err, all)
	}
}

// The captures stand beside the repository where there are any.
func TestCapturesAtHandDecode(t *testing.T) {
	files, _ := filepath.Glob("../../../shared/data/pcap/*.pcap")
	if len(files) == 0 {
		t.Skip("no captures at hand")
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		n, bad, cut := 0, map[Malformed]int{}, 0
		var buf []byte
		for {
			rec, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			frame, missing := rec.Whole(buf)
			if missing > 0 {
				buf, cut = frame, cut+1
			}
			var p Packet
			Decode(frame, &p)
			if n++; p.Malformed != WellFormed {
				bad[p.Malformed]++
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		t.Logf("%s: %d packets, %d cut, malformed %v", filepath.Base(name), n, cut, bad)
		if n == 0 || len(bad) > 0 {
			t.Errorf("%s: %d packets, malformed %v", filepath.Base(name), n, bad)
		}
	}
}

func FuzzPcap(f *testing.F) {
	one := must(f, Spec{})
	f.Add(classic(little, magicMicro, linkEthernet, one, one))
	f.Add(classic(big, magicNano, linkSLL, append(make([]byte, 16), one...)))
	f.Add(classic(little, magicNano, linkRaw, one[14:]))
	for _, o := range []binary.AppendByteOrder{little, big} {
		f.Add(join(sectionBlock(o), interfaceOf(o, linkEthernet, 40, 9, 0, 1, 0, 9, 0, 0, 0),
			enhanced(o, 0, 5, one, 99), block(o, 99, nil),
			block(o, blockSimple, append(o.AppendUint32(nil, 8), one[:8]...)), sectionBlock(o),
			interfaceOf(o, linkSLL2, 0), enhanced(o, 0, 0, one, 34)))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := NewReader(bytes.NewReader(file))
		if err != nil {
			return
		}
		for n := 1; ; n++ {
			rec, err := r.Next()
			if err != nil {
				if ce, ok := errors.AsType[*CaptureError](err); err != io.EOF &&
					(!ok || ce.Packet != n) {
					t.Fatalf("record %d: %v", n, err)
				}
				break
			}
			if rec.Number != n || rec.Length < len(rec.Data) || len(rec.Data) > len(file)+linkRoom {
				t.Fatalf("record %d: %+v", n, rec)
			}
		}
		if cap(r.buf) > max(4096, maxCaptured+linkRoom) {
			t.Fatalf("%d bytes of buffer", cap(r.buf))
		}
	})
}
