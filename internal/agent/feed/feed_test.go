package feed

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/lang/listform"
	"levee/internal/lang/policy"
)

// Read reads a list of at most so many entries.
func Read(r io.Reader, of *policy.Feed, most int) (*List, error) {
	return (&reader{of: of, most: most}).read(r)
}

func of(change func(*policy.Feed)) *policy.Feed {
	f := &policy.Feed{Shortest4: 8, Shortest6: 16}
	if change != nil {
		change(f)
	}
	return f
}

// TestEveryFormHasAReader: what the language can say is read, and by that reader.
func TestEveryFormHasAReader(t *testing.T) {
	for _, form := range listform.All() {
		if !slices.ContainsFunc(formats, func(f *format) bool { return f.form == form }) {
			t.Errorf("nobody reads lists whose policy has %s", form.Info().What)
		}
	}
	if len(formats) != len(listform.All()) {
		t.Errorf("%d readers for %d forms", len(formats), len(listform.All()))
	}
}

func TestFormats(t *testing.T) {
	cidr := of(func(f *policy.Feed) { f.Form, f.Value = listform.Field, "cidr" })
	second := of(func(f *policy.Feed) { f.Form, f.Value = listform.Column, "2" })
	for _, test := range []struct {
		name string
		of   *policy.Feed
		text string
		want string // prefixes, bad, short; or the error
	}{
		{"lines", of(nil), "# head\n192.0.2.1\n\n  198.51.100.9/24 ; SBL1\n2001:db8::1\r\n" +
			"192.0.2.1\n",
			"[192.0.2.1/32 198.51.100.0/24 2001:db8::1/128] 0 0"},
		{"lines with more behind", of(nil), "\ufeff192.0.2.1 # why\n192.0.2.4\tx y\n",
			"[192.0.2.1/32 192.0.2.4/32] 0 0"},
		{"ranges", of(nil), "192.0.2.0-192.0.2.3\n198.51.100.0 - 198.51.100.1\n",
			"[192.0.2.0/30 198.51.100.0/31] 0 0"},
		{"ends and a length, as DShield's", of(nil), "# Start\tEnd\n" +
			"45.1.3.0\t45.1.3.255\t24\t1523\tName\tUS\n" +
			"198.51.100.0\t198.51.100.255\t24\n2001:db8:: 2001:db8::ffff\n",
			"[45.1.3.0/24 198.51.100.0/24 2001:db8::/112] 0 0"},
		{"networks and masks", of(nil), "198.51.100.0 255.255.255.0\n" +
			"192.0.2.4 255.255.255.252 x\n192.0.2.9 255.255.255.255\n",
			"[192.0.2.4/30 192.0.2.9/32 198.51.100.0/24] 0 0"},
		{"several in a line", of(nil), "192.0.2.1 192.0.2.2, 198.51.100.0/24," +
			"192.0.2.4 192.0.2.5\n",
			"[192.0.2.1/32 192.0.2.2/32 192.0.2.4/32 192.0.2.5/32 198.51.100.0/24] 0 0"},
		{"lines that end by CR", of(nil), "# head\r192.0.2.1\r192.0.2.2\r\n" +
			"192.0.2.3\n\r192.0.2.4\r",
			"[192.0.2.1/32 192.0.2.2/32 192.0.2.3/32 192.0.2.4/32] 0 0"},
		{"an address behind other words", of(nil), "192.0.2.1 seen 2026-11-28 at 198.51.100.1\n",
			"[192.0.2.1/32] 1 0"},
		{"ranges that are no prefix, as DB-IP's", of(nil), "1.0.1.0,1.0.3.255,CN\n" +
			"192.0.2.0,192.0.2.255,US\n", "[1.0.1.0/24 1.0.2.0/23 192.0.2.0/24] 0 0"},
		{"a hosts file", of(nil), "127.0.0.1 localhost\n0.0.0.0 ads.example\n:: x.example\n",
			"3 of 3 entries are no address or prefix, the first line 1: \"127.0.0.1\" stands in " +
				"front of a name, as in a hosts file: a set of names takes those: is this the " +
				"format that the source names?"},
		{"names behind addresses", of(nil), strings.Repeat("192.0.2.1 bad.example\n", 19) +
			"255.255.255.255 broadcasthost\n0.0.0.0/8 bogon\n", "[0.0.0.0/8 192.0.2.1/32] 1 0"},
		{"what may be a range or two addresses", of(nil), strings.Repeat("192.0.2.1\n", 19) +
			"192.0.2.4 192.0.2.9 US\n", "[192.0.2.1/32] 1 0"},
		{"lists for P2P", of(nil), "# list\nSome Org, Ltd:198.51.100.0-198.51.100.255\n" +
			"Other:192.0.2.0-192.0.2.1\n", "[192.0.2.0/31 198.51.100.0/24] 0 0"},
		{"eMule's", of(nil), strings.Repeat("192.000.002.000 - 192.000.002.003 , 000 , Bogus\n",
			19) + "198.051.100.000 - 198.051.100.255 , 200 , may pass\n", "[192.0.2.0/30] 1 0"},
		{"networks and masks as routers have them", of(nil), "198.51.100.0 0.0.0.255\n" +
			"192.0.2.9 0.0.0.0\n", "[192.0.2.9/32 198.51.100.0/24] 0 0"},
		{"a length behind a blank", of(nil), "198.51.100.0 /24\n2001:db8:: / 32 x\n" +
			"192.0.2.4 -192.0.2.5\n", "[192.0.2.4/31 198.51.100.0/24 2001:db8::/32] 0 0"},
		{"a wrong length behind a blank", of(nil), strings.Repeat("192.0.2.1\n", 19) +
			"198.51.100.0 /33\n", "[192.0.2.1/32] 1 0"},
		{"UTF-16", of(nil), "\xff\xfe1\x009\x002\x00", "this is UTF-16"},
		{"another packer", of(nil), "PK\x03\x04\x14\x00", "gzip alone"},
		{"a mask behind a slash", of(nil), "198.51.100.0/255.255.255.0\n",
			"[198.51.100.0/24] 0 0"},
		{"MaxMind's", of(func(f *policy.Feed) { f.Form, f.Value = listform.Column, "1" }),
			"network,geoname_id\n192.0.2.0/25,1\n2001:db8::/32,2\n",
			"[192.0.2.0/25 2001:db8::/32] 0 0"},
		{"a table of ranges", of(func(f *policy.Feed) { f.Form, f.Value = listform.Column, "1" }),
			"\"1.0.1.0\",\"1.0.3.255\",\"16777472\"\n\"192.0.2.9\",\"198.51.100.1\",\"x\"\n",
			"[1.0.1.0/24 1.0.2.0/23 192.0.2.9/32] 0 0"},
		{"numbers for addresses, as IP2Location's", of(func(f *policy.Feed) {
			f.Form, f.Value = listform.Column, "1"
		}), "\"16777216\",\"16777471\",\"AU\"\n\"16777472\",\"16778239\",\"CN\"\n",
			"no address or prefix"},
		{"a registry's", of(nil), "ripencc|FR|ipv4|2.0.0.0|1048576|20100712|allocated\n",
			"1 of 1 entries are no address"},
		{"of ipset save", of(nil), "create x hash:ip,port family inet\nadd x 192.0.2.1,tcp:80\n",
			"2 of 2 entries are no address"},
		{"a set of nft", of(nil), "table inet f {\n\tset s {\n\t\telements = { 192.0.2.1,\n" +
			"\t\t\t     192.0.2.2 timeout 1h }\n\t}\n}\n", "entries are no address"},
		{"Tor's exit addresses", of(nil), "ExitNode 0011\nPublished 2026-11-28 01:02:03\n" +
			"ExitAddress 192.0.2.1 2026-11-28 01:02:03\n", "entries are no address"},
		{"rules", of(nil), "deny 192.0.2.1;\nALL: 192.0.2.2\n", "entries are no address"},
		{"mapped", of(nil), "::ffff:192.0.2.1\n::ffff:198.51.100.0/120\n",
			"[192.0.2.1/32 198.51.100.0/24] 0 0"},
		{"everything", of(nil), "0.0.0.0/0\n::/0\n192.0.2.1\n64.0.0.0/7\n2000::/3\n",
			"[192.0.2.1/32] 0 4"},
		{"everything, asked for", of(func(f *policy.Feed) { f.Shortest4 = 0 }), "0.0.0.0/0\n",
			"[0.0.0.0/0] 0 0"},
		{"one bad of twenty", of(nil), strings.Repeat("192.0.2.1\n", 19) + "fe80::1%eth0\n",
			"[192.0.2.1/32] 1 0"},
		{"one bad of five", of(nil), strings.Repeat("192.0.2.1\n", 4) + "x\n",
			"1 of 5 entries are no address or prefix, the first line 5: \"x\""},
		{"a page", of(nil), "<!DOCTYPE html>\n<html>\nnot found\n</html>\n", "this is a page"},
		{"a page that begins with a comment", of(nil), "\n<!-- x -->\n<html>", "this is a page"},
		{"nothing", of(nil), "# empty\n", "[] 0 0"},
		{"a long line", of(nil), strings.Repeat("1", maxLine+1), "a line is longer"},
		{"JSON lines", cidr, `{"cidr":"192.0.2.0/24","sblid":"SBL1"}` + "\n" +
			`{"cidr":"2001:db8::/32"}` + "\n" + `{"type":"metadata","records":2}`,
			"[192.0.2.0/24 2001:db8::/32] 0 0"},
		{"JSON within", cidr, `{"a":[{"b":{"cidr":["192.0.2.1",["192.0.2.2"]]}},{"cidr":null}],` +
			`"x":"cidr","y":"192.0.2.3"}`, "[192.0.2.1/32 192.0.2.2/32] 0 0"},
		{"JSON behind a mark", cidr, "\ufeff{\"cidr\":\"192.0.2.1\"}", "[192.0.2.1/32] 0 0"},
		{"numbers in JSON", cidr, strings.Repeat(`{"cidr":"192.0.2.1"}`, 20) +
			`{"cidr":3221225985}{"cidr":null}`, "[192.0.2.1/32] 1 0"},
		{"JSON that ends", cidr, `[{"cidr":"192.0.2.1"},`, "unexpected EOF"},
		{"JSON that is none", cidr, "192.0.2.1\n<", "invalid"},
		{"JSON without the name", cidr, `{"prefixes":[{"ip_prefix":"192.0.2.0/24"}]}`,
			`no value is named "cidr"; names are "prefixes", "ip_prefix"`},
		{"an error in JSON", cidr, `{"error":{"code":429,"message":"slow down"}}`,
			`no value is named "cidr"; names are "error", "code", "message"`},
		{"an empty list in JSON", cidr, `{"prefixes":[],"at":"2026-11-30"}`, "[] 0 0"},
		{"no list in JSON", cidr, `{"new":null,"deleted":null}`, "[] 0 0"},
		{"nothing in JSON", cidr, "null\n", "[] 0 0"},
		{"an error with a null", cidr, `{"error":"slow down","data":null}`,
			`no value is named "cidr"; names are "error", "data"`},
		{"other entries with a null", cidr, `[{"ip":"192.0.2.1","note":null}]`,
			`no value is named "cidr"; names are "ip", "note"`},
		{"an empty list in JSON alone", cidr, "[]\n", "[] 0 0"},
		{"a name without a value", cidr, `{"cidr":{}}`, "[] 0 0"},
		{"deep JSON", cidr, strings.Repeat("[", 100), "levels deep"},
		{"CSV", second, "# c\nname,address,x\na,192.0.2.1,1\n\"b, c\", 192.0.2.2\n",
			"[192.0.2.1/32 192.0.2.2/32] 0 0"},
		{"CSV whose lines end by CR, behind a mark", second,
			"\ufeffa,192.0.2.1\rb,192.0.2.2\rc,192.0.2.3\r",
			"[192.0.2.1/32 192.0.2.2/32 192.0.2.3/32] 0 0"},
		{"a first row that is no heading", second, "a,192.0.2.1:443\n" +
			strings.Repeat("b,192.0.2.2\n", 19), "[192.0.2.2/32] 1 0"},
		{"a quote that takes rows with it", second, strings.Repeat("a,192.0.2.1\n", 29) +
			"b,192.0.2.2,\"an open one\nc,192.0.2.3\nd,192.0.2.4\n\"x\",192.0.2.5\n",
			"[192.0.2.1/32 192.0.2.2/32] 2 0"},
		{"CSV without the column", second, "a\nb\nc\n", "is this the format"},
		{"too many", of(nil), strings.Repeat("192.0.2.1\n", 9) + "198.51.100.1-198.51.100.254\n" +
			"203.0.113.1-203.0.113.254\n192.0.2.2-192.0.2.9\n", "raise its max"},
		{"one, named more often than the set has room", of(nil),
			strings.Repeat("192.0.2.1\n192.0.2.2/32\n", 500), "[192.0.2.1/32 192.0.2.2/32] 0 0"},
	} {
		l, err := Read(strings.NewReader(test.text), test.of, 30)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprint(l.Prefixes, l.Bad, l.Short)
		}
		ok := got == test.want
		if err != nil {
			ok = strings.Contains(got, test.want)
		}
		if !ok {
			t.Errorf("%s: %s, wanted %s", test.name, got, test.want)
		}
	}
}

