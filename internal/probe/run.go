// Package probe asks a network that is one's own, from outside, which ports answer and whether its
// levee decides what its policy says.
//
// In go a file that says which prefixes are whose and how to get to the levee in front of each,
// services, and perhaps a policy. Out comes a Report: what each service is, with the loss that was
// measured, and where what the policy predicts, what the target's levee counted and what was
// observed here disagree. Probes are sent without memory: their number is sealed in what they are
// answered by.
//
// An address is probed only when a witness at the target has seen a challenge that was sent to it.
// The package must never send to an excluded address, from an address that is not the machine's, or
// faster than it was told, nor believe an answer that fits no probe.
package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/lang/policy"
	"levee/internal/lang/setfile"
	"levee/internal/packet"
	"levee/internal/quantity"
)

// Options are the parameters of Run.
type Options struct {
	Owned    *Owned
	Services []Service // in order
	Classes  bool      // a packet for each class of the policy, too
	// Policy predicts the answers in the place of the policy in force; nil: that one.
	Policy *Expected
	Rate   int           // packets a second
	Tries  int           // 1 to 4
	Wait   time.Duration // for answers to the last of a try
	// Despite goes on where an answer says that it is administratively prohibited.
	Despite bool
	// HalfOpen leaves it at SYNs: nobody connects to what accepts them.
	HalfOpen bool
	Banners  bool         // shows what open ports say
	SeenAs   []netip.Addr // how the probes' source arrives, by family, where NAT changes it
	// Say is told of progress; nil is nobody.
	Say func(format string, args ...any)
}

// Expected is the policy that is expected to be in force.
type Expected struct {
	Name   string
	Text   []byte
	Open   func(string) (io.ReadCloser, error) // its set files
	Policy *policy.Policy
}

// run is one that goes on.
type run struct {
	Options
	*plan
	key  Key
	out  *sender
	in   *receiver
	eyes map[eyeKey]*eye

	mu      sync.Mutex
	results []result
	by      map[int]netip.Addr // by number: who sent an error that is not the target, and
	arrived map[int]string     // how it arrived where that is otherwise than it was sent
	marks   map[uint64]sealed
	order   []marked
	rules   []Judged // that witnesses named
	ruleAt  map[Judged]int
	stopped map[netip.Addr]string // addresses, and
	ended   map[*Prefix]string    // prefixes that are left alone from now on, and why
	ttls    map[netip.Addr]uint8  // of what accepted a connection
	sent    int
	over    bool          // nothing more is asked
	news    chan struct{} // something came in

	contacts map[int]contact
}

// eyeKey tells witnesses apart.
type eyeKey struct{ command, dev string }

func keyOf(p *Prefix) eyeKey { return eyeKey{fmt.Sprintf("%q", p.Witness), p.Dev} }

// result is the state of one probe.
type result struct {
	sent, seen uint8 // tries, by bit
	kind       answerKind
	try        uint8 // that was answered
	icmpType   uint8
	icmpCode   uint8
	ttl        uint8
	own        bool  // the target itself sent the error
	rule       int32 // that counted it, of rules, plus 1
}

// marked is a packet that a witness may see until a time.
type marked struct {
	mark uint64
	at   time.Time
}

// seenWithin is the longest time until a witness tells of a packet.
const seenWithin = 30 * time.Second

// prohibited says that an error of ICMP tells of an administrator who does not want this (RFC 1812
// section 5.2.7.1, RFC 4443 section 3.1).
func prohibited(t, code uint8, six bool) bool {
	if six {
		return t == 1 && code == 1
	}
	return t == 3 && (code == 9 || code == 10 || code == 13)
}

