package packet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// TestCapturesAreThoseOfGopacket compares each block with what pcapgo writes.
func TestCapturesAreThoseOfGopacket(t *testing.T) {
	at := time.Date(2026, 11, 26, 13, 0, 0, 123456789, time.UTC)
	for _, filter := range []string{"", "udp port 53"} {
		var got, want bytes.Buffer
		w, err := NewNGWriter(&got, "levee 1", runtime.GOARCH)
		if err != nil {
			t.Fatal(err)
		}
		is := pcapgo.NgInterface{Name: "eth0", OS: runtime.GOOS, Filter: filter,
			LinkType: layers.LinkTypeEthernet, SnapLength: 96, TimestampResolution: 9}
		ref, err := pcapgo.NewNgWriterInterface(&want, is, pcapgo.NgWriterOptions{
			SectionInfo: pcapgo.NgSectionInfo{Application: "levee 1", Hardware: runtime.GOARCH,
				OS: runtime.GOOS}})
		if err != nil {
			t.Fatal(err)
		}
		raw := is
		raw.LinkType = layers.LinkTypeRaw
		_, err = ref.AddInterface(raw)
		for i, link := range []Link{Ethernet, L3} {
			n, err1 := w.Interface(NGInterface{"eth0", filter, link, 96})
			if err = errors.Join(err, err1); n != i {
				t.Errorf("interface %d is number %d", i, n)
			}
		}
		for n := range 70 {
			data := bytes.Repeat([]byte{byte(n)}, n)
			info := gopacket.CaptureInfo{Timestamp: at.Add(time.Duration(n)), CaptureLength: n,
				Length: 2 * n, InterfaceIndex: n % 2}
			p := NGPacket{Interface: n % 2, At: info.Timestamp, Data: data, Length: 2 * n}
			var options pcapgo.NgPacketOptions
			if n%3 > 0 {
				p.Judged = &NGJudged{Comment: "drop by a"[:n%9+1], ID: uint64(n) << 40,
					Queue: uint32(n), AtTC: n%2 == 1, Code: n - 3}
				kind := pcapgo.NgEpbVerdictTypeLinuxeBPFXDP
				if n%2 == 1 {
					kind = pcapgo.NgEpbVerdictTypeLinuxeBPFTC
				}
				options = pcapgo.NgPacketOptions{Comments: []string{p.Judged.Comment},
					PacketID: &p.Judged.ID, Queue: &p.Judged.Queue,
					Verdicts: []pcapgo.NgEpbVerdict{{Type: kind,
						Data: binary.LittleEndian.AppendUint64(nil, uint64(int64(n-3)))}}}
			}
			err = errors.Join(err, w.Packet(&p), ref.WritePacketWithOptions(info, data, options))
		}
		err = errors.Join(err, w.Statistics(0, at, 70, 3), ref.WriteInterfaceStats(0,
			pcapgo.NgInterfaceStatistics{LastUpdate: at, PacketsReceived: 70, PacketsDropped: 3}),
			ref.Flush())
		if err != nil || !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%v, %q:\n%x\nwant\n%x", err, filter, got.Bytes(), want.Bytes())
		}
		if all, err := readAll(got.Bytes()); err != nil || len(all) != 70 {
			t.Errorf("%d packets read, %v", len(all), err)
		}
	}
}

func TestPacketsWithoutAnInterfaceAreRefused(t *testing.T) {
	w, err := NewNGWriter(new(bytes.Buffer), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Packet(&NGPacket{}); err == nil {
		t.Error("a packet of no interface is written")
	}
	if _, err := w.Interface(NGInterface{}); err != nil {
		t.Fatal(err)
	}
	if err := w.Packet(&NGPacket{Data: []byte{1}}); err == nil {
		t.Error("a packet of more bytes than it has is written")
	}
}
