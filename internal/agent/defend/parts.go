package defend

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/agent/part"
	"levee/internal/dataplane"
	"levee/internal/lang/policy"
)

// Times of parts.
const (
	lookWithin = 30 * time.Second // a detector has looked
	readyEvery = 5 * time.Minute  // it is tried whether rules could be put into force
	readyAgain = 30 * time.Second // the same, where they could not
)

// watchParts are the parts of what watches an interface: each of its detectors, and what puts rules
// into force. They outlive a watcher that has failed, until the next one works.
type watchParts struct {
	of    *part.Register
	dev   string
	looks map[string]*part.Part // by the name of the detector
	rules *part.Part            // nil: nobody puts any into force
}

func newWatchParts(of *part.Register, dev string) *watchParts {
	return &watchParts{of: of, dev: dev, looks: map[string]*part.Part{}}
}

// set makes the parts those of the detectors of a policy, and of whoever else has written rules.
func (p *watchParts) set(detects []*policy.Detect, written bool) {
	if p == nil {
		return
	}
	stays := map[string]bool{}
	acts := written
	for _, d := range detects {
		stays[d.Name] = true
		acts = acts || d.Mode != policy.Observe
		if p.looks[d.Name] == nil {
			p.looks[d.Name] = p.of.Begin(part.Detector, d.Name, p.dev)
		}
	}
	for name, l := range p.looks {
		if !stays[name] {
			l.End()
			delete(p.looks, name)
		}
	}
	switch {
	case acts && p.rules == nil:
		p.rules = p.of.Begin(part.LiveRules, "", p.dev)
	case !acts:
		p.rules.End()
		p.rules = nil
	}
}

// end takes all parts out of the register.
func (p *watchParts) end() { p.set(nil, false) }

// looked tells that the detectors have looked, and what they saw last, or that they see nothing of
// what there is.
func (p *watchParts) looked(at time.Time, rate float64, blind error) {
	if p == nil {
		return
	}
	for _, l := range p.looks {
		l.Within(lookWithin)
		switch {
		case blind != nil:
			l.Fails(part.Do(blind, "systemctl restart levee-agent, and report it with what levee "+
				"doctor --dev "+p.dev+" says"))
		case rate == 0:
			l.Works()
		default:
			l.Saw(at, fmt.Sprintf("%.0f packets/s", rate))
		}
	}
}

// fail tells that the detectors do not look, and until when.
func (p *watchParts) fail(err error, next time.Time) {
	for _, l := range p.looks {
		l.FailsUntil(err, next)
	}
	p.rules.End() // no detector asks for rules
	p.rules = nil
}

// put tells what came of putting so many rules into force, in the place of those before.
func (p *watchParts) put(err error, rules int) {
	if p.tried(err); p == nil || err != nil {
		return
	}
	p.rules.Saw(time.Now(), fmt.Sprintf("%d in force", rules))
}

// tried tells whether rules could be put into force.
func (p *watchParts) tried(err error) {
	switch {
	case p == nil, errors.Is(err, dataplane.ErrOtherPolicy): // it is tried again with that
	case errors.Is(err, dataplane.ErrOnTrial):
		p.rules.Waits(err.Error(), "levee confirm --dev "+p.dev)
	case err != nil:
		p.rules.Fails(adviseRights(err))
	default:
		p.rules.Works()
	}
}

// adviseRights adds what to do where the kernel, or the sandbox of a service, refuses something.
func adviseRights(err error) error {
	// Not all libraries keep the error number.
	if !errors.Is(err, fs.ErrPermission) && !strings.Contains(err.Error(), unix.EPERM.Error()) {
		return err
	}
	return part.Do(err, "look for a drop-in or a container that takes rights away: systemctl cat "+
		"levee-agent; it needs CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, and SystemCallFilter=bpf")
}
