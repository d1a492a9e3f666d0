package packet

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func TestFragmentsAreThePacket(t *testing.T) {
	for _, payload := range []int{0, 1, 8, 1472, 1473, 4000} {
		data := make([]byte, payload)
		for i := range data {
			data[i] = byte(i)
		}
		whole, err := Build(Spec{Proto: new(uint8(ProtoUDP)), Payload: data})
		if err != nil {
			t.Fatal(err)
		}
		pieces, err := Cut(whole, 1480)
		if err != nil {
			t.Fatal(err)
		}
		if want := max(1, (8+payload+1479)/1480); len(pieces) != want {
			t.Errorf("%d bytes: %d fragments, want %d", payload, len(pieces), want)
		}
		var joined []byte
		for i, f := range pieces {
			ip := f[14:]
			place := binary.BigEndian.Uint16(ip[6:])
			if sum(ip[:20], 0) != 0xffff || int(binary.BigEndian.Uint16(ip[2:])) != len(ip) ||
				int(place&0x1fff)*8 != len(joined) || (place&0x2000 != 0) != (i+1 < len(pieces)) {
				t.Errorf("%d bytes: fragment %d has header %x", payload, i, ip[:20])
			}
			joined = append(joined, ip[20:]...)
		}
		if !bytes.Equal(joined, whole[34:]) {
			t.Errorf("%d bytes come back as others", payload)
		}
	}
}

func TestOnlyWholePacketsAreCut(t *testing.T) {
	whole, err := Build(Spec{Proto: new(uint8(ProtoUDP))})
	if err != nil {
		t.Fatal(err)
	}
	for _, carry := range []int{0, -8, 7} {
		if _, err := Cut(whole, carry); err == nil {
			t.Errorf("fragments of %d bytes", carry)
		}
	}
	fragment, err := Build(Spec{Proto: new(uint8(ProtoUDP)), Frag: new(uint16(185)),
		Len: new(60)})
	if err != nil {
		t.Fatal(err)
	}
	six, err := Build(Spec{Family: IPv6})
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole[:34] {
		if _, err := Cut(whole[:n], 8); err == nil {
			t.Errorf("%d bytes of a frame are cut", n)
		}
	}
	for _, f := range [][]byte{fragment, six} {
		if _, err := Cut(f, 8); err == nil {
			t.Errorf("%x is cut", f)
		}
	}
}
