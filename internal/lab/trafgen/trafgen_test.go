package trafgen

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"levee/internal/packet/template"
)

// frames are the first frames of a configuration.
func frames(t *testing.T, text string, n int) (out [][]byte) {
	t.Helper()
	lines, err := Import("x.cfg", text)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(strings.TrimSpace(lines))
	packets, ds := template.Parse("x", []byte(lines))
	if err := ds.Err(); err != nil {
		t.Fatalf("%s: %v", lines, err)
	}
	c, err := template.Compile(packets, template.Defaults{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		out = append(out, append([]byte(nil), c.Frame(make([]byte, c.Longest()), uint64(i))...))
	}
	return out
}

// checkSum holds the checksum at a byte to the sum of what it covers (RFC 1071): a right one makes
// all ones.
func checkSum(t *testing.T, list [][]byte, cells []cell, at int) {
	t.Helper()
	c := cells[at]
	if at > 0 && cells[at-1].kind == summed { // its second byte
		return
	}
	for _, f := range list {
		sum := uint64(0)
		add := func(b []byte) {
			for i, v := range b {
				sum += uint64(v) << (8 * (1 - i%2))
			}
		}
		switch c.text {
		case "csumip", "csumicmp":
			add(f[c.from : c.to+1])
		case "csumtcp", "csumudp":
			length := len(f) - int(c.to)
			add(f[c.from+12 : c.from+20])
			add([]byte{0, f[c.from+9], byte(length >> 8), byte(length)})
			add(f[c.to:])
		default:
			length := len(f) - int(c.to)
			add(f[c.from+8 : c.from+40])
			add([]byte{0, f[c.from+6], byte(length >> 8), byte(length)})
			add(f[c.to:])
		}
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
		if sum != 0xffff {
			t.Fatalf("%s: the sum is %#x", c.text, sum)
		}
	}
}

// TestBytesAreWhatTheConfigurationSays, for the files in testdata: those that trafgen brings along
// and that its manual has, each of one packet. What is fixed is the same byte, what varies does in
// its bounds, and checksums by functions are right.
func TestBytesAreWhatTheConfigurationSays(t *testing.T) {
	files, err := filepath.Glob("testdata/bytes/*.cfg")
	if err != nil || len(files) < 6 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tokens, err := lex(string(text))
			if err != nil {
				t.Fatal(err)
			}
			all, err := parse(tokens)
			if err != nil || len(all) != 1 {
				t.Fatal(all, err)
			}
			cells := all[0].bytes
			list := frames(t, string(text), 64)
			for i, c := range cells {
				seen := map[byte]bool{}
				for _, f := range list {
					if len(f) != len(cells) {
						t.Fatalf("%d bytes, want %d", len(f), len(cells))
					}
					seen[f[i]] = true
					if c.kind == fixed && f[i] != c.v || c.kind == counted && (f[i] < c.lo ||
						f[i] > c.hi) {
						t.Fatalf("byte %d is %#x, want %+v", i, f[i], c)
					}
				}
				if c.kind == drawn && len(seen) < 20 {
					t.Errorf("byte %d has %d values in 64 packets", i, len(seen))
				}
			}
			for i, c := range cells {
				if c.kind == summed && i+1 < len(cells) && cells[i+1].from == c.from {
					checkSum(t, list, cells, i)
				}
			}
		})
	}
}

