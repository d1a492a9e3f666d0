package demo

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"levee/internal/await"
	"levee/internal/lab/labtest"
)

func TestAllThatACrowdAsksForIsAnswered(t *testing.T) {
	labtest.NeedRoot(t)
	s, err := Open(t.Context(), testOptions(nil).Self)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	var mu sync.Mutex
	got := map[string][2]int{} // without and with an answer
	err = s.Crowded(t.Context(), func(r Request) {
		mu.Lock()
		defer mu.Unlock()
		n := got[r.What]
		if r.NS > 0 {
			n[1]++
		} else {
			n[0]++
		}
		got[r.What] = n
	}, func() error {
		// The first ones may fall into the time in which a role starts.
		await.OK(t, func() (err error) {
			mu.Lock()
			defer mu.Unlock()
			for _, what := range Whats {
				if n := got[what]; n[1] < 5 || n[0] > n[1] {
					err = errors.Join(err, fmt.Errorf("%s: %d answered, %d not", what, n[1], n[0]))
				}
			}
			return err
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(got)
}

func TestAnswersHaveTheSizeThatIsAskedFor(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	long := 0
	for range 2000 {
		size := answerSize(r)
		if size > 1500 {
			long++
		}
	}
	if long < 2 || long > 40 {
		t.Errorf("%d of 2,000 answers come in fragments, want some 10", long)
	}
	for _, bad := range []string{"x.example.", "x.0.example.", "x.5000.example."} {
		b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 1})
		q := dnsmessage.Question{Name: dnsmessage.MustNewName(bad), Type: dnsmessage.TypeTXT,
			Class: dnsmessage.ClassINET}
		if err := b.StartQuestions(); err != nil {
			t.Fatal(err)
		}
		if err := b.Question(q); err != nil {
			t.Fatal(err)
		}
		m, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := answerTo(m); err == nil {
			t.Errorf("%s is answered", bad)
		}
	}
	for _, n := range []int{0, 5, 12, 20} {
		if _, err := answerTo(make([]byte, n)); err == nil {
			t.Errorf("%d zero bytes are answered", n)
		}
	}
}
