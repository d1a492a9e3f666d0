// Package crowdsec follows the decisions of CrowdSec's local API, as its own bouncers do in stream
// mode.
//
// In go a URL, a key and conditions, out come addresses and networks with the time until which each
// is banned. An address is banned while any decision on it is, whoever made it. What the API says
// is bounded; an answer that ends too soon is an error, after which all is asked for anew. It bans
// nobody.
//
// The protocol: docs.crowdsec.net, "Local API", "For bouncers".
package crowdsec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"levee/internal/host/secret"
	"levee/internal/lang/policy"
)

// Bounds of an answer.
const (
	maxBytes = 1 << 30
	maxValue = 1 << 20
	// maxOnOne is the number of decisions on one address that are kept, those that last longest.
	maxOnOne = 1000
	// MaxDecisions limits the decisions of an answer, and all.
	MaxDecisions = 2 << 20
)

// Decision is one, as the API sends it.
type Decision struct {
	ID       int64  `json:"id"`
	Origin   string `json:"origin"`
	Type     string `json:"type"`
	Scope    string `json:"scope"`
	Value    string `json:"value"`
	Duration string `json:"duration"` // that is left
	Scenario string `json:"scenario"`
}

// Stream is an answer.
type Stream struct{ New, Deleted []Decision }

// Client asks one local API, by one goroutine.
type Client struct {
	of    *policy.CrowdSec
	agent string
	http  *http.Client
}

// New prepares a client, which gives agent as its name and version, parted by a slash. It follows
// no redirect: net/http would pass the key on.
func New(of *policy.CrowdSec, client *http.Client, agent string) *Client {
	own := *client
	own.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}
	return &Client{of: of, agent: agent, http: &own}
}

// Stream asks for all decisions, or for what has changed since the last time.
func (c *Client) Stream(ctx context.Context, all bool) (*Stream, error) {
	key, err := secret.Read(c.of.Key)
	if err != nil {
		return nil, err
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("%s holds no key: `cscli bouncers add levee` prints one", c.of.Key)
	}
	// dedup: the API sends each decision, not only the longest of each address
	url := fmt.Sprintf("%s/v1/decisions/stream?startup=%t&scopes=ip,range&dedup=false", c.of.URL,
		all)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Api-Key", key)
	req.Header.Set("User-Agent", c.agent)
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusForbidden, http.StatusUnauthorized:
		return nil, fmt.Errorf("the local API refuses the key in %s (%s): `cscli bouncers list` "+
			"shows those that it takes", c.of.Key, res.Status)
	default:
		return nil, fmt.Errorf("the local API answers: %s", res.Status)
	}
	return Read(res.Body)
}

// Read reads an answer.
func Read(r io.Reader) (*Stream, error) {
	in := &bounded{r: r}
	d := &decoder{json.NewDecoder(in), in}
	out := &Stream{}
	err := readStream(d, out)
	if err == nil {
		if _, err = d.Token(); err == io.EOF {
			return out, nil
		}
		err = errors.New("there is more behind it")
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("read what the local API answers: %w", err)
}

// bounded reads so many bytes of an answer, and of one value in it, as the decoder keeps a value
// whole.
type bounded struct {
	r          io.Reader
	all, value int
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.all, b.value = b.all+n, b.value+n
	switch {
	case b.all > maxBytes:
		return n, fmt.Errorf("it has more than %d bytes", maxBytes)
	case b.value > maxValue:
		return n, fmt.Errorf("a value in it has more than %d bytes", maxValue)
	}
	return n, err
}

type decoder struct {
	*json.Decoder
	in *bounded
}

// Decode decodes one value.
func (d *decoder) Decode(to any) error {
	err := d.Decoder.Decode(to)
	d.in.value = 0
	return err
}

func readStream(d *decoder, out *Stream) error {
	if err := delim(d, '{'); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		switch name {
		case "new":
			err = decisions(d, &out.New)
		case "deleted":
			err = decisions(d, &out.Deleted)
		default:
			var skipped json.RawMessage
			err = d.Decode(&skipped)
		}
		if err != nil {
			return err
		}
		if len(out.New)+len(out.Deleted) > MaxDecisions {
			return fmt.Errorf("it has more than %d decisions", MaxDecisions)
		}
	}
	return delim(d, '}')
}

func delim(d *decoder, want json.Delim) error {
	t, err := d.Token()
	if err == nil && t != want {
		err = fmt.Errorf("expected %v, found %v", want, t)
	}
	return err
}

