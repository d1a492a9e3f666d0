package dashboard

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"levee/internal/agent/api"
	"levee/internal/agent/history"
)

// seriesQuery are the parameters of a request for series.
type seriesQuery struct {
	Dev  string `query:"dev" maxLength:"255" doc:"Only of this interface."`
	By   string `query:"by" enum:"verdict,rule,protocol,source" default:"verdict" doc:"What the series are of."`
	Unit string `query:"unit" enum:"packets,bytes" default:"packets" doc:"What is counted; values are a second."`
	Peak bool   `query:"peak" doc:"The most in one second of a point, in place of the mean."`
	From int64  `query:"from" minimum:"0" maximum:"99999999999" doc:"Seconds since 1970; 0: an hour before to."`
	To   int64  `query:"to" minimum:"0" maximum:"99999999999" doc:"Seconds since 1970; 0: now."`
	Step int64  `query:"step" minimum:"0" maximum:"31622400" doc:"Seconds of a point, at least; 0: such that there are some 1000."`
	Most int    `query:"most" minimum:"0" maximum:"1000" doc:"Series besides the sum of all others; 0: all."`
}

func (q *seriesQuery) query(now time.Time) history.Query {
	out := history.Query{Dev: q.Dev, Kind: history.Kind(q.By), From: q.From, To: q.To, Step: q.Step,
		Bytes: q.Unit == "bytes", Peak: q.Peak, Most: q.Most}
	if out.To == 0 {
		out.To = now.Unix() + 1
	}
	if out.From == 0 {
		out.From = max(0, out.To-3600)
	}
	return out
}

// Head describes the points of an answer.
type Head struct {
	From   int64    `json:"from"` // Unix seconds at which point 0 begins
	Step   int64    `json:"step"` // seconds of a point
	Points int      `json:"points"`
	Now    float64  `json:"now"` // the agent's clock
	Series []Series `json:"series"`
}

// Series is one of an answer.
type Series struct {
	Dev     string `json:"dev"`
	ID      string `json:"id"` // of a rule the identity of its counter; "" of all others
	Label   string `json:"label"`
	Verdict string `json:"verdict"`
	Text    string `json:"text"`
	Line    int    `json:"line"`
	Packets uint64 `json:"packets"` // of the whole range
	Bytes   uint64 `json:"bytes"`
	Merged  int    `json:"merged"` // how many series it is the sum of
	// a second, null where nobody looked; not in a packed answer
	Values []*float64 `json:"values,omitempty" nullable:"true"`
}

// store returns the history, or an error that says why there is none.
type store func() (*history.Store, error)

// seriesRoutes answer requests for series: as JSON, and packed.
func seriesRoutes(kept store) []api.Route {
	return []api.Route{
		api.Get("/api/v1/series", api.Viewer, "Packets or bytes a second over a time, by verdict, "+
			"rule, protocol or source.",
			func(_ context.Context, q *seriesQuery) (*Head, error) {
				a, err := kept.ask(q.query(time.Now()))
				if err != nil {
					return nil, err
				}
				return withValues(a), nil
			}),
		api.Raw("/api/v1/series/packed", api.Viewer, "The same for programs that draw: the length "+
			"of a header, the header as JSON, and for each of its series the values as 32-bit "+
			"floats, NaN where nobody looked; all little-endian.", packedType, seriesQuery{},
			func(w http.ResponseWriter, r *http.Request) { servePacked(kept, w, r) }),
	}
}

const packedType = "application/octet-stream"

func (s store) ask(q history.Query) (*history.Answer, error) {
	h, err := s()
	if err != nil {
		return nil, api.Refuse(http.StatusServiceUnavailable, "there is no history: %v", err)
	}
	a, err := h.Query(q)
	if errors.Is(err, history.ErrQuery) {
		err = api.Refuse(http.StatusUnprocessableEntity, "%v", err)
	}
	return a, err
}

func servePacked(kept store, w http.ResponseWriter, r *http.Request) {
	q, err := readQuery(r.URL.Query())
	if err != nil {
		api.Fail(w, http.StatusUnprocessableEntity, "%v", err)
		return
	}
	a, err := kept.ask(q.query(time.Now()))
	if err != nil {
		api.WriteError(w, err)
		return
	}
	out := appendPacked(a)
	w.Header().Set("Content-Type", packedType)
	w.Header().Set("Content-Length", strconv.Itoa(len(out)))
	_, _ = w.Write(out) // who asked may be gone
}

// readQuery reads the parameters of a packed answer; each may be there once.
func readQuery(v url.Values) (q *seriesQuery, err error) {
	q = &seriesQuery{By: "verdict", Unit: "packets"}
	number := func(to *int64, most int64) func(string) bool {
		return func(s string) (fine bool) {
			n, err := strconv.ParseInt(s, 10, 64)
			*to = n
			return err == nil && n >= 0 && n <= most
		}
	}
	word := func(to *string, all ...string) func(string) bool {
		return func(s string) bool { *to = s; return slices.Contains(all, s) }
	}
	var most int64
	take := map[string]func(string) bool{
		"dev":  func(s string) bool { q.Dev = s; return len(s) <= 255 },
		"by":   word(&q.By, "verdict", "rule", "protocol", "source"),
		"unit": word(&q.Unit, "packets", "bytes"),
		"peak": func(s string) bool { q.Peak = s == "true"; return s == "true" || s == "false" },
		"from": number(&q.From, 99_999_999_999), "to": number(&q.To, 99_999_999_999),
		"step": number(&q.Step, 31_622_400), "most": number(&most, 1000),
	}
	for name, all := range v {
		if take[name] == nil || len(all) != 1 || !take[name](all[0]) {
			err = errors.Join(err, fmt.Errorf("%.40q is no parameter, is there twice, or cannot "+
				"be %.40q: GET /api/v1/openapi.json says what it may be", name, all))
		}
	}
	q.Most = int(most)
	return q, err
}

func headOf(a *history.Answer) *Head {
	out := &Head{From: a.From, Step: a.Step, Points: a.Points, Series: []Series{},
		Now: float64(time.Now().UnixMilli()) / 1000}
	for _, s := range a.Series {
		out.Series = append(out.Series, Series{Dev: s.Dev, ID: s.ID, Label: s.Label,
			Verdict: s.Verdict, Text: s.Text, Line: s.Line, Packets: s.Packets, Bytes: s.Bytes,
			Merged: s.Merged})
	}
	return out
}

// appendPacked returns an answer that a browser reads without looking at each value: the length of
// a header, the header, as JSON that is filled up with spaces to a multiple of four, and for each
// of its series the points, as 32-bit floats; all little-endian.
func appendPacked(a *history.Answer) []byte {
	head, err := json.Marshal(headOf(a))
	if err != nil {
		panic(err) // of these types all can be marshalled
	}
	for len(head)%4 != 0 {
		head = append(head, ' ')
	}
	out := make([]byte, 0, 4+len(head)+4*a.Points*len(a.Series))
	out = binary.LittleEndian.AppendUint32(out, uint32(len(head)))
	out = append(out, head...)
	for _, s := range a.Series {
		for _, v := range s.Values {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		}
	}
	return out
}

// withValues returns an answer with the values that there are.
func withValues(a *history.Answer) *Head {
	head := headOf(a)
	for i, s := range a.Series {
		head.Series[i].Values = make([]*float64, len(s.Values))
		for j, v := range s.Values {
			if f := float64(v); !math.IsNaN(f) {
				head.Series[i].Values[j] = &f
			}
		}
	}
	return head
}