// server answers with what the test says at the moment.
func server(t *testing.T) (*httptest.Server, *http.HandlerFunc) {
	var answer http.HandlerFunc
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s, &answer
}

func fetcher(t *testing.T, url string) *Fetcher {
	f := New(of(func(f *policy.Feed) { f.URL = url }), 1000, "levee/1")
	t.Cleanup(f.Close)
	return f
}

func TestAListThatHasNotChangedIsNotReadAgain(t *testing.T) {
	s, answer := server(t)
	f := fetcher(t, s.URL)
	*answer = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == `"one"` ||
			r.Header.Get("If-Modified-Since") == "yesterday" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", `"one"`)
		w.Header().Set("Last-Modified", "yesterday")
		fmt.Fprintln(w, "192.0.2.1")
	}
	r, err := f.Fetch(t.Context(), State{})
	if err != nil || len(r.List.Prefixes) != 1 || r.Unchanged {
		t.Fatal(r, err)
	}
	kept := r.State
	if r, err = f.Fetch(t.Context(), kept); err != nil || !r.Unchanged || r.State != kept {
		t.Error(r, err)
	}
	if r, err = f.Fetch(t.Context(), State{Modified: "yesterday"}); err != nil || !r.Unchanged {
		t.Error(r, err)
	}
	*answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }
	if _, err := f.Fetch(t.Context(), State{}); err == nil {
		t.Error("an answer without a list was taken")
	}
}