// Run probes. It needs CAP_NET_RAW. With an error that is context.Canceled the report has what was
// found until then.
func Run(ctx context.Context, o Options, key Key) (*Report, error) {
	began := time.Now()
	r := &run{Options: o, key: key, eyes: map[eyeKey]*eye{},
		plan: &plan{cookies: newCookies(key), services: o.Services},
		by:   map[int]netip.Addr{}, arrived: map[int]string{}, marks: map[uint64]sealed{},
		ruleAt:  map[Judged]int{},
		stopped: map[netip.Addr]string{}, ended: map[*Prefix]string{},
		ttls: map[netip.Addr]uint8{}, news: make(chan struct{}, 1)}
	if r.Say == nil {
		r.Say = func(string, ...any) {}
	}
	r.addrs = o.Owned.Addresses()
	if err := r.sources(); err != nil {
		return nil, err
	}
	var err error
	if r.out, err = newSender(); err != nil {
		return nil, err
	}
	defer r.out.close()
	if r.in, err = newReceiver(); err != nil {
		return nil, err
	}
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		r.receive()
	}()
	err = r.watch(ctx)
	if err == nil {
		r.mu.Lock()
		r.results = make([]result, len(r.addrs))
		r.mu.Unlock()
		err = r.probe(ctx)
	}
	lost := r.in.lost()
	r.in.close()
	<-reading
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	err = errors.Join(err, r.closeEyes())
	if err != nil && (r.results == nil || !errors.Is(err, context.Canceled)) {
		return nil, err
	}
	rep := r.report(lost, time.Since(began))
	return rep, err
}

// sources finds the address from which probes leave.
func (r *run) sources() error {
	for _, a := range r.addrs {
		if i := six(a.Addr); !r.from[i].IsValid() {
			src, err := sourceTo(a.Addr)
			if err != nil {
				return err
			}
			r.from[i], r.seenAs[i] = src, src
		}
	}
	for _, a := range r.SeenAs {
		r.seenAs[six(a)] = a
	}
	return nil
}

// watch starts the witnesses, one for each command and interface.
func (r *run) watch(ctx context.Context) error {
	var from []netip.Addr
	for _, a := range r.seenAs {
		if a.IsValid() {
			from = append(from, a)
		}
	}
	for i := range r.Owned.Prefixes {
		p := &r.Owned.Prefixes[i]
		if r.eyes[keyOf(p)] != nil {
			continue
		}
		e, err := openEye(ctx, p, from, r.witnessed)
		if err != nil {
			return err
		}
		r.eyes[keyOf(p)] = e
	}
	for _, e := range r.eyes {
		go func() {
			<-e.ended
			why := "its witness ended early"
			if ctx.Err() != nil { // Ctrl-C is for both
				why = "it was interrupted"
			}
			r.broke(e, why)
		}()
	}
	return nil
}

// broke has nothing more be asked where a witness ended before the run, or no longer answers:
// nobody tells what becomes of it.
func (r *run) broke(e *eye, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	e.broke = true
	for i := range r.Owned.Prefixes {
		if p := &r.Owned.Prefixes[i]; r.eyes[keyOf(p)] == e && r.ended[p] == "" {
			r.ended[p] = why
		}
	}
	r.tell()
}

func (r *run) closeEyes() error {
	var errs []error
	for _, e := range r.eyes {
		errs = append(errs, e.close())
	}
	return errors.Join(errs...)
}

