package inspect

import (
	"context"
	"errors"
	"time"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/filter/state"
	"levee/internal/kernel"
)

// Attachment is one interface with a policy, as Status tells it.
type Attachment struct {
	Dev string `json:"dev"`
	// the same for interfaces that have the policy as one, "" for one alone
	Together   string            `json:"together,omitempty"`
	Ifindex    int               `json:"ifindex"`
	Netns      uint64            `json:"netns"` // cookie of the network namespace
	Mode       store.Mode        `json:"mode"`
	Reason     string            `json:"reason"` // why this mode
	Policy     string            `json:"policy"`
	Hash       string            `json:"hash"` // SHA-256 of the policy's text
	Since      time.Time         `json:"since"`
	Generation int               `json:"generation"`
	Trial      time.Duration     `json:"trial"` // time left to confirm; 0: not on trial
	RolledBack *store.RolledBack `json:"rolled_back,omitempty"`
	// why only the fallback of the policy is in force
	OnError string `json:"on_error,omitempty"`
	// why this policy, which was in force before, is so again, in place of another
	Instead string `json:"instead,omitempty"`
	// name of the interface when the policy was put on it
	PutOn    string                   `json:"-"`
	Names    []string                 `json:"-"` // names and patterns that it was put on by
	SetFiles []store.FileSum          `json:"-"` // what set files held then
	Program  store.ProgramInfo        `json:"program"`
	Counters []generation.SlotCounter `json:"counters"`
	Sets     []store.SetInfo          `json:"sets"`
	state.Memories
	// the interface that tells of those of them that this one shares with it, "" if it shares none
	SharedWith string       `json:"shared_with,omitempty"`
	Shadow     *ShadowState `json:"-"` // nil if there is none
	// rules that the agent has added, nil if there are none
	Live    *LiveRules `json:"live,omitempty"`
	Judging *Judging   `json:"-"` // whether packets come to it
	// Told is the time of Memories and Shadow, where that is not now: for members of the group.
	Told time.Time `json:"told,omitzero"`
}

// Status tells what is attached in this network namespace, or in all of them, ordered as the
// runtime directory is. A trial past its deadline is ended on the way, and the remains of vanished
// interfaces are removed; notes says so, one sentence each.
func Status(ctx context.Context, all bool) (out []Attachment, notes []string, err error) {
	if refused := kernel.Privileged(); refused != nil {
		s, err := store.ForReading(ctx, refused)
		if err != nil {
			return nil, nil, err
		}
		out, err = readStatus(s, all)
		return out, nil, err
	}
	err = store.Transact(ctx, func(s *store.Store) error {
		defer func() { notes = s.Notes }()
		netns, err := attach.NetnsCookie()
		if err != nil {
			return err
		}
		return generation.Sweep(s, "", func(a *attach.Attachment) error {
			l, err := a.Here()
			if err != nil {
				return err
			}
			switch g := a.Current(); {
			case l != nil || g.Netns != netns:
			case generation.Exists(g.Dev):
				s.Note("the %s that had policy %s is in another network namespace now, and has "+
					"kept it: `levee down` there takes it off; the %[1]s that is here is another "+
					"interface", g.Dev, g.Policy)
			default:
				s.Note("%s is in another network namespace now, and has kept its policy %s: "+
					"`levee down --dev %[1]s` takes it off", g.Dev, g.Policy)
			}
			if l == nil && !all {
				return nil
			}
			t, err := Tell(s, a)
			if err != nil {
				return err
			}
			if t.Judging, err = tellJudging(s, a, l); err != nil {
				return err
			}
			if l != nil { // it may have been renamed, or moved here
				t.Dev, t.Netns = l.Attrs().Name, netns
			}
			out = append(out, *t)
			return nil
		})
	})
	return out, notes, err
}

func Tell(s *store.Store, a *attach.Attachment) (*Attachment, error) {
	g := a.Current()
	t := &Attachment{
		Dev: g.Dev, Together: a.Together(), Ifindex: a.Ifindex, Netns: g.Netns, Mode: g.Mode,
		Reason: g.Reason,
		Policy: g.Policy, Hash: g.Hash, Since: g.Since, Generation: g.Generation,
		RolledBack: a.Carried.RolledBack, OnError: g.OnError,
		Instead: g.Instead, PutOn: g.Dev, Names: g.Names, SetFiles: g.SetFiles,
	}
	if a.OnTrial() != nil {
		left, err := s.TimeLeft(g.Deadline)
		if err != nil {
			return nil, err
		}
		t.Trial = max(left, 1) // 0 is for "not on trial"
	}
	var err error
	if t.Live, err = TellLive(s, a); err != nil {
		return nil, err
	}
	if t.Sets, err = tellSets(s, a); err != nil {
		return nil, err
	}
	if s.ReadOnly {
		err = readRemembered(s, a, t)
	} else {
		err = tellMemories(s, a, t)
	}
	if err != nil {
		return nil, err
	}
	totals, err := generation.Totals(s, a)
	if err != nil {
		return nil, err
	}
	for _, sl := range g.Slots {
		cpus := totals[sl.Counts()]
		sum := generation.SumCPUs(cpus)
		t.Counters = append(t.Counters, generation.SlotCounter{
			ID: sl.ID, Reason: sl.Reason, Action: sl.Action, Rule: sl.Where, Label: sl.Label,
			Line: sl.Line, Text: sl.Text,
			Packets: sum.Packets, Bytes: sum.Bytes, CPUs: cpus,
		})
	}
	return t, nil
}

// tellSets counts the live entries of the dynamic sets.
func tellSets(s *store.Store, a *attach.Attachment) ([]store.SetInfo, error) {
	var out []store.SetInfo
	for _, info := range a.Current().Sets {
		if s.ReadOnly {
			c, err := sets.CopyOf(s, a.Key, a.Current(), info)
			if err != nil {
				return nil, err
			}
			c.Expire(c.Now())
			info.Entries, info.Refused = c.Len(), c.Refused()
			out = append(out, info)
			continue
		}
		set, err := sets.OpenSetOf(s, a, info.Name)
		if err != nil {
			return nil, err
		}
		if err := set.Writers.Lock(s.Ctx); err != nil {
			return nil, errors.Join(err, set.Close())
		}
		m := set.Maps[0]
		m.Expire(m.Clock.Now())
		info.Entries, info.Refused = m.Len(), m.Refused()
		set.Writers.Unlock()
		set.Close()
		out = append(out, info)
	}
	return out, nil
}

func ProgramInfo(p *ebpf.Program) (store.ProgramInfo, error) {
	info, err := p.Info()
	if err != nil {
		return store.ProgramInfo{}, kernel.Refuse(err, "ask the kernel about the program")
	}
	id, _ := info.ID()
	out := store.ProgramInfo{ID: uint32(id), Name: info.Name}
	if n, err := info.TranslatedSize(); err == nil {
		out.XlatedLen = n
	}
	if n, err := info.JitedSize(); err == nil {
		out.JitedLen = int(n)
	}
	return out, nil
}

// readStatus is Status for a reader.
func readStatus(s *store.Store, all bool) (out []Attachment, err error) {
	return out, generation.Steady(func() error {
		out = nil
		return generation.ReadEach(s, all, func(a *attach.Attachment) error {
			t, err := Tell(s, a)
			if err == nil {
				t.Judging, err = tellJudging(s, a, nil)
			}
			if err == nil {
				t.Dev = a.NameNow()
				out = append(out, *t)
			}
			return err
		})
	})
}