func TestAnswersThatAreNoList(t *testing.T) {
	s, answer := server(t)
	f := fetcher(t, s.URL)
	redirects := 0
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"an error": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "500"},
		"part of a file": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusPartialContent)
		}, "206"},
		"one that ends": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprintln(w, "192.0.2.1")
		}, "EOF"},
		"redirects without end": {func(w http.ResponseWriter, r *http.Request) {
			redirects++
			http.Redirect(w, r, "/x", http.StatusFound)
		}, "more than 5 redirects"},
		"a redirect elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		}, "not encrypted"},
		"a redirect to a file": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		}, "not encrypted"},
		"a packed list that ends": {func(w http.ResponseWriter, _ *http.Request) {
			w.Write(packed("192.0.2.1\n")[:20])
		}, "EOF"},
	} {
		*answer = test.answer
		if _, err := f.Fetch(t.Context(), State{}); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, wanted %s", name, err, test.want)
		}
	}
	if redirects != maxRedirects+1 {
		t.Errorf("%d redirects were followed", redirects)
	}
	*answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusTooManyRequests)
	}
	var refused *Refused
	if _, err := f.Fetch(t.Context(), State{}); !errors.As(err, &refused) ||
		refused.Retry != 2*time.Minute {
		t.Error(err)
	}
}

