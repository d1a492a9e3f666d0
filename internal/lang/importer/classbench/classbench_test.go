package classbench

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"levee/internal/lang/importer"
)

// one is the policy line and the notes of a set of one filter, without those about all of it.
func one(t *testing.T, line string, opts importer.Options) (string, []string) {
	t.Helper()
	var out bytes.Buffer
	rep, err := Import(strings.NewReader(line), &out, opts)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 5 || lines[1] != "" || lines[3] != "default pass" || lines[4] != "" {
		t.Fatalf("not a policy of one rule:\n%s", out.String())
	}
	var notes []string
	for _, n := range rep.Notes {
		if n.Line > 0 {
			notes = append(notes, fmt.Sprintf("%d: %s", n.Line, n.Text))
		}
	}
	return lines[2], notes
}

func TestClassBenchRule(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		notes          []string
	}{
		{"hosts and one port", "@192.0.2.1/32\t198.51.100.7/32\t0 : 65535\t80 : " +
			"80\t0x06/0xFF\t0x0000/0x0200\t",
			`drop tcp from 192.0.2.1 to 198.51.100.7 port 80 as "r0"`, nil},
		{"prefixes and ranges at both ends",
			"@192.0.2.0/24 198.51.100.0/25 1024 : 65535 0 : 1023 0x11/0xFF 0x0000/0x0000",
			`drop udp from 192.0.2.0/24 from port 1024-65535 to 198.51.100.0/25 port 0-1023 as "r0"`, nil},
		{"wildcards alone are still IPv4",
			"@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00 0x0000/0x0000",
			`drop ipv4 as "r0"`, nil},
		{"wildcard addresses with a protocol are still IPv4",
			"@0.0.0.0/0 0.0.0.0/0 0 : 65535 53 : 53 0x11/0xFF",
			`drop ipv4 udp port 53 as "r0"`, nil},
		{"one address says the family", "@0.0.0.0/0 198.51.100.0/24 0 : 65535 0 : 65535 0x00/0x00",
			`drop to 198.51.100.0/24 as "r0"`, nil},
		{"a protocol with a name", "@192.0.2.1/32 0.0.0.0/0 0 : 65535 0 : 65535 0x2f/0xFF",
			`drop gre from 192.0.2.1 as "r0"`, nil},
		{"a protocol without a name", "@192.0.2.1/32 0.0.0.0/0 0 : 65535 0 : 65535 0xfd/0xff",
			`drop proto 253 from 192.0.2.1 as "r0"`, nil},
		{"leading bits of a protocol", "@192.0.2.1/32 0.0.0.0/0 0 : 65535 0 : 65535 0x11/0xF0",
			`drop proto 16-31 from 192.0.2.1 as "r0"`, nil},
		{"port 0 is a port", "@192.0.2.1/32 0.0.0.0/0 0 : 0 0 : 65535 0x06/0xFF",
			`drop tcp from 192.0.2.1 from port 0 as "r0"`, nil},
		{"all but port 0 is a condition", "@192.0.2.1/32 0.0.0.0/0 0 : 65535 1 : 65535 0x06/0xFF",
			`drop tcp from 192.0.2.1 port 1-65535 as "r0"`, nil},
		{"host bits are cleared and said",
			"@192.0.2.77/24 198.51.100.0/25 0 : 65535 0 : 65535 0x06/0xFF",
			`drop tcp from 192.0.2.0/24 to 198.51.100.0/25 as "r0"`,
			[]string{"1: r0: 192.0.2.77/24 has host bits, 192.0.2.0/24 is meant"}},
		{"ports with any protocol are said", "@192.0.2.1/32 0.0.0.0/0 0 : 65535 80 : 80 0x00/0x00",
			`drop from 192.0.2.1 port 80 as "r0"`,
			[]string{"1: r0: has ports and more than one protocol: the rule matches those that " +
				"have ports (TCP, UDP, UDP-Lite, SCTP, DCCP)"}},
		{"ports of a protocol without are said",
			"@192.0.2.1/32 0.0.0.0/0 80 : 80 0 : 65535 0x01/0xFF",
			`# no packet can match: drop icmp from 192.0.2.1 from port 80 as "r0"`,
			[]string{"1: r0: asks for ports of a protocol without ports: no packet can match, so " +
				"it is left out"}},
		{"IPv6", "@2001:db8::/32 2001:db8:1::1/128 0 : 65535 53 : 53 0x11/0xFF",
			`drop udp from 2001:db8::/32 to 2001:db8:1::1 port 53 as "r0"`, nil},
		{"wildcards of IPv6", "@::/0 ::/0 0 : 65535 0 : 65535 0x3a/0xFF",
			`drop ipv6 icmp6 as "r0"`, nil},
		{"ports without blanks", "@192.0.2.1/32 0.0.0.0/0 0:65535 80:81 0x06/0xFF",
			`drop tcp from 192.0.2.1 port 80-81 as "r0"`, nil},
		{"a heading", "\ufeff# scale 10\n\n@192.0.2.1/32 0.0.0.0/0 0 : 65535 0 : 65535 0x06/0xFF",
			`drop tcp from 192.0.2.1 as "r0"`, nil},
		{"ends of lines do not matter",
			"@192.0.2.1/32 0.0.0.0/0 0 : 65535 0 : 65535 0x06/0xFF \t\r\n\r\n",
			`drop tcp from 192.0.2.1 as "r0"`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, notes := one(t, c.in, importer.Options{})
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if d := cmp.Diff(c.notes, notes); d != "" {
				t.Error(d)
			}
		})
	}
}