// probe challenges, then asks.
func (r *run) probe(ctx context.Context) error {
	if err := r.challengeAll(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	r.confirm(func(n int) bool { return r.results[n].seen != 0 })
	r.addCanaries(r.policyOf)
	err := r.classesOf()
	r.index()
	if n := r.total(); err == nil && n > MostProbes {
		err = fmt.Errorf("these are %d probes, of at most %d: ask for fewer ports, or for "+
			"parts of the prefixes", n, MostProbes)
	}
	if err == nil {
		r.results = slices.Grow(r.results, r.total()-len(r.results))[:r.total()]
	}
	ports := r.ports
	r.mu.Unlock()
	if err == nil {
		err = r.in.also(ports)
	}
	if err != nil {
		return err
	}
	first := r.begin(aService)
	many := r.total() - first
	r.Say("%s confirmed; %s, at most %d tries each, at %d a second",
		quantity.Plural(len(r.confirmed), "address"), quantity.Plural(many, "probe"), r.Tries,
		r.Rate)
	if err := r.phase(ctx, first, many, r.done); err != nil {
		return err
	}
	return r.contactAll(ctx)
}

// firstChallenged is the number of addresses of a prefix that are challenged before one is seen.
const firstChallenged = 16

// challengeAll challenges addresses: first some of each prefix, and the others where one of them
// was seen, so that a wrong prefix gets a few packets.
func (r *run) challengeAll(ctx context.Context) error {
	early := make([]bool, len(r.addrs))
	count := map[*Prefix]int{}
	order := newPermutation(uint64(len(r.addrs)), r.key, 6<<40)
	for i := range uint64(len(r.addrs)) {
		n := order.at(i)
		if p := r.addrs[n].Of; count[p] < firstChallenged {
			count[p]++
			early[n] = true
		}
	}
	seen := func(n int) bool { return r.results[n].seen != 0 || r.left(r.addrs[n].Addr) != "" }
	err := r.phase(ctx, 0, len(r.addrs), func(n int) bool { return !early[n] || seen(n) })
	if err != nil {
		return err
	}
	r.mu.Lock()
	for p, n := range count {
		arrived := false
		for i := range r.addrs {
			arrived = arrived || r.addrs[i].Of == p && r.results[i].seen != 0
		}
		if !arrived && r.ended[p] == "" {
			r.ended[p] = fmt.Sprintf("%s of it challenged, and the witness saw none: is it "+
				"yours, and does the way to it lead by that levee?",
				quantity.Plural(n, "address"))
		}
	}
	r.mu.Unlock()
	return r.phase(ctx, 0, len(r.addrs), func(n int) bool { return early[n] || seen(n) })
}

// eyeOf is the witness of an address of the file.
func (r *run) eyeOf(a netip.Addr) *eye {
	at, _ := r.placeOf(a)
	return r.eyes[keyOf(r.addrs[at].Of)]
}

// policyOf is the policy that predicts what becomes of packets to an address of the file.
func (r *run) policyOf(a netip.Addr) *policy.Policy {
	if r.Policy != nil {
		return r.Policy.Policy
	}
	return r.eyeOf(a).policy
}

// classesOf adds the packets for classes of the policy in front of each prefix.
func (r *run) classesOf() error {
	if !r.Classes {
		return nil
	}
	type group struct {
		eye    *eye
		family int
	}
	addrs := map[group][]netip.Addr{}
	var order []group
	for _, at := range r.confirmed {
		a := r.addrs[at]
		g := group{r.eyes[keyOf(a.Of)], six(a.Addr)}
		if addrs[g] == nil {
			order = append(order, g)
		}
		addrs[g] = append(addrs[g], a.Addr)
	}
	for _, g := range order {
		f := &g.eye.first
		name, text, open := f.Name, []byte(f.Source), setfile.Recorded(f.Files)
		of := g.eye.policy
		if r.Policy != nil {
			name, text, open, of = r.Policy.Name, r.Policy.Text, r.Policy.Open, r.Policy.Policy
		}
		skipped, err := r.addClasses(name, text, open, of, g.family, addrs[g])
		if err != nil {
			return err
		}
		r.skipped = append(r.skipped, skipped...)
	}
	return nil
}

// left returns the reason that an address is left alone, or ""; with mu.
func (r *run) left(a netip.Addr) string {
	if why := r.stopped[a]; why != "" {
		return why
	}
	if at, ok := r.placeOf(a); ok {
		return r.ended[r.addrs[at].Of]
	}
	return ""
}

// placeOf is the place of an address among those of the file.
func (r *run) placeOf(a netip.Addr) (int, bool) {
	return slices.BinarySearchFunc(r.addrs, a,
		func(x Address, a netip.Addr) int { return x.Compare(a) })
}

// done says whether nothing more is to be learned of a probe; with mu.
func (r *run) done(n int) bool {
	res := &r.results[n]
	if res.kind != silent || r.left(r.target(n).to) != "" {
		return true
	}
	return res.rule > 0 && r.rules[res.rule-1].Verdict == "drop"
}

// phase sends the probes of numbers in permuted orders, each until it is done or has had its tries.
func (r *run) phase(ctx context.Context, first, many int, done func(int) bool) error {
	if many == 0 {
		return nil
	}
	pace := time.Second / time.Duration(r.Rate)
	next := time.Now()
	for try := range mostTries {
		order := newPermutation(uint64(many), r.key, 7<<40|uint64(first)<<8|uint64(try))
		any := false
		for i := range uint64(many) {
			n := first + int(order.at(i))
			r.mu.Lock()
			is := done(n) || try >= r.Tries && !r.results[n].again(r.Tries)
			r.mu.Unlock()
			if is {
				continue
			}
			if err := pause(ctx, time.Until(next)); err != nil {
				return err
			}
			// What is late is not made up for by a burst longer than a few packets.
			if next = next.Add(pace); time.Since(next) > 10*time.Millisecond {
				next = time.Now()
			}
			if err := r.send(n, try); err != nil {
				return err
			}
			any = true
		}
		if !any {
			return nil
		}
		if err := r.settle(ctx, first, many, done); err != nil {
			return err
		}
	}
	return nil
}

// again says whether a probe that had its tries gets another: the witness has seen some of them,
// and not as many as tell silence from loss.
func (res *result) again(tries int) bool {
	_, saw := res.tries()
	return saw > 0 && saw < tries
}

// settle waits for answers until all is done, or the time is over, and then for what witnesses have
// seen until then.
func (r *run) settle(ctx context.Context, first, many int, done func(int) bool) error {
	if err := r.await(ctx, first, many, done); err != nil {
		return err
	}
	return r.drain(ctx)
}

// drain waits until each witness has told of all packets that it saw. One that is held up may do so
// later than answers come.
func (r *run) drain(ctx context.Context) error {
	var all sync.WaitGroup
	for _, e := range r.eyes {
		r.mu.Lock()
		broke := e.broke
		r.mu.Unlock()
		if broke {
			continue
		}
		all.Go(func() {
			if err := e.drain(ctx); err != nil && ctx.Err() == nil {
				r.broke(e, err.Error())
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

// await waits for answers until all is done, or the time is over.
func (r *run) await(ctx context.Context, first, many int, done func(int) bool) error {
	ctx, cancel := context.WithTimeout(ctx, r.Wait)
	defer cancel()
	for {
		r.mu.Lock()
		all := true
		for n := first; n < first+many && all; n++ {
			all = done(n)
		}
		r.mu.Unlock()
		if all {
			return nil
		}
		// News come one after the other: they are looked at together.
		if err := pause(ctx, 10*time.Millisecond); err == nil {
			select {
			case <-r.news:
				continue
			case <-ctx.Done():
			}
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
		return nil
	}
}

// pause waits; its error is that of ctx.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// send sends a probe.
func (r *run) send(n, try int) error {
	_, ip, err := build(r.spec(n, try))
	if err != nil {
		return fmt.Errorf("make probe %d: %w", n, err)
	}
	to := r.target(n).to
	if r.Owned.excludes(to) {
		return fmt.Errorf("probe %d would go to %s, which is excluded", n, to)
	}
	var p packet.Packet
	packet.L3.Decode(ip, &p)
	mark := r.key.mark(ip, &p)
	now := time.Now()
	r.mu.Lock()
	r.results[n].sent |= 1 << try
	r.sent++
	r.marks[mark] = sealed{n, try}
	r.order = append(r.order, marked{mark, now.Add(seenWithin)})
	for len(r.order) > 0 && now.After(r.order[0].at) {
		delete(r.marks, r.order[0].mark)
		r.order = r.order[1:]
	}
	r.mu.Unlock()
	err = r.out.send(ip, to)
	switch {
	case err == nil:
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH),
		errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		r.mu.Lock()
		r.stopped[to] = fmt.Sprintf("this machine does not send to it: %v", err)
		r.mu.Unlock()
	default:
		return fmt.Errorf("send to %s: %w", to, err)
	}
	return nil
}
