package codegen

import (
	"testing"

	"levee/internal/filter/greylist"
	"levee/internal/filter/limit"
)

// The line of a greylist is read ahead of a limit in front of it that waits for its own memory,
// once for each family, and of no other limit.
func TestALimitReadsTheLineOfAGreylistAhead(t *testing.T) {
	const rule = "greylist udp port 7 after 1s within 10s\n"
	touches := func(text string) (n int) {
		prog, err := Compile(parsed(t, text+"default pass\n"), Target{})
		if err != nil {
			t.Fatal(err)
		}
		for _, ins := range prog.Spec.Programs[ProgramName].Instructions {
			if ins.Reference() == greylist.Map && ins.Constant>>32 == int64(greylist.HeadBytes) {
				n++
			}
		}
		return n
	}
	slow := "limit udp port 7 rate 20/s by source\n"
	fast := "limit udp port 7 rate 400/s by source\n"
	for _, c := range []struct {
		text string
		want int
	}{
		{slow + rule, 2}, {fast + rule, 0}, {rule + slow, 0}, {slow, 0},
		{"limit udp port 7 rate 20/s\n" + rule, 0},
		{"limit udp port 7 rate 20/s by source, source/24 x2\n" + rule, 0},
	} {
		if got := touches(c.text); got != c.want {
			t.Errorf("%q: %d lines are read ahead, want %d", c.text, got, c.want)
		}
	}
	for text, large := range map[string]bool{slow: true, fast: false} {
		if l := parsed(t, text+"default pass\n").Rules[0].Limit; limit.Size(l) > near != large {
			t.Errorf("%q has %d bytes", text, limit.Size(l))
		}
	}
}