const anyFilter = "@0.0.0.0/0 192.0.2.0/24 0 : 65535 0 : 65535 0x06/0xFF 0x0000/0x0000\n"

func TestClassBenchPolicyAsAWhole(t *testing.T) {
	in := anyFilter + strings.Replace(anyFilter, "65535 0x06", "1 0x06", 1) + anyFilter
	for action, want := range map[importer.Action][3]string{
		importer.Drop: {"drop", "drop", "drop"}, importer.Pass: {"pass", "pass", "pass"},
		importer.Alternate: {"drop", "pass", "drop"},
	} {
		var out bytes.Buffer
		rep, err := Import(strings.NewReader(in), &out,
			importer.Options{Action: action, Name: "three"})
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf(`# Imported from the ClassBench filter set three: 3 rules, IPv4.

%s tcp to 192.0.2.0/24 as "r0"
%s tcp to 192.0.2.0/24 port 0-1 as "r1"
%s tcp to 192.0.2.0/24 as "r2"
default pass
`, want[0], want[1], want[2])
		if d := cmp.Diff(text, out.String()); d != "" {
			t.Errorf("%v: %s", action, d)
		}
		notes := []importer.Note{
			{Line: 0, Text: "the flags column is ignored, as all users of these sets do"},
			{Line: 0, Text: "a non-first fragment has no ports: rules with ports do not match it"},
		}
		if d := cmp.Diff(importer.Report{Rules: 3, Notes: notes}, rep); d != "" {
			t.Errorf("%v: %s", action, d)
		}
	}
}

