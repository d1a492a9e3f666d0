package daemon

import (
	"context"
	"fmt"

	"levee/internal/agent/aside"
	"levee/internal/agent/client"
	"levee/internal/agent/defend"
	"levee/internal/agent/evidence"
	"levee/internal/agent/history"
	"levee/internal/agent/incident"
	"levee/internal/agent/inforce"
	"levee/internal/agent/part"
	"levee/internal/agent/peers"
	"levee/internal/agent/pubsub"
	"levee/internal/agent/rulebook"
	"levee/internal/agent/sight"
	"levee/internal/dataplane/lockout"
	"levee/internal/host/session"
)

// defender looks for floods as the policies in force say, and tells of them. Its samples are told
// to sampled, and what was damaged to alarm.
func (o *Options) defender(watcher *inforce.Watcher, sampled *history.Sampled,
	sight *sight.Counts, events *pubsub.Hub, parts *part.Register,
	alarm func(string)) *defend.Manager {
	store := incident.OpenStore(client.IncidentsFile())
	if store.Damaged != nil {
		alarm(fmt.Sprintf("the incidents before are lost: %s was damaged (%v), and is put aside "+
			"as %s", store.Path(), store.Damaged, store.Aside()))
	}
	store.Changed = func(i incident.Incident) {
		events.Publish(pubsub.Event{Kind: pubsub.Incident, Incident: i.ID, Text: i.Sentence})
	}
	baselines := defend.OpenBaselines(client.File("baselines.json"))
	if baselines.Damaged != nil {
		alarm(fmt.Sprintf("what is usual has to be learned again: %s was damaged (%v), and is put "+
			"aside as %s", baselines.Path(), baselines.Damaged, baselines.Aside()))
	}
	book := rulebook.Open(client.Rules())
	if book.Damaged != nil {
		alarm(fmt.Sprintf("the live rules of the API are lost: %s was damaged (%v), and is put "+
			"aside as %s", book.Path(), book.Damaged, book.Aside()))
	}
	kept := evidence.Open(client.File("packets"))
	if o.Countries != "" {
		kept.Atlas = &evidence.Atlas{Path: o.Countries,
			Part: parts.Begin(part.File, o.Countries, "")}
		kept.Atlas.Try()
	}
	return defend.NewManager(defend.ManagerOptions{Incidents: store, Book: book, Sampled: sampled,
		Sight: sight, Evidence: kept, Baselines: baselines,
		Peers: peers.New(session.Peers), Aside: aside.New(parts), Parts: parts,
		Log: o.Say, Policy: lockout.InForce, InForce: watcher, Allowed: o.Gate.Live})
}

// look looks for floods until it is told to end. Live rules stay in force for their lease.
func look(ctx context.Context, stop func(), floods *defend.Manager) (end func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		floods.Run(ctx)
	}()
	return func() { stop(); <-done }
}
