package feed

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/host/secret"
	"levee/internal/lang/policy"
)

// Bounds of a fetch.
const (
	MaxBytes     = 128 << 20 // of a list, also unpacked
	maxTime      = 2 * time.Minute
	maxRedirects = 5
	maxRetry     = 24 * time.Hour
)

// State is by what a server or a file system tells that a list has not changed.
type State struct {
	ETag     string    `json:"etag,omitempty"`
	Modified string    `json:"modified,omitempty"` // Last-Modified, as it was sent
	Time     time.Time `json:"time,omitzero"`      // of a file
	Size     int64     `json:"size,omitempty"`
}

// Result is the answer to a fetch.
type Result struct {
	List      *List // nil where the list is as State says
	State     State
	Bytes     int64 // unpacked
	Unchanged bool
}

// Refused is a server's answer that is no list.
type Refused struct {
	Status string
	Key    string        // the file with what it refuses; "": that is not why
	Retry  time.Duration // that the server asks for; 0: none
}

func (r *Refused) Error() string {
	if r.Key != "" {
		return fmt.Sprintf("the server refuses what %s holds: %s", r.Key, r.Status)
	}
	return "the server answers: " + r.Status
}

// Later says whether the server may answer with the list later: it is asked too often, or fails.
func (r *Refused) Later() bool {
	return strings.HasPrefix(r.Status, "429") || strings.HasPrefix(r.Status, "5")
}

// errTooLarge is a list that has more bytes than it may.
var errTooLarge = fmt.Errorf("the list has more than %d bytes", MaxBytes)

// Fetcher fetches one feed, by one goroutine.
type Fetcher struct {
	of     *policy.Feed
	most   int
	agent  string // User-Agent
	client *http.Client
	fold   func(string) string // of texts
}

// New prepares a feed of at most so many entries.
func New(of *policy.Feed, most int, agent string) *Fetcher {
	f := &Fetcher{of: of, most: most, agent: agent}
	if of.URL != "" {
		f.client = Client(of.Cleartext, maxTime)
		check := f.client.CheckRedirect
		f.client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
			if from := via[0].URL; r.URL.Scheme != from.Scheme || r.URL.Host != from.Host {
				r.Header.Del(f.header()) // the key is for one server
			}
			return check(r, via)
		}
	}
	return f
}

// header returns the one that holds a key or a password.
func (f *Fetcher) header() string {
	if f.of.Header != "" {
		return f.of.Header
	}
	return "Authorization"
}

// identify puts what the feed asks of whoever reads it into a request.
func (f *Fetcher) identify(r *http.Request) error {
	if f.of.Key == "" {
		return nil
	}
	key, err := secret.Read(f.of.Key)
	if err != nil {
		return err
	}
	if f.of.User != "" {
		r.SetBasicAuth(f.of.User, key)
	} else {
		r.Header.Set(f.of.Header, key)
	}
	return nil
}

// Client returns an HTTP client that follows a few redirects, none to where the policy does not let
// the list come from, and that ends each request in time.
func Client(cleartext bool, most time.Duration) *http.Client {
	return &http.Client{Timeout: most,
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout: 15 * time.Second, ResponseHeaderTimeout: most,
			MaxResponseHeaderBytes: 64 << 10, IdleConnTimeout: 90 * time.Second,
			ForceAttemptHTTP2: true},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return fmt.Errorf("more than %d redirects", maxRedirects)
			}
			r.Header.Del("Referer") // a path may hold a key, which is for one server
			if r.URL.Scheme == "https" || r.URL.Scheme == "http" &&
				via[len(via)-1].URL.Scheme == "http" && (cleartext || Loopback(r.URL)) {
				return nil
			}
			return fmt.Errorf("a redirect to %s, which is not encrypted", r.URL.Redacted())
		}}
}

// Loopback tells whether a URL is of this machine.
func Loopback(u *url.URL) bool {
	a, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// Close ends idle connections.
func (f *Fetcher) Close() {
	if f.client != nil {
		f.client.CloseIdleConnections()
	}
}

// Fetch brings the list, or nothing where it is as the state says.
func (f *Fetcher) Fetch(ctx context.Context, last State) (*Result, error) {
	if f.client == nil {
		return f.file(last)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.of.URL, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", f.agent)
	if last.ETag != "" {
		req.Header.Set("If-None-Match", last.ETag)
	}
	if last.Modified != "" {
		req.Header.Set("If-Modified-Since", last.Modified)
	}
	if err := f.identify(req); err != nil {
		return nil, err
	}
	res, err := f.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusNotModified && last != State{}:
		return &Result{State: last, Unchanged: true}, nil
	case res.StatusCode != http.StatusOK:
		out := &Refused{Status: res.Status, Retry: retryAfter(res.Header.Get("Retry-After"))}
		if res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden {
			out.Key = f.of.Key
		}
		return nil, out
	}
	out, err := f.read(res.Body)
	if err != nil {
		return nil, err
	}
	out.State = State{ETag: res.Header.Get("ETag"), Modified: res.Header.Get("Last-Modified")}
	return out, nil
}

// retryAfter reads a number of seconds; a date is rare, and counts as none.
func retryAfter(text string) time.Duration {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 0 {
		return 0
	}
	return min(time.Duration(min(n, int(maxRetry/time.Second)))*time.Second, maxRetry)
}

// file reads a list from a file. One that changes meanwhile is read again the next time.
func (f *Fetcher) file(last State) (*Result, error) {
	// a fifo that nobody writes to must not hold the agent
	in, err := os.OpenFile(f.of.Path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", f.of.Path)
	}
	now := State{Time: info.ModTime(), Size: info.Size()}
	if now.Time.Equal(last.Time) && now.Size == last.Size {
		return &Result{State: last, Unchanged: true}, nil
	}
	out, err := f.read(in)
	if err != nil {
		return nil, err
	}
	if again, err := in.Stat(); err != nil {
		return nil, err
	} else if !again.ModTime().Equal(now.Time) || again.Size() != now.Size {
		return nil, errors.New("the file changed while it was read")
	}
	out.State = now
	return out, nil
}

// read reads what may be packed.
func (f *Fetcher) read(r io.Reader) (*Result, error) {
	packed := bufio.NewReader(&bounded{r: r})
	in := &bounded{r: packed}
	if magic, _ := packed.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		zip, err := gzip.NewReader(packed)
		if err != nil {
			return nil, fmt.Errorf("unpack the list: %w", err)
		}
		in.r = zip
	}
	l, err := (&reader{of: f.of, most: f.most, fold: f.fold}).read(in)
	if err != nil {
		return nil, err
	}
	return &Result{List: l, Bytes: in.n}, nil
}

// bounded reads so many bytes, and fails beyond them.
type bounded struct {
	r io.Reader
	n int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.n += int64(n); b.n > MaxBytes {
		return n, errTooLarge
	}
	return n, err
}

// pieces reads values of at most maxValue bytes each, and fails at a longer one: whoever takes
// values apart keeps each of them whole.
type pieces struct {
	r io.Reader
	n int // bytes since the last value
}

// maxValue is the length of the longest value of JSON, or row of a table.
const maxValue = 1 << 20

func (p *pieces) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if p.n += n; p.n > maxValue {
		return 0, fmt.Errorf("a value has more than %d bytes: this is no list", maxValue)
	}
	return n, err
}

// next says that a value has ended.
func (p *pieces) next() { p.n = 0 }
