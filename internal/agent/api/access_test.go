package api

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestASessionThatIsUsedGoesOn: a page on a wall went dark after a week. Each cookie of the session
// ends when somebody logs out, copies too.
func TestASessionThatIsUsedGoesOn(t *testing.T) {
	_, url, _, tokens, _ := start(t)
	text, err := tokens.Add("wall", Viewer, 0)
	if err != nil {
		t.Fatal(err)
	}
	res, _ := ask(t, "POST", url+"/api/v1/login", `{"token":"`+text+`"}`)
	first := res.Cookies()[0]
	res, text = ask(t, "POST", url+"/api/v1/renew", "{}", "Cookie", first.Name+"="+first.Value)
	if res.StatusCode != 200 || len(res.Cookies()) != 1 {
		t.Fatal(res.Status, text)
	}
	second := res.Cookies()[0]
	if time.Until(second.Expires) < sessionLasts-time.Minute {
		t.Errorf("it ends %v", second.Expires)
	}
	role := func(c *http.Cookie) string {
		_, text := ask(t, "GET", url+"/api/v1/me", "", "Cookie", c.Name+"="+c.Value)
		return text
	}
	for i, c := range []*http.Cookie{first, second} {
		if !strings.Contains(role(c), `"viewer"`) {
			t.Errorf("cookie %d: %s", i, role(c))
		}
	}
	ask(t, "POST", url+"/api/v1/logout", "{}", "Cookie", second.Name+"="+second.Value)
	for i, c := range []*http.Cookie{first, second} {
		if !strings.Contains(role(c), `"anybody"`) {
			t.Errorf("cookie %d after the logout: %s", i, role(c))
		}
	}
	for what, cookie := range map[string]string{"an ended session": second.Value, "rubbish": "x"} {
		res, _ := ask(t, "POST", url+"/api/v1/renew", "{}", "Cookie", second.Name+"="+cookie)
		if res.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s is renewed: %s", what, res.Status)
		}
	}
}

func TestATokenThatHasEndedIsRenewed(t *testing.T) {
	_, url, _, tokens, _ := start(t)
	text, err := tokens.Add("wall", Viewer, time.Nanosecond)
	if err != nil {
		t.Fatal(err)
	}
	status := func() int {
		res, _ := ask(t, "GET", url+"/api/v1/me", "", "Authorization", "Bearer "+text)
		return res.StatusCode
	}
	if got := status(); got != http.StatusUnauthorized {
		t.Errorf("a token that has ended: %d", got)
	}
	if err := tokens.Renew("wall", 0); err != nil || status() != http.StatusOK {
		t.Errorf("%v, %d", err, status())
	}
	if err := tokens.Renew("nobody", 0); !errors.Is(err, errNoToken) {
		t.Error(err)
	}
}

func TestACookieStandsForATokenUntilThatIsRevoked(t *testing.T) {
	_, url, _, tokens, _ := start(t)
	token := add(t, tokens, "page", Viewer)
	res, text := ask(t, "POST", url+"/api/v1/login", `{"token":"`+token+`"}`)
	if res.StatusCode != 200 || len(res.Cookies()) != 1 {
		t.Fatal(res.Status, text)
	}
	c := res.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Secure ||
		strings.Contains(c.Value, token) || time.Until(c.Expires) > time.Hour {
		t.Errorf("%+v", c)
	}
	cookie := c.Name + "=" + c.Value
	role := func(cookie string) string {
		_, text := ask(t, "GET", url+"/api/v1/me", "", "Cookie", cookie)
		var me struct{ Role string }
		if err := json.Unmarshal([]byte(text), &me); err != nil {
			t.Fatal(text)
		}
		return me.Role
	}
	if r := role(cookie); r != "viewer" {
		t.Error(r)
	}
	name, rest, _ := strings.Cut(c.Value, ".")
	for what, value := range map[string]string{"of another name": "boss." + rest, "empty": "",
		"without an end": name, "that ends later": strings.Replace(c.Value, ".", ".z", 1),
		"cut": c.Value[:len(c.Value)-1], "of rubbish": "a.b.c", "of dots": "..."} {
		if r := role(c.Name + "=" + value); r != "anybody" {
			t.Errorf("a cookie %s makes its caller %s", what, r)
		}
	}
	// the page itself comes, so that it can ask for a token
	if res, _ := ask(t, "GET", url+"/", "", "Cookie", c.Name+"=x"); res.StatusCode != 200 {
		t.Error(res.Status)
	}
	if err := tokens.Remove("page"); err != nil {
		t.Fatal(err)
	}
	if r := role(cookie); r != "anybody" {
		t.Error("after the token was revoked:", r)
	}
	// a new token of the same name is another one
	add(t, tokens, "page", Admin)
	if r := role(cookie); r != "anybody" {
		t.Error("with a new token of the name:", r)
	}
	if res, text := ask(t, "POST", url+"/api/v1/login", `{"token":"`+token+`"}`); res.StatusCode != 401 {
		t.Error(res.Status, text)
	}
}

func TestTokensEndAndAreStoredAsHashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "tokens.json")
		tokens := OpenTokens(path)
		text := add(t, tokens, "a", Operator)
		stored, err := os.ReadFile(path)
		if err != nil || strings.Contains(string(stored), strings.TrimPrefix(text, tokenPrefix)) {
			t.Errorf("%s %v", stored, err)
		}
		if st, _ := os.Stat(path); st.Mode().Perm() != 0o600 {
			t.Error(st.Mode())
		}
		if got, err := OpenTokens(path).find(text); err != nil || got.Name != "a" ||
			got.Role != Operator {
			t.Error(got, err)
		}
		if _, err := tokens.Add("a", Viewer, 0); err == nil {
			t.Error("two of one name")
		}
		short, err := tokens.Add("short", Viewer, time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // ends are whole seconds
		if _, err := tokens.find(short); err == nil || !strings.Contains(err.Error(), "has ended") {
			t.Error(err)
		}
		if err := tokens.Remove("nobody"); !errors.Is(err, errNoToken) {
			t.Error(err)
		}
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := tokens.find(text); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Error("a damaged file lets in:", err)
		}
		if _, err := tokens.Add("b", Viewer, 0); err == nil {
			t.Error("a damaged file is overwritten")
		}
	})
}

func TestTheUnixSocketKnowsRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: the socket lets nobody else in")
	}
	_, _, socket, _, audit := start(t)
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string,
		string) (net.Conn, error) {
		return net.Dial("unix", socket)
	}}}
	defer client.CloseIdleConnections()
	res, err := client.Post("http://agent/api/v1/sets/a", "application/json",
		strings.NewReader(`{"entries":["x"]}`))
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	res.Body.Close()
	records := lines(t, audit, 1)
	if r := records[0]; r.Who != "root" || r.Role != Admin || r.From != "unix" || r.Status != 200 ||
		string(r.What) != `{"entries":["x"]}` || r.Route != "post-sets-set" {
		t.Errorf("%+v", r)
	}
}

