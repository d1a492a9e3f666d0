package receive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"levee/internal/bench/flood"
	"levee/internal/dataplane/tap"
	"levee/internal/kernel"
	"levee/internal/lab/contender"
	"levee/ring"
)

// program is an XDP program in force.
type program struct {
	objects receiveObjects
	link    link.Link
}

// load loads the programs. bytes is the size of the ring buffer.
func load(s site, bytes int) (*program, error) {
	spec, err := loadReceive()
	if err != nil {
		return nil, err
	}
	var vars receiveVariableSpecs
	if err := spec.Assign(&vars); err != nil {
		return nil, err
	}
	if err := vars.Size.Set(uint32(s.frame)); err != nil {
		return nil, fmt.Errorf("preparing the programs that receive: %w", err)
	}
	spec.Maps["records"].MaxEntries = uint32(bytes)
	p := new(program)
	if err := spec.LoadAndAssign(&p.objects, nil); err != nil {
		return nil, kernel.Refuse(err, "load the programs that receive (Linux 5.18 has all "+
			"that they call)")
	}
	return p, nil
}

// attach puts a program in force; buffer says which.
func (p *program) attach(s site, buffer bool) error {
	of := p.objects.ToSocket
	if buffer {
		of = p.objects.ToBuffer
	}
	err := s.host.Do(func() (err error) {
		p.link, err = link.AttachXDP(link.XDPOptions{Program: of, Interface: s.device.Index,
			Flags: link.XDPDriverMode})
		return err
	})
	if err != nil {
		return fmt.Errorf("attaching a program that receives: %w", err)
	}
	return nil
}

func (p *program) close() error {
	var err error
	if p.link != nil {
		err = p.link.Close()
	}
	return errors.Join(err, p.objects.Close())
}

// buffer receives from a ring buffer of BPF.
type buffer struct {
	*taker
	*program
	from   *ringbuf.Reader
	record ringbuf.Record
}

func openBuffer(_ context.Context, s site) (_ reader, err error) {
	b := new(buffer)
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.program, err = load(s, room); err != nil {
		return nil, err
	}
	if b.from, err = ringbuf.NewReader(b.objects.Records); err != nil {
		return nil, fmt.Errorf("reading a ring buffer: %w", err)
	}
	if err = b.attach(s, true); err != nil {
		return nil, err
	}
	b.taker, err = take(s.cpu, b.records)
	return b, err
}

// records takes what is there, a batch at most.
func (b *buffer) records() (n int, err error) {
	b.from.SetDeadline(time.Now().Add(patience))
	const batch = 64
	for n < batch {
		if err := b.from.ReadInto(&b.record); errors.Is(err, os.ErrDeadlineExceeded) {
			return n, nil
		} else if err != nil {
			return n, fmt.Errorf("reading a ring buffer: %w", err)
		}
		if isMeasured(b.record.RawSample) {
			n++
		}
		if b.from.AvailableBytes() == 0 {
			return n, nil
		}
	}
	return n, nil
}

func (b *buffer) lost() (n uint64, err error) {
	if err := b.objects.Lost.Get(&n); err != nil {
		return 0, fmt.Errorf("reading what a ring buffer had no room for: %w", err)
	}
	return n, nil
}

func (b *buffer) close() error {
	var errs []error
	if b.taker != nil {
		errs = append(errs, b.halt())
	}
	if b.from != nil {
		errs = append(errs, b.from.Close())
	}
	if b.program != nil {
		errs = append(errs, b.program.close())
	}
	return errors.Join(errs...)
}

// queue receives from the AF_XDP socket of the device's receive queue.
type queue struct {
	*taker
	*program // nil of a policy's ring
	queue    *ring.Queue
	from     *ring.Reader
	policy   *behind
	of       *tap.Ring
}

func openCopy(_ context.Context, s site) (reader, error) { return openQueue(s, true) }

func openZeroCopy(_ context.Context, s site) (reader, error) { return openQueue(s, false) }

func openQueue(s site, copies bool) (_ reader, err error) {
	q := new(queue)
	defer func() {
		if err != nil {
			err = errors.Join(err, q.close())
		}
	}()
	if q.program, err = load(s, os.Getpagesize()); err != nil {
		return nil, err
	}
	if err = q.open(s, copies); err != nil {
		return nil, err
	}
	if !copies && !q.queue.ZeroCopy {
		return nil, fmt.Errorf("%w: the driver of the device has no zero copy, as that of veth",
			errNone)
	}
	if err = q.objects.Sockets.Put(uint32(0), uint32(q.queue.FD())); err != nil {
		return nil, fmt.Errorf("handing an AF_XDP socket to its program: %w", err)
	}
	if err = q.attach(s, false); err != nil {
		return nil, err
	}
	q.taker, err = take(s.cpu, q.read)
	return q, err
}

// open opens the socket.
func (q *queue) open(s site, copies bool) error {
	return s.host.Do(func() (err error) {
		q.queue, err = ring.Open(s.dev(), 0, ring.Options{Frames: waiting, Copy: copies})
		if err == nil {
			q.from = ring.NewReader(s.device.Name, []*ring.Queue{q.queue})
		}
		return err
	})
}

// openLevee receives from a ring of a policy.
func openLevee(ctx context.Context, s site) (_ reader, err error) {
	q := &queue{of: &tap.Ring{Dev: s.device.Name, Name: "bench"}}
	defer func() {
		if err != nil {
			err = errors.Join(err, q.close())
		}
	}()
	policy := fmt.Appendf(nil, "redirect udp port %d to ring \"bench\" else drop as \"measured\"\n"+
		"default pass\n", flood.Port)
	if q.policy, err = install(ctx, contender.Levee("a ring", policy), s); err != nil {
		return nil, err
	}
	if err = q.open(s, true); err != nil {
		return nil, err
	}
	err = s.host.Do(func() error {
		joined, err := q.of.Join(ctx, []*ring.Queue{q.queue})
		if err == nil && !joined {
			err = errors.New("the policy has no ring")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	q.taker, err = take(s.cpu, q.read)
	return q, err
}

// read takes what is there.
func (q *queue) read() (n int, err error) {
	_, err = q.from.Read(patience, func(_ int, frame []byte) {
		if isMeasured(frame) {
			n++
		}
	})
	return n, err
}

func (q *queue) lost() (uint64, error) {
	s, err := q.from.Statistics()
	return s.Lost(), err
}

func (q *queue) close() error {
	var errs []error
	if q.taker != nil {
		errs = append(errs, q.halt())
	}
	if q.from != nil {
		errs = append(errs, q.from.Close())
	}
	if q.of != nil {
		errs = append(errs, q.of.Close())
	}
	if q.program != nil {
		errs = append(errs, q.program.close())
	}
	if q.policy != nil {
		errs = append(errs, q.policy.remove())
	}
	return errors.Join(errs...)
}
