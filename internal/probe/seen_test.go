package probe

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"levee/internal/packet"
	"levee/internal/packet/template"
	"levee/internal/probe/witness"
)

// TestALongPacketWasNotSeen: a witness hands on the first bytes of a packet. Of one that has more,
// nothing was known: it had not arrived, whatever its policy counted.
func TestALongPacketWasNotSeen(t *testing.T) {
	for _, words := range []string{"udp port 53 len 601", "ipv6 udp port 53 len 1400",
		"vlan 7 icmp len 1228", "tcp syn port 80"} {
		made, ds := template.One("packet", words)
		if made == nil {
			t.Fatal(ds)
		}
		frame, err := made.Build()
		if err != nil {
			t.Fatal(err)
		}
		var all packet.Packet
		packet.Decode(frame, &all)
		told := &witness.Packet{Link: packet.Ethernet.String(), Length: len(frame),
			Bytes: frame[:min(len(frame), witness.Snap)]}
		var p packet.Packet
		ip := ipOf(told, &p)
		if ip == nil || p.Dst != all.Dst || p.DstPort != all.DstPort || p.Len != all.Len {
			t.Errorf("%s: %+v", words, p)
		} else if headers := frame[all.NetworkOffset:]; !bytes.HasPrefix(ip, headers[:28]) {
			t.Errorf("%s: % x, want % x", words, ip[:28], headers[:28])
		}
	}
}

// watched is a run with one witness, and what that reads and says.
func watched() (r *run, reads *io.PipeReader, says *io.PipeWriter) {
	out, says := io.Pipe()
	reads, in := io.Pipe()
	r = &run{Options: Options{Wait: time.Nanosecond, Owned: &Owned{Prefixes: []Prefix{{}}}},
		eyes: map[eyeKey]*eye{}, ended: map[*Prefix]string{}, news: make(chan struct{}, 1)}
	e := &eye{stdin: in, begun: make(chan struct{}), ended: make(chan struct{}),
		drained: make(chan int, 1)}
	r.eyes[keyOf(&r.Owned.Prefixes[0])] = e
	go e.read(out, func(*eye, *witness.Packet) { r.results = append(r.results, result{}) })
	return r, reads, says
}

// TestAWitnessThatIsHeldUpIsWaitedFor: its packets came behind the last --wait, and the prefix was
// taken for somebody else's.
func TestAWitnessThatIsHeldUpIsWaitedFor(t *testing.T) {
	r, reads, says := watched()
	defer says.Close()
	go func() {
		to := json.NewEncoder(says)
		questions := bufio.NewScanner(reads)
		for n := 1; questions.Scan(); n++ {
			if to.Encode(&witness.Told{Packet: &witness.Packet{}}) != nil ||
				to.Encode(&witness.Told{Drained: n}) != nil {
				return
			}
		}
	}()
	for want := 1; want <= 3; want++ {
		if err := r.settle(t.Context(), 0, 1, func(int) bool { return false }); err != nil ||
			len(r.results) != want {
			t.Fatalf("%d packets told, want %d: %v", len(r.results), want, err)
		}
	}
}

// TestAWitnessThatDoesNotAnswerEndsItsPrefix, and is asked once.
func TestAWitnessThatDoesNotAnswerEndsItsPrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, reads, says := watched()
		defer says.Close()
		questions := 0
		go func() {
			for lines := bufio.NewScanner(reads); lines.Scan(); questions++ {
			}
		}()
		for range 2 {
			if err := r.settle(t.Context(), 0, 1, func(int) bool { return false }); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		why := r.ended[&r.Owned.Prefixes[0]]
		if !strings.Contains(why, "did not answer within") || questions != 1 {
			t.Errorf("%q behind %d questions", why, questions)
		}
		reads.Close()
	})
}
