package logging

import "encoding/binary"

// Losses are events that reached no reader.
type Losses struct {
	Bound uint64 `json:"bounded"` // above EventsPerSecond
	Ring  uint64 `json:"untold"`  // nobody watched, or there was no place
}

// ReadLosses reads the memory of so many logs, in their order.
func ReadLosses(memory []byte, logs int) []Losses {
	out, row := make([]Losses, logs), Row(logs)
	for at := 0; at+row <= len(memory); at += row {
		for i := range out {
			l := memory[at+8+16*i:]
			out[i].Bound += binary.NativeEndian.Uint64(l)
			out[i].Ring += binary.NativeEndian.Uint64(l[8:])
		}
	}
	return out
}
