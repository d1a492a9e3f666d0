package endpoint

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

// While a writer fills the set, moves entries and takes them out, those that stay are found by
// every look-up, and what was never there by none.
func TestReadersSeeWhatStays(t *testing.T) {
	const max = 2000
	for _, kind := range []string{"go", "program"} {
		t.Run(kind, func(t *testing.T) {
			c := &clock{1}
			var table *Table
			var ask asker
			if kind == "go" {
				table = newTable(t, max, c)
				ask = table.Lookup
			} else {
				p := loadProgram(t, max)
				var err error
				if table, err = Open(p.fresh(t, max), c.now); err != nil {
					t.Fatal(err)
				}
				ask = p.ask(t)
			}
			r := rand.New(rand.NewPCG(3, 3))
			stay := make([]Entry, 200)
			for i := range stay {
				stay[i] = entry("192.0.2.0/24", 6, uint16(i), 16)
				if err := table.Add(stay[i]); err != nil {
					t.Fatal(err)
				}
			}
			var stop atomic.Bool
			changes := make(chan int)
			go func() {
				var in []Entry
				n := 0
				for ; !stop.Load(); n++ {
					if len(in) == max-len(stay) || len(in) > 0 && r.IntN(3) == 0 {
						i := r.IntN(len(in))
						table.Delete(in[i])
						in[i] = in[len(in)-1]
						in = in[:len(in)-1]
						continue
					}
					e := entry("198.51.100.0/24", uint8(17+r.IntN(2)), uint16(r.Uint32()), 16)
					if _, there := table.Get(e); !there && table.Add(e) == nil {
						in = append(in, e)
					}
				}
				changes <- n
			}()
			asked := 0
			for end := time.Now().Add(time.Second); time.Now().Before(end); {
				for i := range stay {
					if !ask(stay[i].Prefix.Addr(), 6, stay[i].Port) {
						t.Errorf("after %d look-ups: %v was not found", asked, stay[i])
					}
					if ask(stay[i].Prefix.Addr(), 17, stay[i].Port) {
						t.Errorf("after %d look-ups: what was never there was found", asked)
					}
					asked += 2
				}
				if t.Failed() {
					break
				}
			}
			stop.Store(true)
			t.Logf("%d look-ups beside %d changes", asked, <-changes)
		})
	}
}
