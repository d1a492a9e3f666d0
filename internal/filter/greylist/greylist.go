// Package greylist drops packets of new clients and lets those of others go on: a function for
// programs at ingress, which clang makes of bpf/greylist.bpf.c, and the layout of its memory.
//
// The memory is a head with the secret key of the hash and a meter for each rule, and lines of
// fifteen clients. A client is a tag of its hash, whether it has come again, and a time. A line
// that is full gives the place of the client that has not been heard of for the longest time, so
// that who goes on sending stays.
//
// The package opens, pins and loads nothing.
package greylist

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/filter/limit"
	"levee/internal/lang/policy"
)

//go:generate ../../../bpf/compile -type greylist_head -type greylist_count -type greylist_result -type meter again ../../../bpf/greylist.bpf.c

// Map is the name of the map with the memory, in the specs of programs.
const Map = "greylist"

// Label is the function. It is given the hash of the packet's client, the number of the rule's
// meter, of how many packets a second none is dropped, and when the client may come again (Window).
// It returns GoesOn or Dropped.
const Label = "greylist"

// What the function returns.
const (
	GoesOn  = int32(againGreylistResultGREYLIST_GOES_ON)
	Dropped = int32(againGreylistResultGREYLIST_DROPPED)
)

// LineBits are those of a hash, the upper ones, that name its line.
const LineBits = 20

// MaxInstructions limits the instructions of the function.
const MaxInstructions = 900

// Layout of bpf/greylist.bpf.c.
const (
	HeadBytes = int(unsafe.Sizeof(againGreylistHead{}))
	Meters    = len(againGreylistHead{}.Meters)

	atClock   = int(unsafe.Offsetof(againGreylistHead{}.Clock))
	atSecond  = int(unsafe.Offsetof(againGreylistHead{}.Second))
	atJiffy   = int(unsafe.Offsetof(againGreylistHead{}.Jiffy))
	atMeters  = int(unsafe.Offsetof(againGreylistHead{}.Meters))
	ofUntil   = int(unsafe.Offsetof(againMeter{}.Until))
	meterSize = int(unsafe.Sizeof(againMeter{}))
	atRows    = int(unsafe.Offsetof(againGreylistHead{}.Rows))
	rowSize   = int(unsafe.Sizeof(againGreylistCount{}))
	rows      = len(againGreylistHead{}.Rows)

	lineBytes  = 64
	placeBytes = 4
	perLine    = lineBytes/placeBytes - 1 // the first word is when the line was swept
	timeBits   = 13
	again      = 1 << timeBits
	tickShift  = 24
	span       = 3584
	swept      = 960

	shiftOf = 0x67726579 // what the object has for Room.shift
)

// A minute is within the span, and ticks are those of the language.
var _ = [1]struct{}{}[int(policy.MaxGreylist/policy.GreylistTick)/span]
var _ = [1]struct{}{}[policy.GreylistTick-1<<tickShift]

// Room is the number of clients for which a memory has room: lines of fifteen, a power of two of
// them.
type Room int

// MinRoom is the room of a policy on the smallest machine, in 1 MB, MaxRoom that on the largest, in
// 64 MB, and Usual that where nobody knows the machine, in 16 MB.
const (
	MinRoom Room = perLine << 14
	Usual   Room = perLine << 18
	MaxRoom Room = perLine << 20
)

// Within returns the greatest room that takes no more than so many bytes, or MinRoom.
func Within(bytes int) Room {
	r := MaxRoom
	for r > MinRoom && r.Bytes() > bytes {
		r /= 2
	}
	return r
}

func (r Room) lines() int { return int(r) / perLine }

// shift leaves the number of its line of a hash.
func (r Room) shift() int { return 64 - (bits.Len(uint(r.lines())) - 1) }

// Bytes returns the memory.
func (r Room) Bytes() int { return HeadBytes + r.lines()*lineBytes }

