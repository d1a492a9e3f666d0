package daemon

import (
	"context"
	"errors"
	"sync"

	"levee/internal/agent/api"
	"levee/internal/agent/client"
	"levee/internal/agent/dashboard"
	"levee/internal/agent/history"
	"levee/internal/agent/inforce"
	"levee/internal/agent/part"
	"levee/internal/agent/sight"
	"levee/internal/host/access"
)

// keptHistory is the history that an agent keeps, and its page.
type keptHistory struct {
	sampled *history.Sampled // by who samples packets
	stop    func()

	mu    sync.Mutex
	store *history.Store // nil: it is not open, for this reason
	why   error
}

// openHistory goes on with the history of this machine until stop is called. One that cannot be
// opened is tried again. sight hears what policies pass; lost says what was lost before them.
func openHistory(parts *part.Register, sight *sight.Counts, lost func(dev string) uint64,
	alarm func(string), say func(format string, args ...any)) *keptHistory {
	h := &keptHistory{sampled: &history.Sampled{}, why: errors.New("it is not open yet")}
	dir := client.File("history")
	p := parts.Begin(part.File, dir, "")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Run(ctx, func(ctx context.Context) error {
			store, err := history.Open(dir)
			if err != nil {
				h.set(nil, err)
				return part.Do(err, access.Write(dir+"/x", err))
			}
			for _, d := range store.Damaged {
				alarm("a part of the history is damaged, and is not shown: " + d)
			}
			h.set(store, nil)
			defer func() {
				h.set(nil, errors.New("it was closed"))
				if err := store.Close(); err != nil {
					say("close the history: %v", err)
				}
			}()
			p.Works()
			return dashboard.Record(ctx, dashboard.Recording{History: store,
				Estimates: h.sampled.Take, Passed: sight.Passed, Lost: lost, Told: func(err error) {
					_ = p.Did(part.Do(err, access.Write(dir+"/x", err)))
				}})
		})
	}()
	h.stop = func() { cancel(); <-ended }
	return h
}

func (h *keptHistory) set(store *history.Store, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.store, h.why = store, why
}

func (h *keptHistory) get() (*history.Store, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.store, h.why
}

func (h *keptHistory) routes(watcher *inforce.Watcher) []api.Route {
	page := &dashboard.Reader{Counted: watcher.Counted}
	return dashboard.Routes(h.get, page.Read)
}