// TestHeadersAreWhatTheConfigurationSays, by functions of trafgen.
func TestHeadersAreWhatTheConfigurationSays(t *testing.T) {
	for text, want := range map[string]string{
		`{ eth(da=11:22:33:44:55:66), ipv4(daddr=1.2.3.4) udp(dp=7), "Hello" }`: "ether to " +
			"11:22:33:44:55:66 ipv4 df 0 id 0 to 1.2.3.4 ttl 0 udp from port 0 port 7 payload " +
			`hex "48656c6c6f"`,
		`{ tcp(sp=dinc(1, 13, 2), dport=drnd(80, 100), syn, win=(1 << 4)) }`: "ipv4 df 0 id 0 " +
			"ttl 0 tcp tcp-flags 2 ack-number 0 from port 1-13 counting step 2 port 80-100 " +
			"random seq 0 urgent 0 window 16",
		`{ vlan(id=5, pcp=1), vlan(1ad, id=6), ip6(sa=2001:db8::1, da=drnd(), hl=3), ` +
			`icmpv6(echorequest) }`: "pcp 1 vlan 5 inner-tpid 34984 inner-vlan 6 ipv6 from " +
			"2001:db8::1 to ::/0 random ttl 3 icmp6 type 128",
		`{ arp(reply, sip=10.0.0.1, tip=dinc(0x0a000001, 0x0a0000fe)) }`: "arp op 2 from " +
			"10.0.0.1 to 10.0.0.1-10.0.0.254 counting",
		`{ ipv4(tos=0xb9, flags=3, proto=47, ttl=64, da=192.0.2.1), 1, 2 }`: "ipv4 dscp 46 ecn 1 " +
			`reserved 0 proto 47 df 1 id 0 mf 1 to 192.0.2.1 ttl 64 payload hex "0102"`,
		"{ icmp4(echorequest, seq=1, id=1326) } # done\n{ udp() }": "ipv4 df 0 id 0 ttl 0 icmp " +
			"type 8 icmp-id 1326 icmp-seq 1\nipv4 df 0 id 0 ttl 0 udp from port 0 port 0",
	} {
		got, err := Import("x", text)
		if err != nil || strings.TrimSpace(got) != want {
			t.Errorf("%s: %v\n got %s\nwant %s", text, err, got, want)
			continue
		}
		frames(t, text, 3)
	}
}

// TestTheExampleOfTrafgenIsImported: what `trafgen --example` prints, where it is installed.
func TestTheExampleOfTrafgenIsImported(t *testing.T) {
	path, err := exec.LookPath("trafgen")
	if err != nil {
		t.Skip("trafgen (Debian's package netsniff-ng) is not at hand: the " +
			"configurations above have what its example has")
	}
	text, err := exec.Command(path, "--example").Output()
	if len(text) == 0 { // its exit status is 1, with the example too
		t.Fatal(err)
	}
	f := frames(t, string(text), 2)
	if len(f[0]) != 73 || string(f[0][66:]) != "gotcha!" || f[0][47] != 0x42 ||
		bytes.Equal(f[0], f[1]) {
		t.Errorf("%d bytes: %x", len(f[0]), f[0])
	}
}

