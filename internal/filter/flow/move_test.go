package flow

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"levee/internal/packet"
)

const testNow = 1_000_000

func testMemory(r Room) []byte {
	memory := make([]byte, r.Bytes())
	Seed(memory, 1000)
	return memory
}

func testConnection(i int) Older {
	ip := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
	return Older{Proto: packet.ProtoTCP, Near: netip.MustParseAddrPort("192.0.2.1:443"),
		Far: netip.AddrPortFrom(ip, uint16(i)), State: Open}
}

// at is the offset of the place of a connection, 0 if it has none.
func at(memory []byte, c Older) int {
	room, hash := roomOf(memory), HashOf(memory, c.Proto, c.Near, c.Far)
	first := room.atPlaces() + int(hash>>room.shift())*places*placeBytes
	if memory[headBytes+int(hash>>room.shift())]&(1<<(hash<<lowBits>>lowBits&7)) == 0 {
		return 0
	}
	for at := first; at < first+places*placeBytes; at += placeBytes {
		p := placeAt(memory, at).load()
		if p.inUse(memory, testNow) && p.word>>lowBits == hash<<lowBits>>lowBits {
			return at
		}
	}
	return 0
}

func TestRooms(t *testing.T) {
	for _, c := range []struct{ n, want Room }{
		{1, MinRoom}, {MinRoom, MinRoom}, {MinRoom + 1, 2 * MinRoom}, {100_000, 131_072},
		{MaxRoom, MaxRoom},
	} {
		if got := RoomFor(int(c.n)); got != c.want {
			t.Errorf("room for %d is %d, not %d", c.n, got, c.want)
		}
	}
	for r := MinRoom; r <= MaxRoom; r *= 2 {
		if got := Within(r.Bytes()); got != r {
			t.Errorf("%d bytes are room for %d, not %d", r.Bytes(), got, r)
		}
		if got := Within(r.Bytes() - 1); got != max(MinRoom, r/2) {
			t.Errorf("a byte less than %d is room for %d", r.Bytes(), got)
		}
		if r.atPlaces()%16 != 0 || r.atOpening()%8 != 0 {
			t.Errorf("words of %d places are not where CPUs write them at once", r)
		}
	}
}

// What a connection's place has of its hash has to do for every other room.
func TestRoomChangesAndConnectionsEnd(t *testing.T) {
	const n = 1000 // so few that no bucket is full, whatever the key
	rooms := []Room{MinRoom, 8 * MinRoom, 2 * MinRoom, MaxRoom, MinRoom, 64 * MinRoom}
	memory := testMemory(rooms[0])
	for i := range n {
		Adopt(memory, testConnection(i), testNow)
	}
	for _, r := range rooms[1:] {
		next := testMemory(r)
		m := Move(memory, next, testNow, 0)
		if *crowded(next) <= testNow {
			t.Fatal("who begins meanwhile is not known")
		}
		m.Finish(testNow)
		memory = next
		for i := range n {
			if at(memory, testConnection(i)) == 0 {
				t.Fatalf("connection %d has no place among %d", i, r)
			}
		}
		if s := Read(memory, testNow); s.Live != n || s.Open != n || s.Taken != 0 ||
			s.Places != int(r) {
			t.Fatalf("in a memory of %d: %+v", r, s)
		}
		if *crowded(memory) != 0 {
			t.Fatalf("a memory of %d says that it forgot somebody", r)
		}
	}
}

// Fewer places than connections: those stay that were heard last, and the others are counted.
func TestSmallerRoomKeepsWhatWasHeardLast(t *testing.T) {
	const n = 2 * int(MinRoom)
	memory := testMemory(8 * MinRoom)
	for i := range n {
		Adopt(memory, testConnection(i), testNow-1000*uint64(1-i%2))
	}
	next := testMemory(MinRoom)
	Move(memory, next, testNow, 0).Finish(testNow)
	s := Read(next, testNow)
	if s.Live+int(s.Taken+s.Refused) != n { // some found no place before, either
		t.Errorf("%d live, %d lost their place: not %d", s.Live, s.Taken, n)
	}
	if *crowded(next) <= testNow {
		t.Error("what leaves to who lost his place may open a connection")
	}
	var kept [2]int
	for i := range n {
		if at(next, testConnection(i)) != 0 {
			kept[i%2]++
		}
	}
	if kept[1] < 4*kept[0] {
		t.Errorf("of those of before %d stay, of those heard since %d", kept[0], kept[1])
	}
}

// TestATrialLeavesAMemoryThatHasForgotten: the memory to which a trial may go back knows nobody who
// began in it, and sees what answers him.
func TestATrialLeavesAMemoryThatHasForgotten(t *testing.T) {
	const trial = 60_000
	from, to := testMemory(MinRoom), testMemory(2*MinRoom)
	m := Move(from, to, testNow, trial)
	m.Follow(testNow)
	m.Finish(testNow)
	if *crowded(from) <= testNow+trial || *crowded(to) != 0 {
		t.Errorf("at %d the old memory has forgotten until %d, the new one until %d", testNow,
			*crowded(from), *crowded(to))
	}
}

