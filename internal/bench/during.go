package bench

import (
	"context"
	"time"
)

// Receiver is what takes packets from the ring: a thread of the kernel, and the core that it has.
type Receiver struct {
	CPU    int
	Thread int // process id
}

// during lets a window pass. Options.During, if given, is called for each, while the flood arrives, warmed up;
// it must call wait, which returns when the window is over, and return what that returns. What it does
// besides runs on the generator's core.
func (b *bench) during(ctx context.Context, window time.Duration) error {
	wait := func() error { return sleep(ctx, window) }
	if b.During == nil {
		return wait()
	}
	return b.During(Receiver{b.receiverCPU, b.napi}, wait)
}

// RungNames are the names of all rungs of the ladder.
func RungNames() []string {
	var o Options
	all, _ := o.rungs() // none is chosen, so none can be unknown
	var names []string
	for _, d := range all {
		names = append(names, d.Name())
	}
	return names
}
