package packet

import (
	"bytes"
	"testing"
	"time"
)

// TestReadingARecordAllocatesNothing: each header of a record was memory of its own.
func TestReadingARecordAllocatesNothing(t *testing.T) {
	const records = 1000
	var classic, ng bytes.Buffer
	w, err := NewWriter(&classic)
	if err != nil {
		t.Fatal(err)
	}
	n, err := NewNGWriter(&ng, "levee", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Interface(NGInterface{Name: "eth0", Link: Ethernet}); err != nil {
		t.Fatal(err)
	}
	frame, at := make([]byte, 60), time.Unix(1_000_000_000, 0)
	for range records {
		if err := w.Write(frame, 60, at); err != nil {
			t.Fatal(err)
		}
		if err := n.Packet(&NGPacket{At: at, Data: frame, Length: 60}); err != nil {
			t.Fatal(err)
		}
	}
	for name, file := range map[string][]byte{"pcap": classic.Bytes(), "pcapng": ng.Bytes()} {
		r, err := NewReader(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Next(); err != nil { // which makes the buffer
			t.Fatal(err)
		}
		got := testing.AllocsPerRun(records-2, func() {
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
		})
		if got > 0 {
			t.Errorf("%s: %v allocations a record", name, got)
		}
	}
}