// TestWhatCannotBeImportedIsSaid with the line and the word.
func TestWhatCannotBeImportedIsSaid(t *testing.T) {
	head := "{ fill(2, 12), c16(0x0800),\n"
	for text, want := range map[string]string{
		"":                                "x:1: {: there is no packet",
		"{ }":                             "x:1: {: the packet is empty",
		"{ 1, 2":                          "x:1: {: this packet is not closed by }",
		"{ 1, 2 }":                        "x:1: {: a frame of 2 bytes",
		"{ 300 }":                         "x:1: 300: a byte is 0 to 255",
		"\n{ zap(3) }":                    "x:2: zap: this function cannot be imported",
		"{ fill(1) }":                     "x:1: fill: 1 arguments",
		"{ fill(1, 99999999999) }":        "x:1: fill: 99999999999 bytes",
		"{ c8(300) }":                     "x:1: c8: 300 does not fit 1 bytes",
		"{ c16(1 + 2 * 3) }":              "x:1: *: write parentheses around + or *",
		"{ c16(1 / 0) }":                  "x:1: /: a division by 0",
		"{ c16(NOBODY) }":                 "x:1: NOBODY: this is no number",
		"{ c16((1 }":                      "not closed",
		"cpu(1): { 1 }":                   "x:1: cpu: packets of some cores",
		"#include \"mine.h\"\n{ 1 }":      `x:1: "mine.h": only <stddef.h>`,
		"#define F(x) x\n{ F(1) }":        "x:1: F: names with arguments",
		"#define A B\n#define B A\n{ A }": "it stands for itself",
		"{ \"open }":                      "the quotes are not closed",
		"hello":                           "x:1: hello: a packet begins with {",
		"{ mpls(label=3), udp() }":        "x:1: mpls: this function cannot be imported",
		"{ ipv4(da[0]=dinc()) }":          "x:1: da: a part of a field cannot be imported",
		"{ ipv4(zz=1) }":                  "x:1: zz: this field of ipv4() cannot be imported",
		"{ ipv4(ttl=300) }":               `x:1: ttl: "300" is no number up to 255`,
		"{ ipv4(da=::1) }":                "is no address of this family",
		"{ ipv4(da=dinc()) }":             "x:1: da: dinc() of an address",
		"{ ipv4(ttl=zap(1, 2)) }":         "x:1: ttl: zap: it varies by",
		"{ ipv4(ttl=drnd(9, 3)) }":        "x:1: ttl: from 9 to 3",
		"{ tcp(syn=drnd()) }":             "x:1: syn: a flag cannot vary",
		"{ udp(), ipv4() }":               "x:1: ipv4: this header cannot stand behind",
		"{ vlan(), vlan(), vlan() }":      "more than two VLAN tags",
		"{ udp(), drnd(3) }":              "x:1: drnd: a payload that varies",
		"{ 1, udp() }":                    "x:1: udp: a header behind bytes",
		head + "0x46, drnd(30) }":         "x:2: 0x46: version and header length are 0x46",
		head + "drnd(30) }":               "x:2: drnd: version and header length cannot vary",
		head + "0x45, 0, c16(40), drnd(2), 0, 0, 64, 17, csumip(0, 5) }": "x:2: csumip: " +
			"csumip(0, 5) is another checksum",
		head + "0x45, 0, c16(28), drnd(1), 1, 0, 0, 64, 17, c16(0) }": "x:2: 1: the " +
			"identification varies in its front alone",
		"{ fill(2, 12), c16(0x86dd), 0x60, 0, 0, 0, c16(8), 17, 64, fill(1, 32), c16(1), c16(2), " +
			"c16(8), csumudp(14, 54) }": "x:1: csumudp: csumudp(14, 54) is another checksum",
		head + "0x45, 0, c16(28), drnd(2) }":                         "the packet ends within",
		strings.Repeat("{ c16(", 1) + strings.Repeat("(", 200) + "1": "parentheses in each other",
	} {
		got, err := Import("x", text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %q; want %q", text, err, got, want)
		}
	}
}

// TestATextKeepsWhatLooksLikeAComment: that would be left out silently.
func TestATextKeepsWhatLooksLikeAComment(t *testing.T) {
	for _, text := range []string{"GET /* HTTP", "a /* b */ c", "http://x/", `a "/*" b`} {
		f := frames(t, "{ fill(2, 12), c16(0x88b5), /* it's \" */ \""+
			strings.ReplaceAll(text, `"`, `\"`)+"\" } // \" here", 1)
		if got := string(f[0][14:]); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// TestAShortTextIsNoLongWork: names that stand for many names each, the last for nothing, and bytes
// that a few letters ask for.
func TestAShortTextIsNoLongWork(t *testing.T) {
	many := "#define N0\n"
	for i := range maxDepth - 1 {
		many += fmt.Sprintf("#define N%d %s\n", i+1, strings.Repeat(fmt.Sprintf("N%d ", i), 100))
	}
	for text, want := range map[string]string{
		many + "{ N15 1 }":                         "x:17: N", // a word of that line
		strings.Repeat("{fill(0,9018)}\n", 10_000): "x:466: {: the packets have more than",
	} {
		if _, err := Import("x", text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40q: %v; want %q", text, err, want)
		}
	}
}

// FuzzImport: what is imported can be read as a template, and no text ends the program.
func FuzzImport(f *testing.F) {
	files, _ := filepath.Glob("testdata/bytes/*.cfg")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("{ eth(da=11:22:33:44:55:66), ipv4(da=1.2.3.4, ttl=dinc(1, 9)), tcp(syn), 1, 2 }")
	f.Fuzz(func(t *testing.T, text string) {
		lines, err := Import("x", text)
		if err != nil {
			return
		}
		if _, ds := template.Parse("x", []byte(lines)); ds.HasErrors() {
			t.Errorf("%q became %q: %v", text, lines, ds.Err())
		}
	})
}

// TestEveryNameCanBeRead: of the table of stddef.h.
func TestEveryNameCanBeRead(t *testing.T) {
	for name, text := range stddef {
		tokens, err := lex("{ " + name + " }")
		if err == nil && len(tokens) > 2 {
			_, err = split(1, text)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
