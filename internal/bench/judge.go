package bench

import (
	"fmt"
	"math"
)

// judge draws the conclusions from the raw counts of a window.
func (w *Window) judge() {
	if w.Seconds > 0 {
		w.PPS = float64(w.Packets) / w.Seconds
	}
	w.NsPerPacket = w.ThreadBusy * w.Seconds * 1e9 / math.Max(float64(w.Packets), 1)
	w.Invalid = append([]string(nil), w.conditions...)
	say := func(format string, args ...any) { w.Invalid = append(w.Invalid, fmt.Sprintf(format, args...)) }
	if w.Offered < minPackets {
		say("the generator offered %d packets only", w.Offered)
		return
	}
	if w.Packets == 0 {
		say("the receiver took no packet within the window")
	}
	if d := imbalance(w.Offered, w.Refused+w.Received); d > maxImbalance {
		say("packets do not balance: %d offered, %d refused by the ring + %d received (%.2f %% off)", w.Offered, w.Refused, w.Received, d*100)
	}
	if d := imbalance(w.Received, w.Dropped+w.PassedOn); d > maxImbalance {
		say("packets do not balance: %d received, %d dropped by the rung's own counter + %d passed on (%.2f %% off)", w.Received, w.Dropped, w.PassedOn, d*100)
	}
	if share := ratio(w.PassedOn, w.Received); share > maxImbalance {
		say("the rung let %.2f %% of the flood pass: it does not do what the others do", share*100)
	}
	if share := ratio(w.Martians, w.Received); share > maxImbalance {
		say("the kernel's address checks dropped %.2f %% of the flood before the rung saw it", share*100)
	}
	if w.Steal > maxSteal {
		say("the hypervisor took %.1f %% of the time (steal)", w.Steal*100)
	}
	// Where the core had time left, nothing took it from receiving: what else it did, waking up for the
	// most part, makes the figure no smaller.
	if other := w.CoreBusy - w.ThreadBusy; w.CoreBusy >= minBusy && other > maxOther+w.ticks {
		say("something else than receiving took %.1f %% of the receiving core", other*100)
	}
	w.Saturated = w.Refused > 0 && w.CoreBusy+w.ticks >= minBusy // the kernel counts whole ticks
}

// imbalance is the distance of two counts that should be one, as a share of the first.
func imbalance(want, got uint64) float64 {
	if want == got {
		return 0
	}
	return math.Abs(float64(want)-float64(got)) / math.Max(float64(want), 1)
}

func ratio(a, b uint64) float64 { return float64(a) / math.Max(float64(b), 1) }
