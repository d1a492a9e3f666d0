package agent

import (
	"bufio"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"levee/internal/await"
	"levee/internal/kernel"
)

var (
	events    = flag.Int("events", 20_000, "how many events the tests of the rate have")
	rotations = flag.Int("rotations", 5, "how often each kind of rotation happens meanwhile")
)

// manySignatures are sources with 20,000 patterns.
func manySignatures(input string) string {
	ids := make([]string, 20_000)
	for i := range ids {
		ids[i] = fmt.Sprint(2_000_000 + 3*i)
	}
	return `source "ids" eve ` + input + ` where event_type = "alert" and alert.signature_id { ` +
		strings.Join(ids, ", ") + " } add src_ip to s lease 1h\n"
}

// record is the n-th event of a sensor: of eight, one is an alert, and each third of these has a
// signature that is asked for.
func record(n int) (line string, matches bool) {
	at := time.Unix(1_700_000_000, 0).Add(time.Duration(n) * 20 * time.Microsecond).UTC().
		Format("2006-01-02T15:04:05.000000+0000")
	head := fmt.Sprintf(`{"timestamp":"%s","flow_id":%d,"in_iface":"eth0","event_type":`, at,
		1398609176796675+n)
	ip := netip.AddrFrom4([4]byte{198, 18, byte(n >> 11), byte(n >> 3)})
	ends := fmt.Sprintf(`,"src_ip":"%s","src_port":%d,"dest_ip":"192.0.2.80","dest_port":443,`+
		`"proto":"TCP"`, ip, 1024+n%60000)
	switch n % 8 {
	case 0:
		id := 2_000_000 + n/8%60_000
		return head + `"alert"` + ends + fmt.Sprintf(`,"alert":{"action":"allowed","gid":1,`+
			`"signature_id":%d,"rev":4,"signature":"ET SCAN \"x\" %d","category":"Attempted Admin",`+
			`"severity":2,"metadata":{"tag":["a","b"],"confidence":["High"]}},"app_proto":"http",`+
			`"payload_printable":"%s"}`, id, id, strings.Repeat("GET / ", 40)), id%3 == 2_000_000%3
	case 1, 2:
		return head + `"dns"` + ends + `,"dns":{"type":"query","id":7,"rrname":"www.example.org",` +
			`"rrtype":"AAAA","tx_id":0,"opcode":0}}`, false
	case 3, 4:
		return head + `"http"` + ends + `,"http":{"hostname":"example.org","url":"/a?b=c",` +
			`"http_user_agent":"Mozilla/5.0 (X11; Linux x86_64)","http_method":"GET",` +
			`"protocol":"HTTP/1.1","status":200,"length":7124}}`, false
	}
	return head + `"flow"` + ends + `,"flow":{"pkts_toserver":7,"pkts_toclient":9,"bytes_toserver":` +
		`612,"bytes_toclient":9120,"start":"` + at + `","age":2,"state":"closed","reason":` +
		`"timeout","alerted":false}}`, false
}

