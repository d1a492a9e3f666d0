package stream

import (
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"levee/internal/packet"
)

// data is where captures of others lie, if they are at hand: see docs/explanation/benchmarks.md.
func data(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("LEVEE_DATA")
	if dir == "" {
		dir = "../../../../shared/data"
	}
	if _, err := os.Stat(filepath.Join(dir, "streams")); err != nil {
		t.Skip("no captures of streams at hand")
	}
	return dir
}

// capture gives all clients of a file to a table, of which each first segment begins a flow.
func capture(t *testing.T, file string, kinds ...*Kind) (records []map[string]any) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := packet.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	table := &Table{}
	for _, k := range kinds {
		table.Readers = append(table.Readers, &Reader{Kind: k,
			Wants: func(_, dst netip.AddrPort) bool {
				const push = 5228 // of Google, over TLS
				return slices.Contains(append(k.Ports, push), dst.Port())
			},
			Line: func(line []byte) {
				var record map[string]any
				if err := json.Unmarshal(line, &record); err != nil {
					t.Fatal(err)
				}
				records = append(records, record)
			}})
	}
	first := map[Key]uint32{}
	var p packet.Packet
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		s, ok := SegmentOf(packet.Ethernet, rec.Data, &p)
		if !ok {
			continue
		}
		k := Key{Src: s.Src, Dst: s.Dst, Proto: s.Proto}
		if p.Flags&packet.SYN != 0 {
			first[k] = s.Seq + 1
			continue
		}
		if s.First, ok = first[k]; !ok {
			first[k], s.First = s.Seq, s.Seq
		}
		s.At, s.Proven = rec.Time, true
		if len(s.Data) > 0 || s.Ends {
			table.Segment(&s)
		}
		table.Expire(rec.Time)
	}
	table.Expire(begun.AddDate(100, 0, 0))
	return records
}

// TestPublishedFingerprints: each JA4 that its authors publish for the captures at hand.
func TestPublishedFingerprints(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(data(t), "streams", "*.json"))
	if err != nil || len(files) == 0 {
		t.Skip("no captures with fingerprints at hand")
	}
	published := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var want []map[string]any
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		got := map[string]map[string]any{}
		for _, r := range capture(t, file[:len(file)-len(".json")], Kinds...) {
			if of, is := r["tls"].(map[string]any); is {
				got[r["src_ip"].(string)+" "+strconv.Itoa(int(r["src_port"].(float64)))] = of
			}
		}
		for _, w := range want {
			ja4, is := w["JA4.1"].(string)
			if !is {
				continue
			}
			published++
			of := got[w["src"].(string)+" "+w["srcport"].(string)]
			if of["ja4"] != ja4 || w["domain"] != nil && of["sni"] != w["domain"] {
				t.Errorf("%s: %v\ngot %v", filepath.Base(file), w, of)
			}
		}
	}
	t.Logf("%d fingerprints", published)
}

// TestClientsOfCaptures: what others have recorded is read; HASSH is as nDPI has it for its
// capture.
func TestClientsOfCaptures(t *testing.T) {
	for file, hassh := range map[string]string{
		"streams/ssh2.pcapng": "06046964c022c6407d15a27b12a6a4fb",
		"protocols/ssh.pcap":  "21b457a327ce7a2d4fce5ef2c42400bd",
	} {
		records := capture(t, filepath.Join(data(t), file), &ssh)
		if len(records) == 0 {
			t.Errorf("%s: no record", file)
		}
		for _, r := range records {
			client, _ := r["ssh"].(map[string]any)["client"].(map[string]any)
			if of, _ := client["hassh"].(map[string]any); of["hash"] != hassh {
				t.Errorf("%s: %v", file, r)
			}
		}
	}
}

// TestJA3AsItsAuthorsHaveIt: the examples of github.com/salesforce/ja3.
func TestJA3AsItsAuthorsHaveIt(t *testing.T) {
	for hash, h := range map[string]*hello{
		"ada70206e40642a3e4461f35503241d5": {version: 769, ciphers: []uint16{47, 53, 5, 10, 49161,
			49162, 49171, 49172, 50, 56, 19, 4}, extensions: []uint16{0, 10, 11},
			groups: []uint16{23, 24, 25}, points: []byte{0}},
		"de350869b8c85de67a350c8d186f11e6": {version: 769, ciphers: []uint16{4, 5, 10, 9, 100, 98,
			3, 6, 19, 18, 99}},
	} {
		if got := h.ja3(); md5Hex(got) != hash {
			t.Errorf("%s: %s", hash, got)
		}
	}
}