// selfSigned writes a certificate for a name, and its key.
func selfSigned(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()),
		DNSNames:  []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestListenersThatAreRefused(t *testing.T) {
	cert, key := selfSigned(t, t.TempDir(), "levee.example")
	for says, c := range map[string][3]string{
		"is no loopback address":      {"0.0.0.0:0", "", ""},
		"loopback address":            {"[2001:db8::1]:0", "", ""},
		"is no ADDRESS:PORT":          {"127.0.0.1", "", ""},
		"is no address":               {"localhost:0", "", ""},
		"is no port":                  {"127.0.0.1:http", "", ""},
		"needs both files":            {"127.0.0.1:0", cert, ""},
		"read the certificate":        {"127.0.0.1:0", key, cert},
		"read the certificate " + key: {"127.0.0.1:0", key, key},
	} {
		l, err := Listen(c[0], c[1], c[2], nil)
		if err == nil {
			l.Close()
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func TestTLSWithNamesOfTheCertificateWhichIsRenewed(t *testing.T) {
	dir := t.TempDir()
	cert, key := selfSigned(t, dir, "levee.example")
	r := &room{}
	tokens := OpenTokens(filepath.Join(dir, "tokens.json"))
	s, err := New(Options{Routes: r.routes(), Tokens: tokens, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen("127.0.0.1:0", cert, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(t.Context(), l)
	token := add(t, tokens, "a", Viewer)
	get := func(host string) (*http.Response, *x509.Certificate) {
		req, err := http.NewRequest("POST", l.URL()+"api/v1/login",
			strings.NewReader(`{"token":"`+token+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Content-Type", "application/json")
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res, res.TLS.PeerCertificates[0]
	}
	res, first := get("levee.example")
	if c := res.Cookies(); res.StatusCode != 200 || len(c) != 1 || c[0].Name != secureCookie ||
		!c[0].Secure {
		t.Error(res.Status, c)
	}
	if res, _ := get("other.example"); res.StatusCode != http.StatusMisdirectedRequest {
		t.Error(res.Status)
	}
	selfSigned(t, dir, "renewed.example")
	later := time.Now().Add(time.Second) // the same clock tick would hide it
	for _, f := range []string{cert, key} {
		if err := os.Chtimes(f, later, later); err != nil {
			t.Fatal(err)
		}
	}
	l.tls.mu.Lock()
	l.tls.looked = time.Time{} // a minute has passed
	l.tls.mu.Unlock()
	if res, second := get("renewed.example"); res.StatusCode != 200 || second.Equal(first) {
		t.Error(res.Status, second.DNSNames)
	}
}

type tick struct {
	N int `json:"n"`
}

func TestStreamsEndWithTheirCallersAndAreBounded(t *testing.T) {
	running := make(chan int, 100)
	s, err := New(Options{Log: t.Logf, Routes: []Route{Stream("/api/v1/ticks", Anybody, "Ticks.",
		func(ctx context.Context, after uint64, send func(uint64, *tick) error) {
			running <- 1
			for n := after + 1; send(n, &tick{int(n)}) == nil && n < after+3; n++ {
			}
			<-ctx.Done()
			running <- -1
		})}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen("127.0.0.1:0", "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(t.Context(), l)
	open := func() *http.Response {
		req, err := http.NewRequest("GET", l.URL()+"api/v1/ticks", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Last-Event-ID", "40")
		res, err := (&http.Transport{}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	var all []*http.Response
	for range maxOwnStreams {
		res := open()
		defer res.Body.Close()
		all = append(all, res)
		<-running
	}
	if res := open(); res.StatusCode != http.StatusServiceUnavailable {
		t.Error("one more:", res.Status)
		res.Body.Close()
	}
	r := bufio.NewReader(all[0].Body)
	for _, want := range []string{": levee", "", "id: 41", `data: {"n":41}`, "", "id: 42"} {
		if line, err := r.ReadString('\n'); err != nil || strings.TrimSuffix(line, "\n") != want {
			t.Fatalf("%q %v, want %q", line, err, want)
		}
	}
	all[0].Body.Close()
	if n := <-running; n != -1 {
		t.Error("it goes on without its caller")
	}
}

// TestTheDocumentSaysHowStreamsGoOn: it did not tell of the header by which a caller that has lost
// its stream misses nothing.
func TestTheDocumentSaysHowStreamsGoOn(t *testing.T) {
	s, err := New(Options{Log: t.Logf, Routes: []Route{Stream("/api/v1/ticks", Anybody, "Ticks.",
		func(context.Context, uint64, func(uint64, *tick) error) {})}})
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name, In string
				Schema   struct {
					Type    string
					Minimum *float64
				}
			}
		}
	}
	if err := json.Unmarshal(s.Document(), &doc); err != nil {
		t.Fatal(err)
	}
	all := doc.Paths["/api/v1/ticks"]["get"].Parameters
	if len(all) != 1 || all[0].Name != "Last-Event-ID" || all[0].In != "header" ||
		all[0].Schema.Type != "integer" || all[0].Schema.Minimum == nil {
		t.Errorf("%+v", all)
	}
}

// TestOneViewerTakesNotAllStreams: 32 streams of one token kept everybody else out.
func TestOneViewerTakesNotAllStreams(t *testing.T) {
	if 2*maxOwnStreams > maxStreams {
		t.Errorf("one of two viewers has %d of %d streams", maxOwnStreams, maxStreams)
	}
	s := &streams{own: map[string]int{}}
	begin := func(name string, role Role) bool {
		return s.begin(&Caller{Name: name, Role: role}) == 0
	}
	for i := range 2 * maxOwnStreams {
		if got := begin("wall", Viewer); got != (i < maxOwnStreams) {
			t.Errorf("stream %d of one viewer: %v", i, got)
		}
	}
	for i := range 2 * maxStreams {
		begin(fmt.Sprint("viewer", i), Viewer)
	}
	if s.all != maxStreams || begin("late", Viewer) {
		t.Errorf("viewers have %d streams", s.all)
	}
	if !begin("root", Admin) {
		t.Error("viewers keep an admin out")
	}
	s.end(&Caller{Name: "wall", Role: Viewer})
	if !begin("late", Viewer) {
		t.Error("a stream that has ended is counted")
	}
}

// TestALogoutEndsTheCookie: a copy of it was valid until it ran out.
func TestALogoutEndsTheCookie(t *testing.T) {
	_, url, _, tokens, _ := start(t)
	token := add(t, tokens, "page", Viewer)
	var cookies []string
	for range 2 {
		res, text := ask(t, "POST", url+"/api/v1/login", `{"token":"`+token+`"}`)
		if res.StatusCode != 200 || len(res.Cookies()) != 1 {
			t.Fatal(res.Status, text)
		}
		cookies = append(cookies, res.Cookies()[0].Name+"="+res.Cookies()[0].Value)
	}
	if res, text := ask(t, "POST", url+"/api/v1/logout", "{}", "Cookie",
		cookies[0]); res.StatusCode != 200 {
		t.Fatal(res.Status, text)
	}
	for _, when := range []string{"now", "after a restart"} {
		_, old := ask(t, "GET", url+"/api/v1/me", "", "Cookie", cookies[0])
		_, other := ask(t, "GET", url+"/api/v1/me", "", "Cookie", cookies[1])
		if !strings.Contains(old, "anybody") || !strings.Contains(other, "viewer") {
			t.Errorf("%s: of the one who logged out %s; of another session %s", when, old, other)
		}
		tokens.mu.Lock()
		tokens.over, tokens.stamp = nil, nil // what is on the disk is left
		tokens.mu.Unlock()
	}
}

// TestSlowCallersHoldUpNobody: 200 halves of requests kept an admin out for five seconds.
func TestSlowCallersHoldUpNobody(t *testing.T) {
	_, url, _, _, _ := start(t)
	for range maxConnections + 72 {
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: ")
	}
	if res, _ := ask(t, "GET", url+"/", ""); res.StatusCode != 200 {
		t.Error(res.Status)
	}
}