func packed(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, text)
	z.Close()
	return b.Bytes()
}

func TestPackedLists(t *testing.T) {
	s, answer := server(t)
	f := fetcher(t, s.URL)
	*answer = func(w http.ResponseWriter, _ *http.Request) { w.Write(packed("192.0.2.1\n")) }
	if r, err := f.Fetch(t.Context(), State{}); err != nil || len(r.List.Prefixes) != 1 {
		t.Error(r, err)
	}
	*answer = func(w http.ResponseWriter, _ *http.Request) { // unpacked by HTTP, and once more
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		z.Write(packed("192.0.2.1\n"))
		z.Close()
	}
	if r, err := f.Fetch(t.Context(), State{}); err != nil || len(r.List.Prefixes) != 1 {
		t.Error(r, err)
	}
}

// endless is a bomb: comments that unpack to more than may be read.
type endless struct{ n int64 }

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '#'
	}
	b[0] = '\n'
	e.n += int64(len(b))
	return len(b), nil
}

func TestABombIsNotUnpackedToItsEnd(t *testing.T) {
	e := &endless{}
	_, err := Read(&bounded{r: e}, of(nil), 10)
	if !errors.Is(err, errTooLarge) || e.n > MaxBytes+1<<20 {
		t.Errorf("%d bytes, %v", e.n, err)
	}
}

