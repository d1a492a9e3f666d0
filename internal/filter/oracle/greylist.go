package oracle

import (
	"time"

	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// greylist holds the clients that have come to one greylist.
type greylist struct {
	of      *policy.Greylist
	meter   meter
	clients map[string]*client
}

// client is one that has come. Times are in units of policy.GreylistTick.
type client struct {
	again bool
	at    int64 // the first packet; of one that has come again, the last
}

// come says what of a packet of a greylist goes on, and why.
type come int

const (
	firstTime come = iota // none of its client is known
	tooEarly              // it comes again too early
	belowRate             // as both, below the rate
	comesAgain
)

func (c come) decides() bool { return c <= tooEarly }

var comes = [...]string{
	firstTime:  "is dropped: nothing has come of its client within the time",
	tooEarly:   "is dropped: its client comes again too early",
	belowRate:  "goes on: packets are dropped above the rate only, and this one is below it",
	comesAgain: "goes on: its client has come before",
}

// judge says what a greylist makes of a packet that its rule matches.
func (g *greylist) judge(pkt *packet.Packet, frame []byte, now time.Time) come {
	stranger := g.meter.above(g.of.Above, now)
	key, at := keyOf(&policy.FlowKey, pkt, frame), now.UnixNano()/int64(policy.GreylistTick)
	after, within := g.of.Ticks()
	c := g.clients[key]
	is := comesAgain
	switch {
	case c == nil || at-c.at > int64(within):
		g.clients[key] = &client{at: at}
		is = firstTime
	case !c.again && at-c.at < int64(after):
		is = tooEarly
	default:
		c.again, c.at = true, at
	}
	if is.decides() && !stranger {
		return belowRate
	}
	return is
}
