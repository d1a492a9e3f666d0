package evidence

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"levee/internal/packet"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// flood are packets of which only the beginning was sampled.
func flood(t *testing.T, n int) (out []Packet) {
	t.Helper()
	for i := range n {
		size := 1000
		f, err := packet.Build(packet.Spec{Proto: new(uint8(17)),
			From: netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}),
			To:   netip.MustParseAddr("192.0.2.1"), FromPort: new(uint16(123)),
			ToPort: new(uint16(4000)), Len: &size})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, Packet{begin.Add(time.Duration(i) * time.Millisecond), f[:128], len(f)})
	}
	return out
}

func TestWhatIsKeptComesBackAsPcapngAndAsAFingerprint(t *testing.T) {
	s := Open(filepath.Join(t.TempDir(), "packets"))
	if err := s.Put("7", "eth0", packet.Ethernet, flood(t, 5000)); err != nil {
		t.Fatal(err)
	}
	text, err := s.Read("7")
	if err != nil {
		t.Fatal(err)
	}
	r, err := packet.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for {
		rec, err := r.Next()
		if err != nil {
			break
		}
		if n++; rec.Length != 1014 || len(rec.Data) != 128 || rec.Time.Before(begin) {
			t.Fatalf("%+v", rec)
		}
	}
	if n != mostPackets {
		t.Errorf("%d packets", n)
	}
	f, err := s.Fingerprint("7", Facts{Target: netip.MustParsePrefix("192.0.2.1/32"),
		Packets: 3_000_000, Began: begin.Add(-time.Second), Ended: begin.Add(59 * time.Second)},
		true)
	if err != nil {
		t.Fatal(err)
	}
	if v := f.Vectors[0]; *v.Service != "NTP" || f.Target != "192.0.2.1" ||
		f.Packets != 3_000_000 ||
		f.Duration != 60 || f.AvgPps != 50_000 || f.MB != 3042 || v.Packets != 3_000_000 {
		t.Errorf("%+v", f)
	}
}

func TestTheOldestGoFirstAndNoNameLeavesTheDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "packets")
	s := Open(dir)
	for n := range mostFiles + 5 {
		if err := s.Put(strconv.Itoa(n), "eth0", packet.L3, nil); err != nil {
			t.Fatal(err)
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != mostFiles {
		t.Errorf("%d files", len(files))
	}
	for _, id := range []string{"4", "../7", "", "a", "1e3"} {
		if _, err := s.Read(id); !errors.Is(err, ErrNone) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if err := s.Put("../7", "eth0", packet.Ethernet, nil); err == nil {
		t.Error("it is kept elsewhere")
	}
}
