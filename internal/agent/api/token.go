package api

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/host/atomicfile"
)

// Token describes a token without its secret. Only the SHA-256 of its 32 random bytes is stored:
// these cannot be guessed, so that a slow hash would add nothing.
type Token struct {
	Name    string    `json:"name"`
	Role    Role      `json:"role"`
	Hash    []byte    `json:"hash"`
	Made    time.Time `json:"made"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
}

func (t *Token) ended(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

const (
	tokenPrefix = "levee_" // so that scanners of secrets can name what they have found
	tokenBytes  = 32
	maxTokens   = 1000
	fileMode    = 0o600
)

var tokenName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
})

// errNoToken is that a name has no token.
var errNoToken = errors.New("there is no token of this name: levee agent token list shows them")

// Tokens are a file of tokens, which commands change and a server reads anew after each change.
type Tokens struct {
	path string

	mu    sync.Mutex
	file  tokenFile
	stamp fs.FileInfo
	over  map[string]int64 // sessions that have ended before their time, as in the file
}

type tokenFile struct {
	Key    []byte  `json:"key"` // of cookies
	Tokens []Token `json:"tokens"`
	// Over are sessions that have ended before their time: until when, by the end of their cookie.
	Over map[string]int64 `json:"over,omitempty"`
}

// OpenTokens returns the tokens of a file, which need not be there yet.
func OpenTokens(path string) *Tokens { return &Tokens{path: path} }

// Path returns the file.
func (t *Tokens) Path() string { return t.path }

// Check tells whether the file can be read, if there is one.
func (t *Tokens) Check() error {
	_, err := t.read()
	return err
}

// read returns the file as it is now.
func (t *Tokens) read() (tokenFile, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	st, err := os.Stat(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		t.file, t.stamp = tokenFile{}, nil
		return t.file, nil
	}
	if err != nil {
		return tokenFile{}, fmt.Errorf("look at the tokens: %w", err)
	}
	if t.stamp != nil && os.SameFile(st, t.stamp) && st.ModTime().Equal(t.stamp.ModTime()) {
		return t.file, nil
	}
	text, err := os.ReadFile(t.path)
	if err != nil {
		return tokenFile{}, fmt.Errorf("read the tokens: %w", err)
	}
	var f tokenFile
	if err := json.Unmarshal(text, &f); err != nil {
		return tokenFile{}, fmt.Errorf("the file of tokens %s is damaged (%w): remove it, and "+
			"make the tokens anew", t.path, err)
	}
	t.file, t.stamp = f, st
	return f, nil
}

// change writes the file anew, while no other process does.
func (t *Tokens) change(do func(*tokenFile) error) error {
	dir := filepath.Dir(t.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of the tokens: %w", err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() // lets the lock go
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("wait for others who change tokens: %w", err)
	}
	f, err := t.read()
	if err != nil {
		return err
	}
	f.Tokens = slices.Clone(f.Tokens)
	if f.Key == nil {
		f.Key = random()
	}
	if err := do(&f); err != nil {
		return err
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(t.path, append(text, '\n'), fileMode)
}

func random() []byte {
	b := make([]byte, tokenBytes)
	_, _ = rand.Read(b) // never fails
	return b
}

// Add makes a token, and returns its text, which is nowhere else. lasts is 0 for one that never
// ends.
func (t *Tokens) Add(name string, role Role, lasts time.Duration) (string, error) {
	if !tokenName().MatchString(name) {
		return "", fmt.Errorf("%q is no name of a token: small letters, digits, and . _ - behind "+
			"the first, at most 64", name)
	}
	text := tokenPrefix + base64.RawURLEncoding.EncodeToString(random())
	now := time.Now().UTC().Truncate(time.Second)
	err := t.change(func(f *tokenFile) error {
		f.Tokens = slices.DeleteFunc(f.Tokens, func(o Token) bool { return o.ended(now) })
		switch {
		case slices.ContainsFunc(f.Tokens, func(o Token) bool { return o.Name == name }):
			return fmt.Errorf("there is a token %s already: levee agent token remove %[1]s", name)
		case len(f.Tokens) >= maxTokens:
			return fmt.Errorf("there are %d tokens, which is the most: remove some", maxTokens)
		}
		next := Token{Name: name, Role: role, Hash: hash(text), Made: now}
		if lasts > 0 {
			next.Expires = now.Add(lasts)
		}
		f.Tokens = append(f.Tokens, next)
		return nil
	})
	if err != nil {
		return "", err
	}
	return text, nil
}

// Renew puts the end of a token off, which may have come already. lasts is 0 for one that never
// ends. Whoever uses the token, and each page that is logged in by it, goes on.
func (t *Tokens) Renew(name string, lasts time.Duration) error {
	return t.change(func(f *tokenFile) error {
		i := slices.IndexFunc(f.Tokens, func(o Token) bool { return o.Name == name })
		if i < 0 {
			return errNoToken
		}
		f.Tokens[i].Expires = time.Time{}
		if lasts > 0 {
			f.Tokens[i].Expires = time.Now().UTC().Truncate(time.Second).Add(lasts)
		}
		return nil
	})
}

// Remove makes a token, and each cookie that stands for it, worth nothing.
func (t *Tokens) Remove(name string) error {
	return t.change(func(f *tokenFile) error {
		n := len(f.Tokens)
		f.Tokens = slices.DeleteFunc(f.Tokens, func(o Token) bool { return o.Name == name })
		if len(f.Tokens) == n {
			return errNoToken
		}
		return nil
	})
}

// List returns the tokens, by name.
func (t *Tokens) List() ([]Token, error) {
	f, err := t.read()
	out := slices.Clone(f.Tokens)
	slices.SortFunc(out, func(a, b Token) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}

func hash(token string) []byte {
	h := sha256.Sum256([]byte(token))
	return h[:]
}

// find returns the token of a text. How long that takes depends on how many tokens there are, and
// on nothing else.
func (t *Tokens) find(text string) (*Token, error) {
	f, err := t.read()
	if err != nil {
		return nil, err
	}
	h := hash(text)
	var found *Token
	for i := range f.Tokens {
		if subtle.ConstantTimeCompare(f.Tokens[i].Hash, h) == 1 {
			found = &f.Tokens[i]
		}
	}
	switch {
	case found == nil:
		return nil, errors.New("the token is not known: levee agent token add NAME makes one")
	case found.ended(time.Now()):
		return nil, fmt.Errorf("the token %s has ended: levee agent token add NAME makes one",
			found.Name)
	}
	return found, nil
}

// nonceBytes tell two sessions of a token apart.
const nonceBytes = 9

// cookie stands for a token until a time, and says nothing of it: NAME.UNTIL-NONCE.MAC. It outlives
// a restart of the agent, and ends with the token, or when somebody logs out.
// A session keeps its nonce when its end is put off, so that each of its cookies ends with it.
func (t *Tokens) cookie(of *Token, until time.Time, nonce string) (string, error) {
	f, err := t.read()
	if err != nil {
		return "", err
	}
	text := of.Name + "." + strconv.FormatInt(until.Unix(), 36) + "-" + nonce
	return text + "." + base64.RawURLEncoding.EncodeToString(mac(f.Key, text, of.Hash)), nil
}

func newNonce() string { return base64.RawURLEncoding.EncodeToString(random()[:nonceBytes]) }

func mac(key []byte, text string, tokenHash []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(tokenHash)
	h.Write([]byte(text))
	return h.Sum(nil)
}

var errCookie = errors.New("the session has ended: log in again")

// session stands for a token from a login to a logout.
type session struct {
	*Token
	nonce string
	until int64 // seconds since 1970
	sum   string
}

// ids returns what a session is known by that has ended before its time: its nonce, or in older
// files its sum.
func (s *session) ids() [2]string { return [2]string{s.Name + "." + s.nonce, s.sum} }

// session returns a login, for which a cookie stands.
func (t *Tokens) session(cookie string) (*session, error) {
	at := strings.LastIndexByte(cookie, '.')
	text, sum := cookie[:max(at, 0)], cookie[at+1:]
	given, err := base64.RawURLEncoding.DecodeString(sum)
	at = strings.LastIndexByte(text, '.')
	if err != nil || at < 0 {
		return nil, errCookie
	}
	end, nonce, _ := strings.Cut(text[at+1:], "-")
	until, err := strconv.ParseInt(end, 36, 64)
	if err != nil || time.Now().Unix() >= until {
		return nil, errCookie
	}
	f, err := t.read()
	if err != nil {
		return nil, err
	}
	for i := range f.Tokens {
		if o := &f.Tokens[i]; o.Name == text[:at] && !o.ended(time.Now()) &&
			hmac.Equal(given, mac(f.Key, text, o.Hash)) {
			s := &session{o, nonce, until, sum}
			for _, id := range s.ids() {
				if _, over := f.Over[id]; over || t.isOver(id) {
					return nil, errCookie
				}
			}
			return s, nil
		}
	}
	return nil, errCookie
}

// maxOver is the largest number of sessions that may have ended before their time. More than that
// end with the agent's next start only: one who logs in and out without an end is not to fill the
// disk.
const maxOver = 1024

func (t *Tokens) isOver(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, over := t.over[id]
	return over
}

// end makes the cookies of a session worth nothing. What is not on the disk ends at least until the
// next start.
func (t *Tokens) end(cookie string) error {
	s, err := t.session(cookie)
	if err != nil {
		return nil // it is worth nothing
	}
	id, until := s.ids()[0], time.Now().Add(sessionLasts).Unix() // no cookie of it lasts longer
	ended := func(_ string, end int64) bool { return time.Now().Unix() >= end }
	t.mu.Lock()
	if t.over == nil {
		t.over = map[string]int64{}
	}
	maps.DeleteFunc(t.over, ended)
	for other := range t.over { // any: whoever ends so many sessions has them himself
		if len(t.over) < 16*maxOver {
			break
		}
		delete(t.over, other)
	}
	t.over[id] = until
	t.mu.Unlock()
	return t.change(func(f *tokenFile) error {
		f.Over = maps.Clone(f.Over)
		maps.DeleteFunc(f.Over, ended)
		if len(f.Over) >= maxOver {
			return fmt.Errorf("%d sessions have ended before their time", len(f.Over))
		}
		if f.Over == nil {
			f.Over = map[string]int64{}
		}
		f.Over[id] = until
		return nil
	})
}
