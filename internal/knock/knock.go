// Package knock is authenticated single packets: one datagram that shows who sends it, and is
// answered by nothing.
//
// In go a key and a time; out comes a datagram, or, for whoever listens, who has sent one and
// whether it may be believed. It must never take a datagram twice, one whose time is not near, or
// one without the key. It opens no socket and reads no clock. The layout, all of it in network
// order:
//
//	0   4  "lvk1"
//	4   8  time, microseconds since 1970 (UTC)
//	12 16  a number that is used once
//	28 32  HMAC-SHA256 (RFC 2104, FIPS 180-4) of the 28 bytes before
package knock

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

const (
	magic    = "lvk1"
	atTime   = 4
	atNonce  = 12
	atMAC    = 28
	nonceLen = atMAC - atNonce

	// Bytes of a datagram.
	Bytes = atMAC + sha256.Size
	// KeyBytes of a key: what HMAC-SHA256 makes full use of.
	KeyBytes = 32
	// Window limits the difference of the two clocks, either way.
	Window = 30 * time.Second
	// mostSeen is the number of datagrams that a gate remembers; only who has the key fills it.
	mostSeen = 1 << 14
)

// Key is a key that both sides have.
type Key [KeyBytes]byte

// NewKey returns a random key.
func NewKey() (k Key) {
	_, _ = rand.Read(k[:]) // which never fails
	return k
}

// String returns the key as its file has it: one line of base64 (RFC 4648).
func (k Key) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// ParseKey reads what String gives.
func ParseKey(text string) (k Key, err error) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) != KeyBytes {
		return k, fmt.Errorf("it holds no key: `levee knock key FILE` makes one, %d bytes in "+
			"base64", KeyBytes)
	}
	copy(k[:], b)
	return k, nil
}

func (k *Key) mac(head []byte) []byte {
	h := hmac.New(sha256.New, k[:])
	h.Write(head)
	return h.Sum(nil)
}

// Datagram is one that is sent at a time.
func (k *Key) Datagram(now time.Time) []byte {
	b := make([]byte, atMAC, Bytes)
	copy(b, magic)
	binary.BigEndian.PutUint64(b[atTime:], uint64(now.UnixMicro()))
	_, _ = rand.Read(b[atNonce:])
	return append(b, k.mac(b)...)
}

// Why a gate does not open.
var (
	// ErrForged is of what has not the key, or is no knock at all.
	ErrForged = errors.New("it has not the key")
	// errReplayed is of a datagram that has been here.
	errReplayed = errors.New("it has been here before")
	// ErrFull says that there is no memory to remember the number of a datagram.
	ErrFull = errors.New("too many have come within a minute")
)

// ClockError is of a datagram of somebody who has the key, and whose clock is another.
type ClockError struct {
	Behind time.Duration // its time is so much before that of the gate; after it where negative
	Begun  bool          // it is of before the gate began, which may have taken it then
	Back   bool          // the gate's clock has gone back behind what it remembers
	Later  bool          // a gate before has taken one of a later time
}

func (e *ClockError) Error() string {
	by, way := e.Behind, "behind"
	if by < 0 {
		by, way = -by, "ahead of"
	}
	if e.Back {
		return fmt.Sprintf("this machine's clock has gone back: for %v more nobody can tell what "+
			"has been here before", by.Round(time.Millisecond))
	}
	if e.Later {
		return fmt.Sprintf("one of a later time was taken before this began to listen: for %v "+
			"more nobody can tell what has been here before, unless both sides get a new key",
			by.Round(time.Millisecond))
	}
	if e.Begun {
		return fmt.Sprintf("it was sent %v before this began to listen: knock again",
			by.Round(time.Millisecond))
	}
	return fmt.Sprintf("the clock of who knocks is %v %s this machine's: set one of the two",
		by.Round(time.Second), way)
}

// Gate takes each datagram of a key once, within its time. It is not for concurrent use.
type Gate struct {
	key  Key
	from time.Time // it remembers what came since then
	last time.Time // of all that gates with this key have taken, the latest time
	past time.Time // what last was when this one began
	// numbers of what was taken, and until when these could come again
	seen map[[nonceLen]byte]time.Time
	next time.Time // when seen is looked through again
	gone time.Time // what was sent before it may have been forgotten
}

// NewGate returns a gate that has taken nothing, from now on: what was sent before may have been
// taken by another. left is what another gate with this key has left, and not later than that: the
// clock may have gone back since. Anything else is as nothing.
func NewGate(k Key, now time.Time, left []byte) *Gate {
	g := &Gate{key: k, from: now, seen: map[[nonceLen]byte]time.Time{}}
	if len(left) == leftBytes && hmac.Equal(k.mac(left[:timeBytes])[:leftBytes-timeBytes],
		left[timeBytes:]) {
		g.past = time.UnixMicro(int64(binary.BigEndian.Uint64(left)))
		g.last = g.past
	}
	return g
}

// What a gate leaves is the latest time that it has taken, and the beginning of its MAC, by which a
// gate with another key knows that it is not about its own datagrams.
const (
	timeBytes = 8
	leftBytes = 16
)

// Left returns the record of taken datagrams for the next gate with the key, nil where nothing was
// taken.
func (g *Gate) Left() []byte {
	if g.last.IsZero() {
		return nil
	}
	b := binary.BigEndian.AppendUint64(nil, uint64(g.last.UnixMicro()))
	return append(b, g.key.mac(b)[:leftBytes-timeBytes]...)
}

// Take is nil for a datagram that opens the gate. What it costs to refuse one without the key is
// one HMAC.
func (g *Gate) Take(b []byte, now time.Time) error {
	if len(b) != Bytes || string(b[:atTime]) != magic {
		return ErrForged
	}
	if !hmac.Equal(g.key.mac(b[:atMAC]), b[atMAC:]) {
		return ErrForged
	}
	us := binary.BigEndian.Uint64(b[atTime:])
	if us > uint64(farFuture) {
		return ErrForged
	}
	sent := time.UnixMicro(int64(us))
	behind := now.Sub(sent)
	switch {
	case behind > Window || behind < -Window:
		return &ClockError{Behind: behind}
	case sent.Before(g.from):
		return &ClockError{Behind: g.from.Sub(sent), Begun: true}
	case !g.past.IsZero() && !sent.After(g.past):
		return &ClockError{Behind: g.past.Sub(sent), Later: true}
	case sent.Before(g.gone):
		return &ClockError{Behind: g.gone.Sub(sent), Back: true}
	}
	g.forget(now)
	nonce := [nonceLen]byte(b[atNonce:])
	if _, twice := g.seen[nonce]; twice {
		return errReplayed
	}
	if len(g.seen) >= mostSeen {
		return ErrFull
	}
	g.seen[nonce] = sent.Add(Window)
	if sent.After(g.last) {
		g.last = sent
	}
	return nil
}

// farFuture is beyond the times whose microseconds a time.Time can count: the year 2262.
const farFuture = int64(1<<63-1) / 1000

// forget removes numbers that are too old to be taken again.
func (g *Gate) forget(now time.Time) {
	if now.Before(g.next) && len(g.seen) < mostSeen {
		return
	}
	g.next = now.Add(time.Second)
	if gone := now.Add(-Window); gone.After(g.gone) {
		g.gone = gone
	}
	for nonce, until := range g.seen {
		if now.After(until) {
			delete(g.seen, nonce)
		}
	}
}
