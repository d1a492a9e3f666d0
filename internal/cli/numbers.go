package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseRate reads packets a second: 1000, 1.5k, 2M, with or without "/s".
func ParseRate(s string) (float64, error) {
	digits, factor := strings.TrimSuffix(s, "/s"), 1.0
	for suffix, f := range map[string]float64{"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9} {
		if d, ok := strings.CutSuffix(digits, suffix); ok {
			digits, factor = d, f
			break
		}
	}
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil || !(v > 0) || v*factor > 1e9 {
		return 0, fmt.Errorf("%q is no rate: write packets a second, 1000, 50k or 2M", s)
	}
	return v * factor, nil
}

// ParsePercent reads a number of percent, with or without its sign: 5 is 5 %, as 5% is.
func ParsePercent(s string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q is no percentage: write 5 or 5%%", s)
	}
	return v, nil
}
