package lost

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestCountersOfDriversThatTellOfLostPackets(t *testing.T) {
	for _, c := range []struct {
		name  string
		of    string // "" for none
		queue int
	}{
		{"rx_missed_errors", "rx_missed_errors", -1},       // e1000e, igb
		{"rx_queue_3_drops", "rx_queue_drops", 3},          // igb, veth, virtio_net
		{"rx3_drops", "rx_drops", 3},                       // virtio_net
		{"rx_no_dma_resources", "rx_no_dma_resources", -1}, // ixgbe
		{"rx_out_of_buffer", "rx_out_of_buffer", -1},       // mlx5
		{"rx_discards_phy", "rx_discards_phy", -1},
		{"rx_prio0_discards", "rx_prio0_discards", -1},
		{"rx7_buff_alloc_err", "rx_buff_alloc_err", 7},
		{"[2]: rx_discards", "rx_discards", 2}, // bnxt
		{"rx_drops[5]", "rx_drops", 5},         // gve
		{"  pkts rx OOB", "", -1},              // vmxnet3, of which only the sum is told
		{"drv dropped rx total", "drv dropped rx total", -1},
		{"bw_in_allowance_exceeded", "bw_in_allowance_exceeded", -1}, // ena
		{"pps_allowance_exceeded", "pps_allowance_exceeded", -1},
		{"bw_out_allowance_exceeded", "", -1},
		{"rx_queue_0_xdp_drops", "", -1},
		{"rx0_xdp_drop", "", -1},
		{"tx_dropped", "", -1},
		{"rx_steer_missed_packets", "", -1},
		{"rx_packets", "", -1},
		{"rx_crc_errors", "", -1},
		{"rx_length_errors", "", -1},
	} {
		got, _ := card(map[string]uint64{c.name: 9})
		switch {
		case c.of == "" && len(got) > 0:
			t.Errorf("%s: %+v", c.name, got)
		case c.of != "" && (len(got) != 1 || got[0].Name != c.of || queue(got[0]) != c.queue):
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestNoTwoCountersOfTheSamePacketsAreAdded(t *testing.T) {
	got, n := card(map[string]uint64{"rx_missed_errors": 90, "rx_queue_0_drops": 40,
		"rx_queue_1_drops": 70, "rx_fifo_errors": 90, "rx_over_errors": 0})
	if n != 110 || len(got) != 4 {
		t.Errorf("at least %d of %+v", n, got)
	}
}

func TestBacklogs(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "proc/net")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	line := "00000001 00000010 00000003 00000000 00000000 00000000 00000000 00000000 00000000 " +
		"00000000 00000000 00000000 "
	text := line + "00000000 00000000 00000000\n" + line + "00000005 00000000 00000000\n\n"
	if err := os.WriteFile(filepath.Join(dir, "softnet_stat"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got := Backlogs(root)
	if len(got) != 2 || got[1] != (Backlog{CPU: 5, Dropped: 16, Squeezed: 3}) {
		t.Errorf("%+v", got)
	}
	if got := Backlogs(t.TempDir()); got != nil {
		t.Errorf("%+v of a machine that does not tell", got)
	}
}

// TestAnOverloadIsToldWhileItGoesOn looks once a second.
func TestAnOverloadIsToldWhileItGoesOn(t *testing.T) {
	var w Watch
	now, c := time.Unix(1e9, 0), Counts{}
	look := func(received, gone uint64) bool {
		now = now.Add(time.Second)
		c.Received += received
		c.AtLeast += gone
		c.Card = []Counter{{Name: "rx_missed_errors", Packets: c.AtLeast}}
		counts := c
		l, over := w.Look(now, &counts)
		if over && (l.Counter != "rx_missed_errors" || l.Share < 0.3 || l.PerSecond != 5000) {
			t.Errorf("%+v", l)
		}
		if !over && gone == 0 && l.PerSecond != 0 {
			t.Errorf("nothing was lost, and %+v is told", l)
		}
		return over
	}
	look(0, 7000) // before the first look
	for i, s := range []struct {
		received, gone uint64
		over           bool
	}{
		{10_000, 5000, false}, // one burst
		{10_000, 0, false},
		{10_000, 5000, false}, {10_000, 5000, false}, {10_000, 5000, false}, {10_000, 5000, false},
		{10_000, 5000, true},
		{10_000, 0, true}, {10_000, 99, true}, {10_000, 0, true}, {10_000, 0, true},
		{10_000, 0, true}, {10_000, 0, false},
		{10, 9, false}, {10, 9, false}, {10, 9, false}, {10, 9, false}, {10, 9, false},
	} {
		if got := look(s.received, s.gone); got != s.over {
			t.Errorf("second %d: %v, want %v", i, got, s.over)
		}
	}
	anew := Counts{}
	if _, over := w.Look(now.Add(time.Second), &anew); over {
		t.Error("a driver that began anew is an overload")
	}
}
