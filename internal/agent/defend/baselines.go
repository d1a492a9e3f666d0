package defend

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"levee/internal/agent/detect"
	"levee/internal/agent/incident"
	"levee/internal/agent/kind"
	"levee/internal/host/atomicfile"
)

// Bounds of what is kept of baselines.
const (
	mostBaselines = 64 // detectors of interfaces
	mostBytes     = 32 << 20
	keepEvery     = 5 * time.Minute
	// baselinesVersion is that of the file
	baselinesVersion = 1
	keptMode         = 0o600
)

// Baselines keeps the usual rates of detectors in a file. It may be used by several goroutines.
type Baselines struct {
	// Damaged says why the file that was there could not be read; it is put aside, to Aside.
	Damaged error

	mu    sync.Mutex
	file  *atomicfile.Sealed
	all   []baseline // the last to be put comes last
	dirty bool       // the file lacks something
}

type baseline struct {
	Dev      string          `json:"dev"`
	Detector string          `json:"detector"`
	Text     string          `json:"text"` // of the statement
	Learned  json.RawMessage `json:"learned"`
}

// OpenBaselines reads the file at path, which need not be there.
func OpenBaselines(path string) *Baselines {
	b := &Baselines{file: atomicfile.NewSealed(path, baselinesVersion, mostBytes, keptMode)}
	if b.Damaged = b.file.Read(&b.all); b.Damaged != nil {
		b.all = nil
	}
	return b
}

// Path returns where the file is.
func (b *Baselines) Path() string { return b.file.Path() }

// Aside returns where a damaged file is put.
func (b *Baselines) Aside() string { return b.file.Aside() }

// at returns where the baseline of a detector is, -1 if there is none.
func (b *Baselines) at(dev, detector string) int {
	return slices.IndexFunc(b.all, func(o baseline) bool {
		return o.Dev == dev && o.Detector == detector
	})
}

// get returns the baseline of a detector with that text, nil if there is none.
func (b *Baselines) get(dev, detector, text string) *detect.Baseline {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.at(dev, detector)
	if at < 0 || b.all[at].Text != text {
		return nil
	}
	var out detect.Baseline
	if json.Unmarshal(b.all[at].Learned, &out) != nil {
		return &detect.Baseline{} // of another version, as Restore says
	}
	return &out
}

// rename has interfaces, by the names that they had, go on under others. What was kept under these
// is of interfaces that are called otherwise now, or gone.
func (b *Baselines) rename(now map[string]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := slices.Collect(maps.Values(now))
	b.all = slices.DeleteFunc(b.all, func(o baseline) bool {
		return now[o.Dev] == "" && slices.Contains(names, o.Dev)
	})
	for i := range b.all {
		if name := now[b.all[i].Dev]; name != "" {
			b.all[i].Dev, b.dirty = name, true
		}
	}
}

// put replaces a baseline.
func (b *Baselines) put(dev, detector, text string, learned *detect.Baseline) error {
	encoded, err := json.Marshal(learned)
	if err != nil {
		return fmt.Errorf("keep what %q has learned: %w", detector, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.at(dev, detector); at >= 0 {
		b.all = slices.Delete(b.all, at, at+1)
	}
	b.all = append(b.all, baseline{dev, detector, text, encoded})
	b.all = b.all[max(0, len(b.all)-mostBaselines):]
	b.dirty = true
	return nil
}

// save writes the file, if something is new. Those who were put first go where it would be too
// large.
func (b *Baselines) save() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.dirty {
		return nil
	}
	size := 0
	for i := len(b.all) - 1; i >= 0; i-- {
		if size += len(b.all[i].Learned) + len(b.all[i].Text) + 200; size > mostBytes {
			b.all = slices.Delete(b.all, 0, i+1)
			break
		}
	}
	text, err := json.Marshal(b.all)
	if err != nil {
		return fmt.Errorf("keep baselines: %w", err)
	}
	if err := b.file.Write(text); err != nil {
		return err
	}
	b.dirty = false
	return nil
}

// keepBaselines keeps what the detectors of an interface have learned.
func (w *Watcher) keepBaselines(now time.Time) {
	if w.Baselines == nil {
		return
	}
	for _, u := range w.eyes {
		if err := w.Baselines.put(w.Dev, u.Name, u.Text, u.detector.Baseline(now)); err != nil {
			w.Log("%s: %v", w.Dev, err)
		}
	}
}

// restore has a new detector go on with what one of before has learned.
func (w *Watcher) restore(u *eye, now time.Time) {
	if w.Baselines == nil {
		return
	}
	b := w.Baselines.get(w.Dev, u.Name, u.Text)
	switch {
	case b == nil:
	case u.detector.Restore(b, now):
		w.Log("%s: detector %q goes on with %s", w.Dev, u.Name, b.Text())
	default:
		w.Log("%s: detector %q learns again what is usual: what it had learned is of another "+
			"version of levee, or of more than a week and a day ago", w.Dev, u.Name)
	}
}

// expect tells a new detector which floods were going on when the former agent ended. Incidents
// that somebody has undone do not count.
func (w *Watcher) expect(u *eye, now time.Time) {
	for _, i := range w.Incidents.List() {
		if i.Dev != w.Dev || i.Detector != u.Name || i.Closed != nil || !i.Seen.Learned ||
			i.State == incident.Undone {
			continue
		}
		if i.Seen.Unknown {
			u.detector.Suspect(kind.Of(i.Seen.Kind), now)
			continue
		}
		to, _ := netip.ParsePrefix(i.Seen.Destination) // none: everything that is watched
		from, _ := netip.ParsePrefix(i.Seen.Source)
		u.detector.Expect(kind.Of(i.Seen.Kind), to, from, i.Seen.Usual)
	}
}
