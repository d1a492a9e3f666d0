// Package rulebook keeps the live rules that writers besides detectors want, in a file.
//
// In go rules with an origin and an end, out come the same after a restart. Each writer adds and
// withdraws its own, without knowing of the others. It puts nothing into force, and knows no clock.
package rulebook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"levee/internal/host/atomicfile"
)

// Bounds and version of the file.
const (
	version   = 1
	mostBytes = 4 << 20
	keptMode  = 0o600
	// MaxText limits the bytes of a rule.
	MaxText = 1000
)

// Rule is a live rule of a writer.
type Rule struct {
	ID     string    `json:"id"` // and its label
	Origin string    `json:"origin"`
	Dev    string    `json:"dev"`
	Rule   string    `json:"rule"` // with its label
	Action string    `json:"action"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
}

// Book is the rules of a machine. It may be used by several goroutines.
type Book struct {
	// Damaged says why the file that was there could not be read; it is put aside, to Aside.
	Damaged error

	mu    sync.Mutex
	file  *atomicfile.Sealed
	all   []Rule
	last  int  // number that was given last
	dirty bool // the file lacks something
}

type contents struct {
	Last  int    `json:"last"`
	Rules []Rule `json:"rules"`
}

// Open reads the file at path, which need not be there.
func Open(path string) *Book {
	b := &Book{file: atomicfile.NewSealed(path, version, mostBytes, keptMode)}
	var c contents
	if b.Damaged = b.file.Read(&c); b.Damaged == nil {
		b.all, b.last = c.Rules, max(0, c.Last)
	}
	return b
}

// Path returns where the file is.
func (b *Book) Path() string { return b.file.Path() }

// Aside returns where a damaged file is put.
func (b *Book) Aside() string { return b.file.Aside() }

// prefix begins the ID of each rule.
const prefix = "live-"

// IsID says whether a label is that of a rule of a writer.
func IsID(label string) bool { return strings.HasPrefix(label, prefix) }

// Next returns the ID of a new rule.
func (b *Book) Next() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	return prefix + strconv.Itoa(b.last)
}

// Put keeps a rule, and writes the file. Where that fails, nothing is kept.
func (b *Book) Put(r Rule) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, r)
	err := b.save()
	if err != nil {
		b.all = b.all[:len(b.all)-1]
	}
	return err
}

// Remove forgets a rule, and writes the file. Where that fails, Save tries again.
func (b *Book) Remove(id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := len(b.all)
	b.all = slices.DeleteFunc(b.all, func(r Rule) bool { return r.ID == id })
	if len(b.all) == was {
		return nil
	}
	return b.save()
}

// leastJump is the smallest step of a clock that counts, as for leases.
const leastJump = 2 * time.Second

// Expire forgets the rules whose lease has ended, including those of interfaces that nobody
// watches. Of one that begins later than now, as where a machine has booted with an older time, the
// lease begins now. From then on its times go by the clock that nobody sets, as now does, and the
// file has what they are by the clock of the wall: a time server that sets that ends no rule.
func (b *Book) Expire(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := len(b.all)
	for i := range b.all {
		if early := b.all[i].Since.Sub(now); early > 0 {
			b.all[i].Since, b.all[i].Until = now, b.all[i].Until.Add(-early)
			b.dirty = true
		}
		r := &b.all[i]
		was := r.Until.Round(0)
		r.Since, r.Until = now.Add(r.Since.Sub(now)), now.Add(r.Until.Sub(now))
		b.dirty = b.dirty || r.Until.Round(0).Sub(was).Abs() >= leastJump
	}
	b.all = slices.DeleteFunc(b.all, func(r Rule) bool { return !now.Before(r.Until) })
	if len(b.all) == was && !b.dirty {
		return nil
	}
	return b.save()
}

// Get returns the rule of an ID.
func (b *Book) Get(id string) (Rule, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.IndexFunc(b.all, func(r Rule) bool { return r.ID == id })
	if at < 0 {
		return Rule{}, false
	}
	return b.all[at], true
}

// Of returns the rules of an interface, the oldest first.
func (b *Book) Of(dev string) (out []Rule) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.all {
		if r.Dev == dev {
			out = append(out, r)
		}
	}
	return out
}

// Rename has the rules of interfaces, by the names that they had, be of others, and writes the
// file. Where that fails, Expire tries again.
func (b *Book) Rename(now map[string]string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := false
	for i := range b.all {
		if name := now[b.all[i].Dev]; name != "" {
			b.all[i].Dev, changed = name, true
		}
	}
	if !changed {
		return nil
	}
	return b.save()
}

func (b *Book) save() error {
	b.dirty = true
	text, err := json.MarshalIndent(contents{b.last, b.all}, "", " ")
	if err != nil {
		return fmt.Errorf("keep live rules: %w", err)
	}
	if err := b.file.Write(text); err != nil {
		return err
	}
	b.dirty = false
	return nil
}
