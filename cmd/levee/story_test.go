package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	holdsSession = regexp.MustCompile(`(?m)^.* (?:sshd|over) \S*?(\d+\.\d+\.\d+)\.\d+:\d+`)
	namesNet     = regexp.MustCompile(`(?m)^netns (\d+\.\d+\.\d+)$`)
	hasAddress   = regexp.MustCompile(`addr add (\d+\.\d+\.\d+)\.\d+/`)
	hasNet       = regexp.MustCompile(`(?m)^netns`)
)

// TestStoriesWithSessionsHaveNetworksOfTheirOwn: levee sees the sessions of all namespaces, and
// keeps a policy or a live rule from cutting them. A story was refused for the session of another
// that ran beside it.
func TestStoriesWithSessionsHaveNetworksOfTheirOwn(t *testing.T) {
	sessions, nets := map[string]string{}, map[string][]string{}
	for _, path := range scripts(t) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text, _, _ := strings.Cut(string(b), "\n-- ")
		name := filepath.Base(path)
		of := map[string]bool{"10.77.0": hasNet.MatchString(text) && !namesNet.MatchString(text)}
		for _, has := range []*regexp.Regexp{namesNet, hasAddress} {
			for _, m := range has.FindAllStringSubmatch(text, -1) {
				of[m[1]] = true
			}
		}
		for net, is := range of {
			if is {
				nets[net] = append(nets[net], name)
			}
		}
		for _, m := range holdsSession.FindAllStringSubmatch(text, -1) {
			sessions[m[1]] = name
		}
	}
	if len(sessions) < 5 {
		t.Errorf("only %v: do stories still hold sessions so?", sessions)
	}
	for net, story := range sessions {
		for _, other := range nets[net] {
			if other != story {
				t.Errorf("%s and %s have %s.0/24, and the first holds a session there",
					story, other, net)
			}
		}
	}
}