// TestWhoIsForgottenInAMoveStaysForgotten: a flood goes on while connections move, and takes places
// in the memory that judges.
func TestWhoIsForgottenInAMoveStaysForgotten(t *testing.T) {
	for name, lose := range map[string]func(from, to []byte){
		"before the swap": func(from, _ []byte) { from[atTaken]++ },
		"after it":        func(_, to []byte) { to[atTaken]++ },
	} {
		for _, trial := range []uint64{0, 60_000} {
			from, to := testMemory(MinRoom), testMemory(2*MinRoom)
			m := Move(from, to, testNow, trial)
			m.Follow(testNow)
			lose(from, to)
			m.Finish(testNow)
			if *crowded(to) <= testNow {
				t.Errorf("%s, trial %d: the memory says that it knows who began", name, trial)
			}
		}
	}
}

// TestTheYoungerStay: of one rank that gives way whose lease began first, whatever its length.
func TestTheYoungerStay(t *testing.T) {
	memory := testMemory(MinRoom)
	ports := 0
	since := func(state uint64, ago uint32) uint64 {
		return worthOf(memory, moved{word: state,
			expires: testNow - ago + leaseOf(memory, state)}, ports, testNow)
	}
	old, young := since(uint64(answered), 60_000), since(uint64(stranger), 1000)
	if old >= young {
		t.Errorf("who came a minute ago is worth %#x, a second ago %#x", old, young)
	}
	if now := since(uint64(stranger), 0); now <= young {
		t.Errorf("who came a second ago is worth %#x, now %#x", young, now)
	}
	own := since(uint64(twoWay), 60_000)
	if ports = 1; since(uint64(served), 1000) <= own {
		t.Error("a port alone gives way to what this side began before it")
	}
	if ports = 2; since(uint64(served), 1000) >= own {
		t.Error("what this side began gives way to one of several ports")
	}
}

// Between the two passes both memories change: the later knowledge wins.
func TestMoveForgetsWhatComesMeanwhile(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to uint64 // what the state becomes in each, 0: as it was
		at       [2]int32
		want     uint64
	}{
		{"nothing", 0, 0, [2]int32{}, uint64(open)},
		{"a FIN comes before", uint64(open) | finIn, 0, [2]int32{}, uint64(open) | finIn},
		{"a FIN comes after", 0, uint64(open) | finIn, [2]int32{}, uint64(open) | finIn},
		{"it closes before", uint64(closing), 0, [2]int32{5, 0}, uint64(closing)},
		{"it closes in the same tick", uint64(closing), 0, [2]int32{}, uint64(closing)},
		{"it closes after", 0, uint64(closing), [2]int32{0, 5}, uint64(closing)},
		{"it is reset before, and opens after", uint64(reset), uint64(opening), [2]int32{5, 6},
			uint64(opening)},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to := testMemory(MinRoom), testMemory(2*MinRoom)
			Adopt(from, testConnection(1), testNow)
			m := Move(from, to, testNow, 0)
			Adopt(from, testConnection(2), testNow) // new, too
			for i, state := range []uint64{c.from, c.to} {
				memory := [][]byte{from, to}[i]
				p := placeAt(memory, at(memory, testConnection(1)))
				since := p.load().since(memory) + uint32(c.at[i])
				if state != 0 {
					*p.word = *p.word&^(1<<lowBits-1) | state
					*p.expires = since + leaseOf(memory, state&stateOf)
				}
			}
			m.Finish(testNow)
			got := *placeAt(to, at(to, testConnection(1))).word & (1<<lowBits - 1)
			if got != c.want {
				t.Errorf("the state is %#x, not %#x", got, c.want)
			}
			if at(to, testConnection(2)) == 0 {
				t.Error("a new connection is not known")
			}
		})
	}
}

// Who is opening is looked up by the bit of its bucket.
func TestMoveHidesOpening(t *testing.T) {
	from, to := testMemory(MinRoom), testMemory(MaxRoom)
	c := testConnection(7)
	c.State = uint32(opening)
	Adopt(from, c, testNow)
	Move(from, to, testNow, 0)
	bucket := HashOf(to, c.Proto, c.Near, c.Far) >> MaxRoom.shift()
	word := binary.NativeEndian.Uint64(to[MaxRoom.atOpening()+int(bucket/64*8):])
	if word>>(bucket%64)&1 == 0 {
		t.Error("nobody is said to be opening in the bucket")
	}
}

func ExampleRoom_Bytes() {
	fmt.Println(MinRoom.Bytes(), MaxRoom.Bytes())
	// Output: 281088 67698944
}

// BenchmarkMove measures the time that a replace takes to move a million connections, and to have
// what comes meanwhile follow.
func BenchmarkMove(b *testing.B) {
	for _, c := range []struct{ from, to Room }{{MaxRoom, MaxRoom / 2}, {MaxRoom / 2, MaxRoom}} {
		b.Run(fmt.Sprintf("%d to %d", c.from, c.to), func(b *testing.B) {
			from := testMemory(c.from)
			for i := range 1_000_000 {
				Adopt(from, testConnection(i), testNow)
			}
			for b.Loop() {
				Move(from, testMemory(c.to), testNow, 0).Finish(testNow)
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, n := range []int{0, 1000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			memory := testMemory(MaxRoom)
			for i := range n {
				Adopt(memory, testConnection(i), testNow)
			}
			for b.Loop() {
				Read(memory, testNow)
			}
		})
	}
}