func TestClassBenchReportsEveryBadLineAndWritesNothing(t *testing.T) {
	in := strings.Join([]string{
		strings.TrimSpace(anyFilter),
		"pass all",
		"@192.0.2.0/33 0.0.0.0/0 0 : 65535 0 : 65535 0x06/0xFF",
		"@192.0.2.0/24 ::/0 0 : 65535 0 : 65535 0x06/0xFF",
		"@192.0.2.0/24 0.0.0.0/0 0 : 65536 0 : 65535 0x06/0xFF",
		"@192.0.2.0/24 0.0.0.0/0 0 : 65535 9 : 8 0x06/0xFF",
		"@192.0.2.0/24 0.0.0.0/0 0 : 65535 0 : 65535 6/0xFF",
		"@192.0.2.0/24 0.0.0.0/0 0 : 65535 0 : 65535 0x06/0x0F",
		"@192.0.2.0/24 0.0.0.0/0 0 : 65535 0 : 65535 0x06/0xFF flags",
		"@" + strings.Repeat("9", 2*importer.MaxLine),
		"\x00\x1b[31m",
		"nw_src=192.0.2.0/24,nw_proto=6",
		"2180469525\t2013454209\t1024\t80\t6\t0",
	}, "\n")
	var out bytes.Buffer
	_, err := Import(strings.NewReader(in), &out, importer.Options{Name: "bad\nset"})
	var errs *importer.Errors
	if !errors.As(err, &errs) {
		t.Fatalf("got %v, want *Errors", err)
	}
	want := `bad?set:2: "pass all" is not @SRC/LEN DST/LEN LO : HI LO : HI PROTO/MASK FLAGS/MASK
bad?set:3: source "192.0.2.0/33" is not a prefix of IPv4 or IPv6
bad?set:4: source 192.0.2.0/24 and destination ::/0 are of two families
bad?set:5: source ports "0 : 65536" are not two numbers up to 65535
bad?set:6: destination ports 9 : 8 run backwards
bad?set:7: protocol "6/0xFF" is not 0xVALUE/0xMASK of 8 bits
bad?set:8: protocol mask of "0x06/0x0F" is not leading bits: a policy has no such match
bad?set:9: flags "flags" is not 0xVALUE/0xMASK of 16 bits
bad?set:10: longer than 1024 bytes: not a filter
bad?set:11: "\x00\x1b[31m" is not @SRC/LEN DST/LEN LO : HI LO : HI PROTO/MASK FLAGS/MASK
bad?set:12: "nw_src=192.0.2.0/24,nw_proto=6" is not @SRC/LEN DST/LEN LO : HI LO : HI PROTO/MASK FLAGS/MASK: it is an OpenFlow rule; have ClassBench-ng write the filters of five fields instead
bad?set:13: "2180469525\t2013454209\t1024\t80\t6\t0" is not @SRC/LEN DST/LEN LO : HI LO : HI PROTO/MASK FLAGS/MASK: it looks like the header of a packet from a trace, which goes with a filter set and is none`
	if d := cmp.Diff(want, errs.Error()); d != "" {
		t.Error(d)
	}
	if out.Len() != 0 {
		t.Errorf("wrote %q", out.String())
	}
}

func TestClassBenchBoundsWhatItTells(t *testing.T) {
	_, err := Import(strings.NewReader(strings.Repeat("x\n", 3*importer.MaxErrors)),
		new(bytes.Buffer),
		importer.Options{})
	var errs *importer.Errors
	if !errors.As(err, &errs) || len(errs.Lines) != importer.MaxErrors ||
		errs.More != 2*importer.MaxErrors {
		t.Fatalf("got %v", err)
	}
	if last := "input: and 200 more lines that could not be read"; !strings.HasSuffix(err.Error(),
		last) {
		t.Errorf("ends with %q", err.Error()[len(err.Error())-80:])
	}
}

func TestClassBenchRefusesTooManyFilters(t *testing.T) {
	in := iotest.OneByteReader(strings.NewReader("")) // an empty reader of another kind
	if _, err := Import(in, new(bytes.Buffer), importer.Options{Name: "empty"}); err == nil ||
		!strings.Contains(err.Error(), "empty holds no filters") {
		t.Errorf("empty: %v", err)
	}
	var out bytes.Buffer
	_, err := Import(strings.NewReader(strings.Repeat(anyFilter, importer.MaxRules+1)), &out,
		importer.Options{Name: "huge"})
	if want := fmt.Sprintf("huge:%d: more than %d filters", importer.MaxRules+1,
		importer.MaxRules); err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if out.Len() != 0 {
		t.Error("wrote something")
	}
}

func TestClassBenchPassesErrorsOn(t *testing.T) {
	boom := errors.New("boom")
	if _, err := Import(iotest.ErrReader(boom), new(bytes.Buffer),
		importer.Options{Name: "x"}); !errors.Is(err, boom) {
		t.Errorf("reading: %v", err)
	}
	if _, err := Import(strings.NewReader(anyFilter), failingWriter{boom},
		importer.Options{}); !errors.Is(err, boom) {
		t.Errorf("writing: %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestParseAction(t *testing.T) {
	for text, want := range map[string]importer.Action{"drop": importer.Drop,
		"pass": importer.Pass, "alternate": importer.Alternate} {
		if got, err := importer.ParseAction(text); got != want || err != nil {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	if _, err := importer.ParseAction("Drop"); err == nil {
		t.Error("Drop with a capital is no action")
	}
}
