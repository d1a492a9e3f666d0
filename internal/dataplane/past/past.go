// Package past keeps the policies that were in force on an interface: the last ten, on the disk,
// each whole, with what its set files held. In goes a policy that has come into force; out come
// those that are right, the newest first. It also knows which texts were on trial and were never
// confirmed. It must never take a file that was spoilt for a policy, nor lose the newest one for
// one that cannot be written.
package past

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"levee/internal/host/atomicfile"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
)

// most limits the policies of an interface that are kept.
const most = 10

// mostBytes bounds the files of one interface together; the newest may be larger.
const mostBytes = 256 << 20

// A file is this line, the Policy as JSON, and the SHA-256 of both.
const (
	magic  = "levee policy 1\n"
	suffix = ".policy"
)

// Policy is a policy that was in force.
type Policy struct {
	Number int            `json:"-"` // counts from 1 for each interface; the name of the file
	Path   string         `json:"path"`
	Names  []string       `json:"names,omitempty"` // its interfaces and patterns
	Since  time.Time      `json:"since"`           // when it came into force
	Source []byte         `json:"source"`
	Files  []setfile.File `json:"files,omitempty"`
}

// Name returns what verdicts call the policy: the base name of its file.
func (p *Policy) Name() string { return filepath.Base(p.Path) }

// Parse reads the policy again.
func (p *Policy) Parse() (*policy.Policy, error) {
	parsed, ds := resolve.Parse(p.Name(), p.Source, setfile.Recorded(p.Files))
	if parsed == nil {
		return nil, fmt.Errorf("%s, which was in force since %s, cannot be read again: %w", p.Path,
			p.Since.Format(time.DateTime), ds.Err())
	}
	return parsed, nil
}

// Same reports whether two policies are one, whenever they were in force.
func (p *Policy) Same(o *Policy) bool {
	return p.Path == o.Path && slices.Equal(p.Names, o.Names) && bytes.Equal(p.Source, o.Source) &&
		slices.EqualFunc(p.Files, o.Files, func(a, b setfile.File) bool {
			return a.Path == b.Path && bytes.Equal(a.Packed, b.Packed)
		})
}

// Store is a directory with the policies of one interface.
type Store struct {
	Dir string
	// Step is told of each step of a change, and ends it with an error: for tests. May be nil.
	Step func(string) error
}

// Damaged is a file that is not as it was written.
type Damaged struct {
	Number int
	Path   string
	Err    error
}

// List reads the policies, the newest first, and says which files are spoilt.
func (s Store) List() (all []Policy, spoilt []Damaged, err error) {
	numbers, err := s.numbers()
	for _, n := range slices.Backward(numbers) {
		p, rerr := s.read(n)
		if errors.Is(rerr, fs.ErrNotExist) {
			continue // another process has removed it
		}
		if rerr != nil {
			spoilt = append(spoilt, Damaged{n, s.path(n), rerr})
			continue
		}
		all = append(all, *p)
	}
	return all, spoilt, err
}

// Add keeps a policy that has come into force, unless it is the newest already, and ends that its
// text counts as unconfirmed. When the disk is full the oldest ones make room. An error leaves all
// that it did not remove for that.
func (s Store) Add(p Policy) error {
	numbers, err := s.numbers()
	if err != nil {
		return err
	}
	p.Number = 1
	if len(numbers) > 0 {
		newest := numbers[len(numbers)-1]
		if last, err := s.read(newest); err == nil && last.Same(&p) {
			return s.forget(p.Source)
		}
		p.Number = newest + 1
	}
	text, err := encode(&p)
	if err != nil {
		return err
	}
	for {
		if err = s.forget(p.Source); err == nil {
			err = atomicfile.Replace(s.path(p.Number), text, s.step)
		}
		if !full(err) || len(numbers) < 2 {
			break
		}
		if err := os.Remove(s.path(numbers[0])); err != nil {
			return err
		}
		numbers = numbers[1:]
	}
	if err != nil {
		return err
	}
	return s.prune(append(numbers, p.Number))
}

func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// prune removes the oldest of too many files, and what a killed process has left.
func (s Store) prune(numbers []int) error {
	// No pattern: the name of the interface, which is in the path, may hold what one takes for its
	// own.
	files, err := os.ReadDir(s.Dir)
	var gone []string
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".tmp") {
			gone = append(gone, filepath.Join(s.Dir, f.Name()))
		}
	}
	sum := int64(0)
	for i, n := range slices.Backward(numbers) {
		info, serr := os.Stat(s.path(n))
		if serr != nil {
			return serr
		}
		sum += info.Size()
		if newer := len(numbers) - 1 - i; newer > 0 && (newer >= most || sum > mostBytes) {
			gone = append(gone, s.path(n))
		}
	}
	for _, path := range gone {
		if err := s.step("prune"); err != nil {
			return err
		}
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

func (s Store) step(name string) error {
	if s.Step == nil {
		return nil
	}
	return s.Step(name)
}

func (s Store) path(number int) string {
	return filepath.Join(s.Dir, fmt.Sprintf("%06d%s", number, suffix))
}

// numbers returns the numbers of the files that there are, in order.
func (s Store) numbers() ([]int, error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []int
	for _, e := range entries {
		name, ours := strings.CutSuffix(e.Name(), suffix)
		if n, err := strconv.Atoi(name); ours && err == nil && n > 0 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, err
}

func (s Store) read(number int) (*Policy, error) {
	path := s.path(number)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > 4*mostBytes {
		return nil, fmt.Errorf("%d bytes are more than a policy has", info.Size())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p, err := decode(b)
	if err == nil {
		p.Number = number
	}
	return p, err
}

func encode(p *Policy) ([]byte, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	b := append([]byte(magic), text...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...), nil
}

func decode(b []byte) (*Policy, error) {
	if len(b) < len(magic)+sha256.Size || string(b[:len(magic)]) != magic {
		return nil, errors.New("it is no file of a policy")
	}
	body := b[:len(b)-sha256.Size]
	if sha256.Sum256(body) != [sha256.Size]byte(b[len(body):]) {
		return nil, errors.New("its sum is wrong")
	}
	var p Policy
	return &p, json.Unmarshal(body[len(magic):], &p)
}
