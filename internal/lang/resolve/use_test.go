package resolve

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"levee/internal/lang/policy"
	"levee/internal/lang/setfile"
)

// TestAPolicyIsReadAgainWithItsProfiles: what a policy in force was made of is kept with it, so
// that another version of a profile, or none, changes nothing.
func TestAPolicyIsReadAgainWithItsProfiles(t *testing.T) {
	const own = `profile game 1 {
    about "a game"
    parameter port ports { 7777 } "where it listens"
}
set $friends = { 192.0.2.0/24 }
pass udp port $port from $friends as "friend"
`
	src := []byte("use \"game.profile\" port 8000\nuse source-engine port 9000\ndefault drop\n")
	rec := &setfile.Recording{}
	shipped := setfile.In(".")
	p, ds := Parse("edge.levee", src, rec.Through(func(path string) (io.ReadCloser, error) {
		if path == "game.profile" {
			return io.NopCloser(strings.NewReader(own)), nil
		}
		return shipped(path)
	}))
	if p == nil {
		t.Fatal(ds)
	}
	if got := len(rec.Files()); got != 2 {
		t.Fatalf("%d files are kept", got)
	}
	again, ds := Parse("edge.levee", src, setfile.Recorded(rec.Files()))
	if again == nil {
		t.Fatal(ds)
	}
	if got, want := describe(again), describe(p); got != want {
		t.Errorf("read again it is\n%s\nnot\n%s", got, want)
	}
	if at := p.Rules[0].Pos; at != (policy.Pos{Line: 1, Col: 1}) ||
		p.Rules[0].Label != "game/friend" {
		t.Errorf("the first rule is %q in %v", p.Rules[0].Label, at)
	}
	whole, err := Whole("edge.levee", src, rec.Files())
	if err != nil {
		t.Fatal(err)
	}
	alone, ds := Parse("edge.levee", whole, nil)
	if alone == nil {
		t.Fatalf("%v\n%s", ds, whole)
	}
	if len(alone.Slots()) != len(p.Slots()) {
		t.Errorf("whole it has %d slots, not %d", len(alone.Slots()), len(p.Slots()))
	}
	for i, r := range alone.Rules {
		if r.ID != p.Rules[i].ID {
			t.Errorf("whole, rule %d is %s, not %s", i, r.ID, p.Rules[i].ID)
		}
	}
}

// TestProfilesOfLeveesNeedNoFiles: whoever reads no files has levee's profiles, and no others.
func TestProfilesOfLeveesNeedNoFiles(t *testing.T) {
	if p, ds := Parse("a", []byte("use source-engine\ndefault drop\n"), nil); p == nil {
		t.Error(ds)
	}
	if p, _ := Parse("a", []byte("use \"x.profile\"\ndefault drop\n"), nil); p != nil {
		t.Error("a file was read")
	}
}

// TestRepliesAreToldByWhatTheyLack: a reply may be told by bytes that it does not have.
func TestRepliesAreToldByWhatTheyLack(t *testing.T) {
	for text, want := range map[string]string{
		"reply not payload at 5 33494f5a":           "",
		"reply not payload at 5 0102030405060708":   "",
		"reply not payload at 5 010203040506070809": "at most 8 bytes",
	} {
		src := "prove \"a\" udp port 27015 " + text + " echo 4 bytes at 5 in request at 5\n" +
			"pass udp proven flow\ndefault drop\n"
		p, ds := Parse("a", []byte(src), nil)
		if want == "" {
			if p == nil {
				t.Error(ds)
			} else if r := p.Proves[0].Reply[0]; !r.Not {
				t.Errorf("%s: %+v", text, r)
			}
		} else if p != nil || !strings.Contains(ds.Err().Error(), want) {
			t.Errorf("%s: %v", text, ds)
		}
	}
}

// TestUsesCountTogether: a list that each rule of a profile has counted for each use by itself, so
// that 64 of them had 268 million elements in memory before anybody refused them.
func TestUsesCountTogether(t *testing.T) {
	var profile, src strings.Builder
	profile.WriteString("profile p 1 {\n    about \"x\"\n" +
		"    parameter a addresses { 192.0.2.1 } \"who\"\n}\n")
	for range 60 {
		profile.WriteString("drop from $a as \"r\"\n")
	}
	list := strings.Repeat("192.0.2.1, ", 1200) + "192.0.2.1"
	for i := range 60 {
		fmt.Fprintf(&src, "use \"p\" a { %s } as \"x%d\"\n", list, i)
	}
	_, ds := Parse("edge.levee", []byte(src.String()+"default drop\n"),
		func(string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(profile.String())), nil
		})
	if text := ds.Err(); text == nil || !strings.Contains(text.Error(),
		"the policy has more than 4194304 statements, terms, elements and comments") {
		t.Errorf("%.300v", text)
	}
}