// Window is the span in which a client may come again, as the function is told.
func Window(g *policy.Greylist) int32 {
	after, within := g.Ticks()
	return int32(after | within<<16)
}

var load = sync.OnceValues(loadAgain)

// Emit emits the function, for a memory of a room.
func Emit(b *assembler.Builder, r Room) error {
	return b.Function(load, "know who comes again", assembler.Function{Label: Label,
		Name: "greylist_judge", Entry: againProgEntryGreylist,
		Params: []assembler.Param{assembler.Number("hash"), assembler.Number("meter"),
			assembler.Number("above"), assembler.Number("window")},
		Change: func(body asm.Instructions) asm.Instructions {
			number := asm.Mov.Imm(asm.R0, 0).OpCode
			for i := range body {
				if body[i].Constant == shiftOf && body[i].OpCode == number {
					body[i].Constant = int64(r.shift())
				}
			}
			return body
		}})
}

// Touch emits a load of the line of the client whose hash is in R0, for a memory of a room. R0 and
// R1 are used.
func Touch(b *assembler.Builder, r Room) {
	b.Emit(
		asm.RSh.Imm(asm.R0, int32(r.shift())),
		asm.LSh.Imm(asm.R0, int32(bits.Len(lineBytes-1))),
		asm.LoadMapValue(asm.R1, 0, uint32(HeadBytes)).WithReference(Map),
		asm.Add.Reg(asm.R1, asm.R0),
		asm.LoadMem(asm.R0, asm.R1, 0, asm.Word),
	)
}

// Seed draws the key of a memory and writes its times. The memory is all zero else.
func Seed(memory []byte, hz uint64) {
	limit.Seed(memory) // the hash of a client is that of a budget
	binary.NativeEndian.PutUint32(memory[atSecond:], uint32(hz))
	binary.NativeEndian.PutUint32(memory[atJiffy:], uint32(limit.Tick(hz)))
}

// SetClock sets the time, in jiffies, that programs use; 0 is for that of the kernel. It is for
// tests.
func SetClock(memory []byte, jiffies uint64) {
	binary.NativeEndian.PutUint64(memory[atClock:], jiffies)
}

// Stats counts the clients of a memory.
type Stats struct {
	Clients int    `json:"clients"` // that have come within a minute
	Again   int    `json:"again"`   // of them, that have come again
	Places  int    `json:"room"`    // in all
	Evicted uint64 `json:"evicted"` // clients that gave way while they might have come again
}

// Read counts what is in a memory at a time in jiffies.
func Read(memory []byte, jiffies, hz uint64) Stats {
	room := Within(len(memory)) // it may be mapped with the rest of its last page
	lines := memory[HeadBytes:room.Bytes()]
	s := Stats{Places: int(room)}
	for row := range rows {
		s.Evicted += binary.NativeEndian.Uint64(memory[atRows+row*rowSize:])
	}
	now := uint32(jiffies * limit.Tick(hz) >> tickShift)
	most := uint32(policy.MaxGreylist/policy.GreylistTick) + 1
	for ; len(lines) > 0; lines = lines[lineBytes:] {
		if now-binary.NativeEndian.Uint32(lines) >= span+swept {
			continue
		}
		for at := placeBytes; at < lineBytes; at += placeBytes {
			word := binary.NativeEndian.Uint32(lines[at:])
			if word == 0 || (now-word)&(1<<timeBits-1) > most {
				continue
			}
			s.Clients++
			if word&again != 0 {
				s.Again++
			}
		}
	}
	return s
}

// Dropping reports whether packets of a meter are dropped, at a time in jiffies.
func Dropping(memory []byte, meter int, jiffies uint64) bool {
	return jiffies < binary.NativeEndian.Uint64(memory[atMeters+meter*meterSize+ofUntil:])
}

// Holds is for how long a client is known, about, while so many a second come once: until as many
// have come as its line has places for.
func (r Room) Holds(rate float64) time.Duration {
	return min(policy.MaxGreylist, time.Duration(float64(r)/rate*float64(time.Second)))
}
