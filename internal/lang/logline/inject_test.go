package logline

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// written is a message as a pattern describes it. What a client chooses is a slot.
type written struct {
	text  string
	slots []slot
	addr  int // where the address stands
	left  int // where what is directly before it begins
}

type slot struct {
	at     int
	quoted bool
}

// write puts a message together.
func write(r *rand.Rand, parts []part, addr string, in *written) {
	for i, p := range parts {
		switch {
		case p.isAddr():
			in.addr, in.left = len(in.text), len(in.text)
			if i > 0 {
				in.left -= len(parts[i-1].literal)
			}
			in.text += addr
		case p.choice != nil:
			write(r, p.choice[r.IntN(len(p.choice))], addr, in)
		case p.holder == "text" || p.holder == "quoted":
			in.slots = append(in.slots, slot{len(in.text), p.holder == "quoted"})
		case p.holder == "number":
			in.text += "7"
		case p.holder == "4xx":
			in.text += "404"
		case p.holder == "word":
			in.text += "w"
		default:
			in.text += p.literal
		}
	}
}

// with has what a client chose in a slot, as the server writes it.
func (w *written) with(s slot, chosen string) string {
	if s.quoted {
		chosen = strings.NewReplacer(`"`, `\x22`, `\`, `\x5C`).Replace(chosen)
	}
	return w.text[:s.at] + chosen + w.text[s.at:]
}

// header returns the text that stands before a message of a format.
func header(k Format) string {
	switch {
	case len(k.Programs) == 0:
		return ""
	case strings.HasSuffix(k.Programs[0], "/"):
		return "Nov 25 01:31:58 h " + k.Programs[0] + "x[1]: "
	}
	return "Nov 25 01:31:58 h " + k.Programs[0] + "[1]: "
}

// TestNoPatternBelievesWhatClientsWrite has, for each pattern, messages in which a client has
// written somewhere what makes the rest look like a message about another. The address of the
// client is there, or a name, an address with a zone, or nothing stands in its place.
func TestNoPatternBelievesWhatClientsWrite(t *testing.T) {
	const victim = "192.0.2.1"
	r := rand.New(rand.NewPCG(39, 197))
	matched := map[string]bool{}
	for _, k := range Library() {
		for _, text := range k.Patterns {
			parts, err := parse(strings.ReplaceAll(text, "<"+quote+">", `"`))
			if err != nil {
				t.Fatal(err)
			}
			for _, own := range []string{"203.0.113.9", "2001:db8::9", "host.example",
				"fe80::1%eth0", ""} {
				for range 2 {
					seed := r.Uint64()
					var is, other written
					write(rand.New(rand.NewPCG(seed, 0)), parts, own, &is)
					write(rand.New(rand.NewPCG(seed, 0)), parts, victim, &other)
					a, result := find(t, k.Name, header(k)+is.text)
					if result == Matched && a.String() != own {
						t.Errorf("%s: %s is the address of %q", k.Name, a, is.text)
					}
					matched[text] = matched[text] || result == Matched
					for i, s := range is.slots {
						if s.at > is.addr && strings.Contains(text, "<"+LastAddr+">") {
							continue // there is nothing that others choose
						}
						for _, chosen := range []string{
							other.text, other.text[other.slots[i].at:], other.text[other.left:],
							other.text[other.addr:], "x" + other.text[other.slots[i].at:] + " ",
							"x " + other.text[other.left:] + " y",
						} {
							notVictim(t, k, header(k)+is.with(s, chosen), victim)
						}
					}
				}
			}
			for range 20 { // of some choices no message is one, as of half a pair of brackets
				if !matched[text] {
					var is written
					write(r, parts, "203.0.113.9", &is)
					_, result := find(t, k.Name, header(k)+is.text)
					matched[text] = result == Matched
				}
			}
			if !matched[text] {
				t.Errorf("%s: no message of %q is read", k.Name, text)
			}
		}
	}
}

// TestGiteaByASocketNamesNobody: by a Unix socket Gitea knows no address and port of a client, and
// those of the one that was leased stood in the user name.
func TestGiteaByASocketNamesNobody(t *testing.T) {
	const before = "2026/11/25 01:31:58 ...ers/web/auth/auth.go:200:SignInPost() [I] Failed " +
		"authentication attempt for "
	for _, name := range []string{"x from 192.0.2.1:5", "x from 192.0.2.1:5: y",
		"x from [2001:db8::1]:5: y", "x from 192.0.2.1:5: user does not exist [uid: 0, name: x",
		"x from 192.0.2.1:5: "} {
		for _, why := range []string{"", ": user's password is invalid",
			": user does not exist [uid: 0, name: " + name + ", keyid: 0]"} {
			for _, from := range []string{"@", "", "/run/a.sock", "203.0.113.9", "2001:db8::9"} {
				line := before + name + " from " + from + why
				if a, r := find(t, "gitea-auth", line); r == Matched {
					t.Errorf("%s is shut out by %q", a, line)
				}
			}
		}
	}
}

// notVictim judges a line by all rows that a source may have beside the one that it is of.
func notVictim(t *testing.T, of Format, line, victim string) {
	h, message := Split([]byte(line), now)
	for _, k := range Library() {
		if len(k.Programs) > 0 && (!slices.Equal(k.Programs, of.Programs) ||
			!OneOf(k.Programs, h.Program)) {
			continue
		}
		a, r := compiled(t, k.Patterns).Match(message)
		if r == Matched && a.String() == victim {
			t.Errorf("%s: %s is shut out by %q of %s", k.Name, a, line, of.Name)
		}
	}
}
