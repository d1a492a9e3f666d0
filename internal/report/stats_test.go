package report

import (
	"math"
	"slices"
	"strconv"
	"testing"
)

func TestOutliersAreMarkedAndKept(t *testing.T) {
	for _, c := range []struct {
		what   string
		values []float64
		want   []bool
	}{
		{"none", []float64{10, 11, 12, 13, 14, 15}, make([]bool, 6)},
		{"one far above", []float64{10, 11, 12, 13, 14, 40},
			[]bool{false, false, false, false, false, true}},
		{"one far below, in the midst", []float64{10, 11, -30, 13, 14, 12},
			[]bool{false, false, true, false, false, false}},
		{"all the same", []float64{7, 7, 7, 7}, make([]bool, 4)},
		{"too few to tell", []float64{1, 1, 100}, make([]bool, 3)},
	} {
		before := slices.Clone(c.values)
		if got := Outliers(c.values); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
		if !slices.Equal(c.values, before) {
			t.Errorf("%s: the values were changed", c.what)
		}
	}
}

func TestIntervalsNeedSixRounds(t *testing.T) {
	p := Measured(1, []float64{3, 1, 2, 5, 4})
	if *p.Y != 3 || p.Low != nil || p.High != nil {
		t.Errorf("five rounds: %v from %v to %v, want 3 without an interval", *p.Y, p.Low, p.High)
	}
	p = Measured(1, []float64{3, 1, 2, 5, 4, 6})
	if *p.Y != 3.5 || p.Low == nil || *p.Low != 1 || *p.High != 6 {
		t.Errorf("six rounds: %+v, want 3.5 from 1 to 6", p)
	}
	if p := Measured(1, nil); p.Y != nil || p.Why == "" {
		t.Errorf("no rounds: %+v, want a gap with its reason", p)
	}
	if m, _, _ := Summary(nil); !math.IsNaN(m) {
		t.Errorf("median of nothing is %v", m)
	}
}

func TestNumbersArePrintedShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 1234567: "1235000", 0.00123456: "0.001235",
		-12.3456: "-12.35", 7: "7", 105_400_012: "105400000",
		math.MaxFloat64: strconv.FormatFloat(math.MaxFloat64, 'f', -1, 64)} {
		if got := Number(v).Text; got != want {
			t.Errorf("%v is printed %q, want %q", v, got, want)
		}
	}
}
