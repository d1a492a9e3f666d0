package flood

import (
	"fmt"
	"math"
)

// judge draws the conclusions from the raw counts of a window.
func (w *Window) judge() {
	w.figures()
	w.Invalid = append([]string(nil), w.conditions...)
	say := func(format string, args ...any) {
		w.Invalid = append(w.Invalid,
			fmt.Sprintf(format, args...))
	}
	if w.Offered < minPackets {
		say("the generator offered %d packets only", w.Offered)
		return
	}
	if w.Packets == 0 {
		say("the receiver took no packet within the window")
	}
	if d := imbalance(w.Offered, w.Refused+w.Received); d > maxImbalance {
		say("packets do not balance: %d offered, %d refused by the ring + %d received (%.2f %% "+
			"off)", w.Offered, w.Refused, w.Received, d*100)
	}
	if d := imbalance(w.Received, w.Dropped+w.PassedOn+w.Overflow); d > maxImbalance {
		say("packets do not balance: %d received, %d dropped by the rung's own counter + %d "+
			"passed on + %d without room in the application's queue (%.2f %% off)",
			w.Received, w.Dropped, w.PassedOn, w.Overflow, d*100)
	}
	switch share := ratio(w.PassedOn, w.Received); {
	case w.passes == 0 && share > maxImbalance:
		say("the rung let %.2f %% of the flood pass: it does not do what the others do", share*100)
	case w.passes > 0 && math.Abs(share-w.passes) > maxUneven:
		say("the rung let %.2f %% of the packets pass, not %.2f %%", share*100, w.passes*100)
	}
	if share := ratio(w.Martians, w.Received); share > maxImbalance {
		say("the kernel's address checks dropped %.2f %% of the flood before the rung saw it",
			share*100)
	}
	if w.trackerDrops > 0 {
		say("the conntrack table is full: %d flows were thrown out or refused", w.trackerDrops)
	}
	if w.Steal > MaxSteal+w.ticks/2 { // two cores or more share a tick
		say("the hypervisor took %.1f %% of the time (steal)", w.Steal*100)
	}
	if other := w.other(); other > farTooMuchOther {
		say("something else than receiving took %.1f %% of the receiving core", other*100)
	}
	w.saturation()
}

// other returns the share of the core that something else than the rung took from it: while the
// receiving thread wanted it, or, where that also waits for the application behind it, what neither
// of both had.
func (w *Window) other() float64 {
	if !w.application && w.passes == 0 {
		return w.ThreadWaited
	}
	if w.ThreadRunnable < minBusy {
		return 0 // they had time left
	}
	return max(0, w.CoreBusy-w.ThreadBusy-w.ApplicationBusy)
}

// figures relates the counts to time.
func (w *Window) figures() {
	packets := w.Packets
	if w.application {
		packets = w.Reached
	}
	if w.Seconds > 0 {
		w.PPS = float64(packets) / w.Seconds
	}
	per := math.Max(float64(packets), 1)
	w.NsPerPacket = (w.ThreadBusy + w.ApplicationBusy) * w.Seconds * 1e9 / per
	if len(w.hardware) == len(events) {
		cycles, instructions := w.hardware[0]/per, w.hardware[1]/per
		w.CyclesPerPacket, w.InstructionsPerPacket = &cycles, &instructions
	}
}

// saturation tells whether the rung was the limit, and if not, how that shows.
func (w *Window) saturation() {
	switch {
	case w.Refused == 0:
		w.Limit = "the ring never refused a packet: the generator was the limit"
	case w.CoreBusy+w.ticks < minBusy: // the kernel counts whole ticks
		w.Limit = "the receiving core had time left: the generator was the limit"
	case w.other() > maxOther+w.ticks:
		w.Limit = "something else took a part of the receiving core: the rung had less than " +
			"all of it"
	case w.ThreadRunnable < minBusy:
		w.Limit = "the receiver had time left, which something else used: the generator was " +
			"the limit"
	default:
		w.Saturated = true
	}
}

// imbalance returns the distance of two counts that should be one, as a share of the first.
func imbalance(want, got uint64) float64 {
	if want == got {
		return 0
	}
	return math.Abs(float64(want)-float64(got)) / math.Max(float64(want), 1)
}

func ratio(a, b uint64) float64 { return float64(a) / math.Max(float64(b), 1) }

// RefusedShare returns the share of the packets offered that found the ring full.
func (w *Window) RefusedShare() float64 { return ratio(w.Refused, w.Offered) }

// OffBalance returns the share of the packets offered, or of those received, without an account.
func (w *Window) OffBalance() float64 {
	return max(imbalance(w.Offered, w.Refused+w.Received),
		imbalance(w.Received, w.Dropped+w.PassedOn+w.Overflow))
}
