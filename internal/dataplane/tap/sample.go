package tap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/filter/capture"
	"levee/internal/filter/state"
	"levee/internal/kernel"
	"levee/internal/packet"
)

// Sampled is a judged packet with its weight: the number of packets for which it stands.
type Sampled struct {
	At     time.Time
	Weight uint64 // packets, with this one
	CPU    int    // that judged it
	Slot   int    // that decided, of the policy in force
	By     string // the ID of that slot
	Passed bool
	Bytes  int    // of the whole frame
	Packet []byte // the first of them; it is overwritten when the function returns
}

// Sampler takes samples of what an interface's policy judges, of packets that pass and of others
// apart. It goes on when the policy is replaced. When its process is killed, the program that takes
// samples turns itself off. It is for one goroutine.
type Sampler struct {
	follower
	snap   int
	stamp  string // of the policies that were followed last
	steady bool   // the look before had the same
	stop   func()
	mapped []byte
	before capture.Sampled // of programs that are gone
	reader *ringbuf.Reader
	record ringbuf.Record
	bound  uint64
}

// mostSampled is the number of samples a second that a sampler can be told to take of each kind.
const mostSampled = 100_000

// NewSampler begins to take up to snap bytes of packets of dev.
func NewSampler(ctx context.Context, dev string, snap int) (*Sampler, error) {
	s := &Sampler{snap: snap, bound: 1, follower: newFollower(dev)}
	s.role = state.Samples
	s.program = func(g *store.Description, j capture.Judge, _ uint64) (*ebpf.CollectionSpec,
		*ebpf.ProgramSpec, error) {
		return capture.SampleSpec(capture.Sample{Judge: j, Snap: snap,
			Passes: codesOf(g.Mode, "pass")})
	}
	s.leave = s.finish
	if err := s.begin(ctx); err != nil {
		s.follower.Close()
		return nil, err
	}
	s.stop = s.renew()
	return s, nil
}

// begin follows the policy in force, and maps what the program of a new one counts.
func (s *Sampler) begin(ctx context.Context) error {
	if err := s.follower.Follow(ctx); err != nil || s.Hook == nil || s.mapped != nil {
		return err
	}
	m := s.Hook.Coll.Maps[capture.SampledMap]
	mem, err := store.MapMemory(m, int(m.ValueSize()*m.MaxEntries()))
	if err != nil {
		return err
	}
	s.mapped = mem
	if s.reader, err = ringbuf.NewReader(s.Hook.Coll.Maps[capture.SamplesMap]); err != nil {
		return kernel.Refuse(err, "read samples")
	}
	return s.set()
}

func (s *Sampler) set() error {
	return s.Hook.Coll.Variables["bound"].Set(s.bound)
}

// finish is called before a program goes: whoever replaces a policy has no interest in the rest.
func (s *Sampler) finish() {
	if s.mapped == nil {
		return
	}
	now := capture.ReadSampled(s.mapped)
	s.before.Told += now.Told
	s.before.Full += now.Full
	_ = unix.Munmap(s.mapped)
	s.mapped = nil
	if s.reader != nil {
		s.reader.Close()
		s.reader = nil
	}
}

// SetRate says how many samples a second each CPU takes of each kind, at most mostSampled.
func (s *Sampler) SetRate(each int) error {
	_, hz, err := kernel.Jiffies()
	if err != nil {
		return err
	}
	bound := uint64(max(1, min(each, mostSampled)/int(hz)))
	if bound == s.bound || s.Hook == nil {
		return nil
	}
	s.bound = bound
	return s.set()
}

// Counted returns the number of samples.
func (s *Sampler) Counted() (told, full uint64) {
	sum := s.before
	if s.mapped != nil {
		now := capture.ReadSampled(s.mapped)
		sum.Told, sum.Full = sum.Told+now.Told, sum.Full+now.Full
	}
	return sum.Told, sum.Full
}

// followAnyway is the time for which a sampler believes that no policy has changed because their
// stamp says so. Who takes a program off an interface may leave no trace there.
const followAnyway = 2 * time.Second

// Follow goes on behind another policy, if it was replaced. IsNotAttached: there is none
// any more. Where nothing has changed since the last two calls, it takes no lock of policies: two
// changes within a tick of the clock of files leave one stamp.
func (s *Sampler) Follow(ctx context.Context) error {
	stamp, err := generation.RunStamp()
	same := err == nil && stamp != "" && stamp == s.stamp
	if same && s.steady && s.Hook != nil && time.Since(s.looked) < followAnyway {
		return nil
	}
	s.stamp, s.steady = "", same
	if err := s.begin(ctx); err != nil {
		return err
	}
	if s.Hook == nil {
		return generation.NotAttached(s.dev)
	}
	s.stamp = stamp
	return nil
}

// Program returns the id of the policy's program, 0 if there is none.
func (s *Sampler) Program() uint32 {
	if s.Hook == nil {
		return 0
	}
	return s.Hook.G.Program
}

// Link returns the link layer of packets.
func (s *Sampler) Link() packet.Link { return s.Hook.G.Link }

// Read gives the samples that there are. The ring holds some 1,000 of 128 bytes for each CPU.
func (s *Sampler) Read(tell func(Sampled)) error {
	if err := s.renewed(); err != nil {
		return err
	}
	if s.Hook == nil {
		return generation.NotAttached(s.dev)
	}
	s.reader.SetDeadline(time.Now())
	for {
		err := s.reader.ReadInto(&s.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read samples: %w", err)
		}
		e, weight, frame, err := capture.ParseSample(s.record.RawSample, s.snap)
		if err != nil {
			return err
		}
		by := ""
		if e.Slot < len(s.Hook.G.Slots) {
			by = s.Hook.G.Slots[e.Slot].ID
		}
		tell(Sampled{At: s.Hook.epoch.Add(e.Time), Weight: weight, CPU: int(e.ID),
			Slot: e.Slot, By: by, Passed: verdictOf(s.Hook.G.Mode, e.Verdict) == "pass",
			Bytes: e.Bytes, Packet: frame})
	}
}

// Close takes the program away.
func (s *Sampler) Close() {
	if s.stop != nil {
		s.stop()
	}
	s.follower.Close()
}
