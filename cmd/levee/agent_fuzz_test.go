//go:build !nofuzz

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"levee/internal/agent/api/apitest"
)

// The library of schemas takes 3 ms and 21,000 allocations of each start of this binary, which
// stories start as levee hundreds of times: -tags nofuzz is for where that counts.
func init() { programs["fuzzapi"] = fuzzAPI }

// passing are numbers that change by themselves.
var passing = regexp.MustCompile(`"(lease_seconds|packets|bytes)":[0-9.e+]+`)

// fuzzAPI is the command `fuzzapi -for TIME URL VIEWER OPERATOR ADMIN` of the stories, with a file
// that has a token for each role.
func fuzzAPI() {
	lasts := flag.Duration("for", time.Second, "")
	flag.Parse()
	url, tokens := flag.Arg(0), map[string]string{"viewer": readToken(flag.Arg(1)),
		"operator": readToken(flag.Arg(2)), "admin": readToken(flag.Arg(3))}
	state := func() (string, error) {
		var b strings.Builder
		for _, path := range []string{"leases", "sets/abusers/entries", "policies"} {
			req, err := http.NewRequest(http.MethodGet, url+"/api/v1/"+path, nil)
			if err != nil {
				return "", err
			}
			req.Header.Set("Authorization", "Bearer "+tokens["admin"])
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return "", err
			}
			text, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != http.StatusOK {
				return "", fmt.Errorf("%s: %d %s %w", path, res.StatusCode, text, err)
			}
			b.Write(passing.ReplaceAll(text, nil))
		}
		return b.String(), nil
	}
	seed := uint64(time.Now().UnixNano())
	const entries, of = "/api/v1/sets/{set}/entries", "/api/v1/sets/abusers/entries"
	calls := []apitest.Call{
		{Method: "POST", Path: entries, Role: "operator", Target: of,
			Body: `{"entries":["203.0.113.50"],"lease":"10m"}`},
		{Method: "GET", Path: entries, Role: "viewer", Target: of},
		{Method: "DELETE", Path: entries, Role: "operator", Target: of + "?entry=203.0.113.50"}}
	rep, err := apitest.Fuzz(&apitest.Target{URL: url, Tokens: tokens, State: state, Calls: calls,
		Values: map[string][]string{"set": {"abusers"}, "dev": {"lv0"},
			"entries": {"203.0.113.9", "198.51.100.0/24", "2001:db8::1"},
			"entry":   {"203.0.113.9", "198.51.100.0/24"}, "lease": {"10m", "forever"},
			"text": {"drop tcp\ndefault pass\n", "set x = file(\"/etc/shadow\")\n"}}}, seed, *lasts)
	if err != nil {
		fail(fmt.Errorf("seed %d: %w", seed, err))
	}
	text, _ := json.Marshal(rep)
	fmt.Printf("seed %d: %s\n", seed, text)
	if len(rep.Faults) > 0 {
		os.Exit(1)
	}
}
