package main

import (
	"context"

	"levee/internal/agent/api"
	"levee/internal/agent/dashboard"
	"levee/internal/agent/history"
)

// agentHistory is the history that an agent keeps, and its page.
type agentHistory struct {
	store   *history.Store
	sampled *history.Sampled // by who samples packets
	stop    func()
}

// openHistory opens the history of this machine, and goes on with it until stop is called.
func (e *env) openHistory() (*agentHistory, error) {
	store, err := history.Open(agentFile("history"))
	if err != nil {
		return nil, err
	}
	for _, d := range store.Damaged {
		e.sayf("alarm: a part of the history is damaged, and is not shown: %s", d)
	}
	sampled := &history.Sampled{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		dashboard.Record(ctx, dashboard.Recording{History: store, Estimates: sampled.Take,
			Log: e.sayf})
	}()
	return &agentHistory{store, sampled, func() {
		cancel()
		<-ended
		if err := store.Close(); err != nil {
			e.sayf("close the history: %v", err)
		}
	}}, nil
}

func (h *agentHistory) routes() []api.Route {
	return dashboard.Routes(h.store, new(dashboard.Reader).Read)
}