func TestCertificatesAreVerified(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "192.0.2.1")
	}))
	s.Config.ErrorLog = nil
	defer s.Close()
	f := fetcher(t, s.URL)
	if _, err := f.Fetch(t.Context(), State{}); err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
}

func TestNoRedirectFromEncryptedToPlain(t *testing.T) {
	plain, answer := server(t)
	*answer = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "192.0.2.1") }
	s := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer s.Close()
	f := fetcher(t, s.URL)
	f.client.Transport = s.Client().Transport
	if _, err := f.Fetch(t.Context(), State{}); err == nil ||
		!strings.Contains(err.Error(), "not encrypted") {
		t.Error(err)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "list")
	f := New(of(func(f *policy.Feed) { f.Path = file }), 1000, "")
	if _, err := f.Fetch(t.Context(), State{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(file, packed("192.0.2.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := f.Fetch(t.Context(), State{})
	if err != nil || len(r.List.Prefixes) != 1 {
		t.Fatal(r, err)
	}
	if r, err = f.Fetch(t.Context(), r.State); err != nil || !r.Unchanged {
		t.Error(r, err)
	}
	for name, make := range map[string]func(string) error{
		"a directory": func(p string) error { return os.Mkdir(p, 0o700) },
		"a fifo":      func(p string) error { return unix.Mkfifo(p, 0o600) },
	} {
		os.Remove(file)
		if err := make(file); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Fetch(t.Context(), State{}); err == nil ||
			!strings.Contains(err.Error(), "no regular file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("192.0.2.0/24 ; x\n2001:db8::-2001:db8::ff\n"), uint8(0))
	f.Add([]byte(`{"cidr":["192.0.2.1",{"cidr":"x"}]}`), uint8(1))
	f.Add([]byte("a,\"192.0.2.1\nb\",c\n"), uint8(2))
	f.Fuzz(func(t *testing.T, text []byte, format uint8) {
		feed := of(nil)
		switch format % 3 {
		case 1:
			feed.Form, feed.Value = listform.Field, "cidr"
		case 2:
			feed.Form, feed.Value = listform.Column, "1"
		}
		l, err := Read(bytes.NewReader(text), feed, 500)
		if err != nil {
			return
		}
		for i, p := range l.Prefixes {
			if p != p.Masked() || p.Addr().Is4In6() || p.Bits() < 8 ||
				i > 0 && l.Prefixes[i-1].Compare(p) >= 0 {
				t.Errorf("%v", p)
			}
		}
	})
}

// TestKeysGoToTheirServerAlone asks with a key and with a password, is redirected, and refused.
func TestKeysGoToTheirServerAlone(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.WriteFile(key, []byte(text), 0o600),
			os.Chmod(key, mode)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string // what the headers of requests held, and to whom they went
	answer := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			user, password, _ := r.BasicAuth()
			got = append(got, fmt.Sprintf("%s:%s%s%s", name, r.Header.Get("Auth-Key"), user,
				password))
			fmt.Fprintln(w, "192.0.2.1")
		}
	}
	other := httptest.NewServer(answer("other"))
	defer other.Close()
	own := httptest.NewServer(nil)
	defer own.Close()
	list, refuse := answer("own"), false
	own.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case refuse:
			http.Error(w, "no", http.StatusForbidden)
		case r.URL.Path == "/other":
			list(httptest.NewRecorder(), r)
			http.Redirect(w, r, other.URL, http.StatusFound)
		case r.URL.Path == "/own":
			http.Redirect(w, r, "/", http.StatusFound)
		default:
			list(w, r)
		}
	})
	header := func(f *policy.Feed) { f.Header, f.Key = "Auth-Key", key }
	basic := func(f *policy.Feed) { f.User, f.Key = "me", key }
	for _, test := range []struct {
		name, path, text string
		mode             os.FileMode
		how              func(*policy.Feed)
		want, err        string
	}{
		{"a key", "/", "abc\n", 0o600, header, "[own:abc]", ""},
		{"a redirect within", "/own", "abc\n", 0o600, header, "[own:abc]", ""},
		{"a redirect away", "/other", "abc\n", 0o600, header, "[own:abc other:]", ""},
		{"a password", "/", "s3cret\n", 0o600, basic, "[own:mes3cret]", ""},
		{"a password away", "/other", "s3cret\n", 0o600, basic, "[own:mes3cret other:]", ""},
		{"others may read it", "/", "abc", 0o604, header, "[]", "chmod 600"},
		{"nothing in it", "/", "\n", 0o600, basic, "[]", "is no secret"},
		{"refused", "/", "abc", 0o600, header, "[]", "refuses what " + key + " holds: 403"},
	} {
		write(test.text, test.mode)
		got, refuse = nil, test.name == "refused"
		f := New(of(func(f *policy.Feed) { f.URL = own.URL + test.path; test.how(f) }), 10,
			"levee/1")
		_, err := f.Fetch(t.Context(), State{})
		f.Close()
		if fmt.Sprint(got) != test.want || (err != nil) != (test.err != "") ||
			err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v, %v", test.name, got, err)
		}
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	f := New(of(func(f *policy.Feed) { f.URL = own.URL; header(f) }), 10, "levee/1")
	defer f.Close()
	if _, err := f.Fetch(t.Context(), State{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
}

// TestTextsOfLists: lines, a column and values of JSON, folded, without comments; a list of more
// than it may have is an error, never a shorter one.
func TestTextsOfLists(t *testing.T) {
	for _, c := range []struct {
		of   policy.Feed
		text string
		want string
	}{
		{policy.Feed{}, "\ufeffA b\r\n# comment\n\n a b \nc#d\n", "a b|c#d"},
		{policy.Feed{Form: listform.Column, Value: "2"}, "# x\n1,One\n2,\"t,wo\"\n", "one|t,wo"},
		{policy.Feed{Form: listform.Field, Value: "h"}, `{"h":"A","x":"B"}{"y":[{"h":["c"]}]}`, "a|c"},
		{policy.Feed{}, "a\nb\nc\n", ErrTooMany.Error()},
		{policy.Feed{}, strings.Repeat("a", maxLine+1), "longer than"},
		{policy.Feed{}, "\n <!doctype HTML>\n<html>", "is a page"},
		{policy.Feed{}, "<HTML>x\n", "is a page"},
		{policy.Feed{}, "a\n<html\n", "<html|a"},
	} {
		in := &reader{of: &c.of, most: 2, fold: strings.ToLower}
		l, err := in.read(strings.NewReader(c.text))
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = strings.Join(slices.Sorted(maps.Keys(l.Texts)), "|")
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%.20q: %q, not %q", c.text, got, c.want)
		}
	}
}

// TestAValueWithoutAnEndIsNoList: a text or a row of a packed list, of 128 MB as a whole list may
// have, took the agent several times that.
func TestAValueWithoutAnEndIsNoList(t *testing.T) {
	long := strings.Repeat("1", maxValue+1<<16)
	cidr := of(func(f *policy.Feed) { f.Form, f.Value = listform.Field, "cidr" })
	column := of(func(f *policy.Feed) { f.Form, f.Value = listform.Column, "1" })
	for name, c := range map[string]struct {
		of   *policy.Feed
		text string
	}{
		"text": {cidr, `{"cidr":"` + long + `"}`}, "number": {cidr, `{"other":` + long + `}`},
		"name": {cidr, `{"` + long + `":1}`}, "field": {column, "192.0.2.1\n\"" + long + "\"\n"},
		"row": {column, strings.Repeat("192.0.2.1,", 1<<17)},
	} {
		_, err := Read(strings.NewReader(c.text), c.of, 10)
		if err == nil || !strings.Contains(err.Error(), "this is no list") {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	many := "[" + strings.Repeat(`{"cidr":"192.0.2.1"},`, 1<<16) + `{"cidr":"192.0.2.2"}]`
	l, err := Read(strings.NewReader(many), cidr, 1<<18)
	if err != nil || len(l.Prefixes) != 2 {
		t.Errorf("of many short ones: %v", err)
	}
}

// TestARedirectDoesNotTellWhereItCameFrom: the path of a list may be a key of whoever reads it.
func TestARedirectDoesNotTellWhereItCameFrom(t *testing.T) {
	s, answer := server(t)
	told := ""
	*answer = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/list" {
			told = r.Header.Get("Referer")
			fmt.Fprintln(w, "192.0.2.1")
			return
		}
		http.Redirect(w, r, "/list", http.StatusFound)
	}
	if _, err := fetcher(t, s.URL+"/secret").Fetch(t.Context(), State{}); err != nil || told != "" {
		t.Errorf("the next server is told %q, %v", told, err)
	}
}