// TestEventsASecond reads events on one core, with 20,000 patterns and the ledger on a disk. It
// says
// how many it read in a second of processor time. -events 1000000 gives a figure.
func TestEventsASecond(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	dir := t.TempDir()
	f, err := os.Create(dir + "/eve.json")
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	want, bytes := uint64(0), 0
	for n := range *events {
		line, matches := record(n)
		if matches {
			want++
		}
		bytes += len(line) + 1
		fmt.Fprintln(w, line)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	a := start(t, dir, &fake{sets: map[string]map[netip.Prefix]time.Duration{}},
		manySignatures(`file "DIR/eve.json"`))
	runtime.GC()
	begun, cpu := time.Now(), kernel.ProcessorTime()
	for a.poll(t.Context()) {
	}
	took, used := time.Since(begun), kernel.ProcessorTime()-cpu
	s := a.current().Sources[0]
	if s.Events != uint64(*events) || s.Matched != want || s.Malformed != 0 || s.LagBytes != 0 {
		t.Errorf("%+v, want %d matched", s, want)
	}
	t.Logf("%d events of %d bytes, %d matched: %.0f a second of processor time, %.0f a second "+
		"with "+
		"the waits for the disk", *events, bytes / *events, want,
		float64(*events)/used.Seconds(), float64(*events)/took.Seconds())
}

// TestNoEventIsLostThroughRotations writes events while the agent reads them, and rotates the file
// in each way. -events 200000 -rotations 100 writes 50,000 a second, and shows the largest lag.
func TestNoEventIsLostThroughRotations(t *testing.T) {
	for _, kind := range []string{"rename", "copytruncate", "truncate", "symlink"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			a := start(t, dir, &fake{sets: map[string]map[netip.Prefix]time.Duration{}},
				manySignatures(`file "DIR/eve.json"`))
			var read atomic.Uint64
			done, want := make(chan error, 1), uint64(0)
			written := &atomic.Uint64{}
			go func() { done <- writeRotated(dir, kind, &want, written, &read) }()
			var most uint64
			var err error
			poll := func() {
				for a.poll(t.Context()) {
				}
				read.Store(a.sources[0].status.Events)
			}
			for finished := false; !finished; {
				select {
				case err = <-done:
					finished = true
				case <-time.After(10 * time.Millisecond):
				}
				// What is read at once may not be noted as written yet.
				if w, r := written.Load(), read.Load(); w > r {
					most = max(most, w-r)
				}
				poll()
			}
			if err != nil {
				t.Fatal(err)
			}
			poll()
			s := a.current().Sources[0]
			if s.Events != uint64(*events) || s.Malformed != 0 || s.LagBytes != 0 ||
				s.Matched != want {
				t.Errorf("%d written, %d to match: %+v", *events, want, s)
			}
			t.Logf("%d events, %d rotations seen of %d, at most %d events behind",
				s.Events, s.Rotations, *rotations, most)
		})
	}
}

// writeRotated writes events as a sensor does, 50,000 a second.
func writeRotated(dir, kind string, want *uint64, written, read *atomic.Uint64) error {
	path := filepath.Join(dir, "eve.json")
	open := func(at string) (*os.File, error) {
		return os.OpenFile(at, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	}
	link := func(turn int) (*os.File, error) {
		target := filepath.Join(dir, fmt.Sprintf("out-%05d.json", turn))
		f, err := open(target)
		if err == nil {
			err = os.Symlink(target, path+".tmp")
		}
		if err == nil {
			err = os.Rename(path+".tmp", path)
		}
		return f, err
	}
	var f *os.File
	var err error
	if kind == "symlink" {
		f, err = link(0)
	} else {
		f, err = open(path)
	}
	// until waits for as many events to be read.
	until := func(events uint64) {
		await.Until(func() bool { return read.Load() >= events })
	}
	begun, turn, rotated := time.Now(), 0, uint64(0)
	var b []byte
	for n := 0; n < *events && err == nil; n++ {
		line, matches := record(n)
		if matches {
			*want++
		}
		b = append(append(b, line...), '\n')
		if n%500 == 499 || n == *events-1 {
			_, err = f.Write(b)
			b = b[:0]
			written.Store(uint64(n + 1))
			await.Pass(time.Until(begun.Add(time.Duration(n)*20*time.Microsecond)),
				"the pace of a sensor")
		}
		if err != nil || (n+1)**rotations / *events == turn || n == *events-1 || len(b) > 0 {
			continue
		}
		turn++
		switch kind {
		case "rename":
			for i := *rotations; i > 0; i-- {
				_ = os.Rename(fmt.Sprint(path, ".", i), fmt.Sprint(path, ".", i+1))
			}
			err = os.Rename(path, path+".1")
			f.Close()
			if err == nil {
				f, err = open(path)
			}
		case "copytruncate":
			until(rotated + 1) // of the file, whose copy is the last one then
			rotated = written.Load()
			for i := *rotations; i > 0; i-- {
				_ = os.Rename(fmt.Sprint(path, ".", i), fmt.Sprint(path, ".", i+1))
			}
			var text []byte
			if text, err = os.ReadFile(path); err == nil {
				err = os.WriteFile(path+".1", text, 0o600)
			}
			if err == nil {
				err = os.Truncate(path, 0)
			}
		case "truncate": // what is not read is lost, whoever reads
			until(written.Load())
			err = os.Truncate(path, 0)
		case "symlink":
			f.Close()
			f, err = link(turn)
		}
	}
	if f != nil {
		f.Close()
	}
	return err
}
