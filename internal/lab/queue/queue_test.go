package queue

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/vishvananda/netlink/nl"

	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/labtest"
)

// TestQueuesAreToldAsTheyWerePut: each kind by its name and rate; and the device has none before
// and behind.
func TestQueuesAreToldAsTheyWerePut(t *testing.T) {
	l := labtest.New(t)
	h := l.Host(lab.World)
	d := h.Devices[0]
	read := func() (all []Queue) {
		t.Helper()
		err := h.Do(func() (err error) {
			all, err = Read(d.Index)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	bounded := func(all []Queue) (q *Queue) {
		for i := range all {
			if all[i].Rate > 0 {
				q = &all[i]
			}
		}
		return q
	}
	if q := bounded(read()); q != nil {
		t.Errorf("there is %+v before anything was put", q)
	}
	for _, kind := range Kinds {
		const bits = 80e6
		err := Put(t.Context(), h, d.Name, kind, bits)
		if errors.Is(err, contender.ErrMissing) {
			t.Logf("%s is not at hand: %v", kind, err)
			if q := bounded(read()); q != nil {
				t.Errorf("%s could not be put there, and left %+v", kind, q)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		all := read()
		if q := bounded(all); q == nil || q.Rate != bits || all[0].Parent != "root" ||
			all[0].Kind != kind && all[len(all)-1].Kind != kind {
			t.Errorf("%s is told as %+v", kind, all)
		}
		if err := Remove(t.Context(), h, d.Name); err != nil {
			t.Error(err)
		}
	}
	if q := bounded(read()); q != nil {
		t.Errorf("there is %+v behind all", q)
	}
}

// attr is an attribute of netlink.
func attr(kind int, value []byte) []byte { return nl.NewRtAttr(kind, value).Serialize() }

func words(values ...uint32) (b []byte) {
	for _, v := range values {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return b
}

// TestRatesOfQueuesThatThisKernelMayLack, as their kernels write them, and of messages that are cut
// off.
func TestRatesOfQueuesThatThisKernelMayLack(t *testing.T) {
	wide := binary.NativeEndian.AppendUint64(nil, 12_500_000_000)
	for name, c := range map[string]struct {
		kind    string
		options []byte
		rate    float64
	}{
		"cake":      {"cake", attr(cakeRate64, wide), 100e9},
		"unlimited": {"cake", nil, 0},
		"netem": {"netem", append(make([]byte, netemHead), attr(netemRate,
			words(1250, 0))...), 10e3},
		"netem wide": {"netem", append(make([]byte, netemHead), attr(netemRate64, wide)...), 100e9},
		"no rate":    {"netem", make([]byte, netemHead), 0},
		"cut off":    {"netem", make([]byte, 3), 0},
		"tbf":        {"tbf", attr(tbfParms, words(0, 0, 1250, 0, 0, 0, 0, 0, 0)), 10e3},
		"short":      {"tbf", attr(tbfParms, words(0)), 0},
		"garbage":    {"tbf", []byte{255, 255, 1, 0, 3}, 0},
		"htb class":  {"htb", nil, 0},
	} {
		m := message{attrs: map[uint16][]byte{nl.TCA_KIND: []byte(c.kind + "\x00"),
			nl.TCA_OPTIONS: c.options, nl.TCA_STATS2: append(
				attr(statsBasic, words(1000, 0, 7, 0)),
				attr(statsQueue, words(3, 4500, 2, 0, 9))...)}}
		q, ok := m.queue()
		if !ok || q.Rate != c.rate || q.Bytes != 1000 || q.Packets != 7 || q.WaitingPackets != 3 ||
			q.WaitingBytes != 4500 || q.Dropped != 2 || q.Overlimits != 9 {
			t.Errorf("%s: %+v, %v", name, q, ok)
		}
	}
	if r := htbRate(attr(htbParms, words(0, 0, 125, 0, 0, 1250))); r != 10e3 {
		t.Errorf("a class of htb has %v", r)
	}
	m := message{attrs: map[uint16][]byte{nl.TCA_KIND: []byte("clsact\x00")}}
	if _, ok := m.queue(); ok {
		t.Error("clsact holds packets")
	}
}
