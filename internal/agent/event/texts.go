package event

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"time"

	"levee/internal/lang/eve"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// texts is the texts of a condition. It is used by one goroutine.
type texts struct {
	how        policy.How
	anyCase    bool
	addresses  bool // texts that are addresses are compared in the form of RFC 5952
	equal      map[string]bool
	parts      [][]byte
	expression *regexp.Regexp
	list       listing
}

// listing is a list of texts that others change.
type listing interface {
	// has tells whether it holds a text, and whether it was ever read.
	has(text []byte) (is, known bool)
	trouble() error
}

// newTexts prepares a condition on texts. The parser of policies has compiled its expression once.
// of is the format of the records: the fields of eve that are addresses are so however they are
// compared, and those of json where a whole one is.
func newTexts(c *policy.Condition, of policy.Format, feeds feeds) *texts {
	t := &texts{how: c.How, anyCase: c.AnyCase}
	f, _ := eve.Named(c.Field)
	t.addresses = of == policy.EVE && f.Type == eve.Address ||
		of == policy.JSON && (c.How == policy.Equals || c.How == policy.Listed)
	switch c.How {
	case policy.Matches:
		text := c.Expression
		if c.AnyCase {
			text = "(?i:" + text + ")"
		}
		t.expression = regexp.MustCompile(text)
	case policy.Listed:
		if c.Feed != nil {
			t.list = feeds.of(c, t)
		} else {
			t.list = &list{path: c.File, fold: t.fold, most: maxListed}
		}
	case policy.Equals:
		t.equal = make(map[string]bool, len(c.Texts))
		for _, text := range c.Texts {
			t.equal[t.fold(text)] = true
		}
	default:
		for _, text := range c.Texts {
			t.parts = append(t.parts, []byte(t.fold(text)))
		}
	}
	return t
}

// fold returns a whole text in the form in which it is compared.
func (t *texts) fold(s string) string {
	if t.addresses {
		s = string(canonical([]byte(s)))
	}
	if t.anyCase {
		return strings.ToLower(s)
	}
	return s
}

// canonical is an address in the form of RFC 5952, as 2001:db8::1 of 2001:0DB8:0:0:0:0:0:1, which
// is how Suricata writes it; and any other text as it is.
func canonical(text []byte) []byte {
	const longest = len("0000:0000:0000:0000:0000:ffff:255.255.255.255")
	if len(text) > longest || !bytes.ContainsAny(text, ".:") {
		return text
	}
	a, err := netip.ParseAddr(string(text))
	if err != nil {
		return text
	}
	return a.Unmap().AppendTo(nil)
}

// have reports whether a text is one of them, or has one of them where they ask for it. It is not
// known while a list was never read: then neither the condition holds nor its contrary.
func (t *texts) have(text []byte) (is, known bool) {
	if t.addresses {
		text = canonical(text)
	}
	if t.list == nil {
		return t.hold(text), true
	}
	if t.anyCase {
		text = bytes.ToLower(text)
	}
	return t.list.has(text)
}

func (t *texts) hold(text []byte) bool {
	if t.anyCase && t.expression == nil {
		text = bytes.ToLower(text)
	}
	is := bytes.Contains
	switch t.how {
	case policy.Equals:
		return t.equal[string(text)]
	case policy.Matches:
		return t.expression.Match(text)
	case policy.Begins:
		is = bytes.HasPrefix
	case policy.Ends:
		is = bytes.HasSuffix
	}
	for _, p := range t.parts {
		if is(text, p) {
			return true
		}
	}
	return false
}

func (t *texts) trouble() error {
	if t.list == nil {
		return nil
	}
	return t.list.trouble()
}

// Bounds of a list.
const (
	maxListed  = 1 << 20 // texts
	maxListing = 64 << 20
	lookAgain  = time.Second
)

// list is a file of texts, one a line; lines that begin with # are comments. It is read again when
// it has changed. While it cannot be read, what it held last holds.
type list struct {
	path   string
	fold   func(string) string
	most   int // texts that it may have
	texts  map[string]bool
	looked time.Time
	read   os.FileInfo // when it was read
	err    error
}

func (l *list) has(text []byte) (is, known bool) {
	l.look()
	return l.texts[string(text)], l.texts != nil
}

func (l *list) trouble() error {
	l.look()
	return l.err
}

// look reads the file if it is another one than that which was read.
func (l *list) look() {
	now := time.Now()
	if now.Sub(l.looked) < lookAgain && now.After(l.looked) {
		return
	}
	l.looked = now
	info, err := os.Stat(l.path)
	if err == nil && l.read != nil && os.SameFile(info, l.read) &&
		info.ModTime().Equal(l.read.ModTime()) && info.Size() == l.read.Size() {
		l.err = nil
		return
	}
	if err == nil {
		err = l.fill(info)
	}
	if err != nil {
		l.err = fmt.Errorf("read the list of a condition: %w", err)
		return
	}
	l.read, l.err = info, nil
}

// fill reads the file. One that is not ordinary is not even opened: a FIFO would hold the agent.
func (l *list) fill(info os.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no ordinary file", l.path)
	} else if info.Size() > maxListing {
		return fmt.Errorf("%s has %d bytes, more than %d", l.path, info.Size(), maxListing)
	}
	f, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer f.Close()
	has := map[string]bool{}
	in := bufio.NewReader(io.LimitReader(f, maxListing))
	begin, _ := in.Peek(8) // what follows has the error, too
	if err := literal.NoText(begin); err != nil {
		return fmt.Errorf("%s: %w", l.path, err)
	}
	lines := bufio.NewScanner(literal.ListLines(in))
	for lines.Scan() {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		if has[l.fold(text)] = true; len(has) > l.most {
			return fmt.Errorf("%s has more than %d texts", l.path, l.most)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", l.path, err)
	}
	l.texts = has
	return nil
}
