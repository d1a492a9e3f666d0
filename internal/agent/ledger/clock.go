package ledger

import (
	"encoding/binary"
	"time"

	"go.etcd.io/bbolt"
)

// Times in the file are those of a clock that nobody sets: it goes on from one process to the next,
// and stands still while none has the file. The clock of the machine is ahead of it by an offset,
// in ms, which stands in the file with the latest time that is known: that of the newest lease, or
// of some minutes ago. Of a file without them the offset is 0.
type clock struct {
	ahead, latest int64
	told          time.Time // when Clock was called last; zero: never
}

var clockKey = []byte("clock") // among positions, whose names have a blank

const clockBytes = 16

// leastJump is the smallest step of a clock that counts: less is a clock that goes a little fast,
// or slow.
const leastJump = 2 * time.Second

// noteEvery is after how long without a new lease the time is noted in the file. A machine that
// begins with an older time has leases last from then on: without it one of a day did not end
// where each boot takes it back to when it was given.
const noteEvery = 10 * time.Minute

// Clock tells the ledger the time, as time.Now gives it. Where the clock of the machine has jumped
// since the ledger was told last, all leases are moved with it, so that each lasts as long as it
// was to; by how much is returned. The kernel's clock does not jump, and stands still while a
// machine sleeps.
func (l *Ledger) Clock(now time.Time) (jumped time.Duration, err error) {
	return l.told(now, now.Sub(l.clock.told))
}

// told is Clock with the time that has passed since the last call, by a clock that nobody sets. At
// the first call only a time before the latest one that is known shows a jump.
func (l *Ledger) told(now time.Time, passed time.Duration) (jumped time.Duration, err error) {
	if l.db == nil {
		return 0, ErrClosed
	}
	shows := now.Round(0)
	expected := l.clock.told.Round(0).Add(passed)
	if l.clock.told.IsZero() {
		expected = shows
		if latest := time.UnixMilli(l.clock.latest + l.clock.ahead); latest.After(shows) {
			expected = latest
		}
	}
	next := l.clock
	if jumped = shows.Sub(expected).Truncate(time.Millisecond); jumped.Abs() < leastJump {
		jumped = 0
	}
	next.ahead, next.told = next.ahead+jumped.Milliseconds(), now
	known := shows.UnixMilli() - next.ahead
	if jumped == 0 && (l.leases == 0 || known-next.latest < noteEvery.Milliseconds()) {
		l.clock = next
		return 0, nil
	}
	next.latest = max(next.latest, known)
	if err := l.update(func(tx *bbolt.Tx) error { return next.write(tx) }); err != nil {
		return 0, err
	}
	l.clock = next
	return jumped, nil
}

// stamp is a time as the file has it.
func (c *clock) stamp(t time.Time) uint64 { return uint64(t.UnixMilli() - c.ahead) }

// at reads a time of the file, of which 0 is none.
func (c *clock) at(b []byte) time.Time {
	if ms := binary.BigEndian.Uint64(b); ms != 0 {
		return time.UnixMilli(int64(ms) + c.ahead)
	}
	return time.Time{}
}

// note notes in the file that leases were recorded, and returns the clock that knows of it.
func (c clock) note(tx *bbolt.Tx, leases []Lease) (clock, error) {
	before := c.latest
	for i := range leases {
		c.latest = max(c.latest, leases[i].Since.UnixMilli()-c.ahead)
	}
	if c.latest == before {
		return c, nil
	}
	return c, c.write(tx)
}

func (c *clock) write(tx *bbolt.Tx) error {
	b := binary.BigEndian.AppendUint64(nil, uint64(c.ahead))
	return note(tx, clockKey, binary.BigEndian.AppendUint64(b, uint64(c.latest)))
}

// read reads what write has written. What has another length is of no levee that is known.
func (c *clock) read(tx *bbolt.Tx) {
	if b, err := noted(tx, clockKey); err == nil && len(b) == clockBytes {
		c.ahead = int64(binary.BigEndian.Uint64(b))
		c.latest = int64(binary.BigEndian.Uint64(b[8:]))
	}
}
