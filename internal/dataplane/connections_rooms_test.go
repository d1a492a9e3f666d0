package dataplane

import (
	"fmt"
	"testing"

	"levee/internal/filter/flow"
)

// BenchmarkConnectionRooms measures the time of a packet above an empty program where its
// connection is one of 100,000, and where it is none of them, by the room for connections.
func BenchmarkConnectionRooms(b *testing.B) {
	needRoot(b)
	const many = 100_000
	for _, room := range []flow.Room{1 << 17, 1 << 18, 1 << 20, flow.MaxRoom} {
		r := benchRunner(b, fmt.Sprintf("connections max %d\npass established\ndefault drop\n",
			room))
		c := &connections{TB: b, Runner: r}
		turn := func(first uint32) [][]byte {
			in := make([][]byte, many)
			for i := range in {
				in[i] = c.frame(ack, first+uint32(uint64(i)*7919%many), false)
			}
			return in
		}
		for i := range uint32(many) {
			c.leave(synAck, i)
		}
		b.Run(fmt.Sprintf("%d, 100,000 in turn", room),
			func(b *testing.B) { benchFrames(b, r, turn(0)) })
		b.Run(fmt.Sprintf("%d, none of 100,000 in turn", room),
			func(b *testing.B) { benchFrames(b, r, turn(1<<21)) })
	}
}