// decisions reads a list of them, or null.
func decisions(d *decoder, out *[]Decision) error {
	t, err := d.Token()
	if err != nil || t == nil {
		return err
	}
	if t != json.Delim('[') {
		return fmt.Errorf("expected a list of decisions, found %v", t)
	}
	for d.More() {
		if len(*out) > MaxDecisions {
			return fmt.Errorf("it has more than %d decisions", MaxDecisions)
		}
		var one Decision
		if err := d.Decode(&one); err != nil {
			return err
		}
		*out = append(*out, one)
	}
	return delim(d, ']')
}

// Bans are the decisions that hold, by address.
type Bans struct {
	of  *policy.CrowdSec
	by  map[netip.Prefix][]ban
	ids int
	// Other counts decisions on what is no address or network, or a very large one, that cannot be
	// read, or that are too many on one address
	Other int
	// Unmeant counts those for which some condition does not hold
	Unmeant int
}

type ban struct {
	id    int64
	until time.Time
}

// NewBans are none.
func NewBans(of *policy.CrowdSec) *Bans {
	return &Bans{of: of, by: map[netip.Prefix][]ban{}}
}

// Decisions returns how many hold, and Addresses on how many entries.
func (b *Bans) Decisions() int { return b.ids }

// Addresses returns how many entries are banned.
func (b *Bans) Addresses() int { return len(b.by) }

// soonest returns the place of the one that ends first.
func soonest(all []ban) (at int) {
	for i := range all {
		if all[i].until.Before(all[at].until) {
			at = i
		}
	}
	return at
}

func latest(all []ban) (t time.Time) {
	for _, b := range all {
		if b.until.After(t) {
			t = b.until
		}
	}
	return t
}

// Apply takes an answer, and says until when each entry is banned now that it names; zero: no more.
func (b *Bans) Apply(s *Stream, now time.Time) map[netip.Prefix]time.Time {
	changed := map[netip.Prefix]time.Time{}
	for i := range s.New {
		d := &s.New[i]
		p, ok := d.prefix()
		left, err := time.ParseDuration(d.Duration)
		switch {
		case !ok || err != nil:
			b.Other++
			continue
		case !b.means(d):
			b.Unmeant++
			continue
		case left <= 0:
			continue
		}
		of := b.by[p]
		one := ban{d.ID, now.Add(left)}
		if at := slices.IndexFunc(of, func(o ban) bool { return o.id == d.ID }); at >= 0 {
			of[at] = one
		} else if len(of) < maxOnOne {
			b.by[p] = append(of, one)
			b.ids++
		} else {
			b.Other++
			if at := soonest(of); of[at].until.Before(one.until) {
				of[at] = one
			}
		}
		changed[p] = time.Time{}
	}
	for i := range s.Deleted { // last: one that came and went meanwhile is in both
		d := &s.Deleted[i]
		p, ok := d.prefix()
		if !ok {
			continue
		}
		of := b.by[p]
		at := slices.IndexFunc(of, func(o ban) bool { return o.id == d.ID })
		if at < 0 {
			continue
		}
		if of = slices.Delete(of, at, at+1); len(of) == 0 {
			delete(b.by, p)
		} else {
			b.by[p] = of
		}
		b.ids--
		changed[p] = time.Time{}
	}
	for p := range changed {
		changed[p] = latest(b.by[p])
	}
	return changed
}

// prefix returns the address or network of a decision.
func (d *Decision) prefix() (p netip.Prefix, ok bool) {
	switch strings.ToLower(d.Scope) {
	case "ip":
		a, err := netip.ParseAddr(d.Value)
		if err != nil || a.Zone() != "" {
			break
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), true
	case "range":
		p, err := netip.ParsePrefix(d.Value)
		if err != nil {
			break
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		least := policy.Shortest4
		if p.Addr().Is6() {
			least = policy.Shortest6
		}
		return p.Masked(), p.Bits() >= least
	}
	return p, false
}

// means tells whether all conditions hold; of types only ban is meant where none names types.
func (b *Bans) means(d *Decision) bool {
	typed := false
	for i := range b.of.Where {
		c := &b.of.Where[i]
		text := d.Origin
		switch c.Field {
		case "scenario":
			text = d.Scenario
		case "type":
			text, typed = d.Type, true
		}
		if !c.Holds(text) {
			return false
		}
	}
	return typed || d.Type == "ban"
}
