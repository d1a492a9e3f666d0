package resolve

import (
	"fmt"
	"testing"

	"levee/internal/lang/action"
	"levee/internal/lang/policy"
)

func TestFallback(t *testing.T) {
	const text = `%s
set admins = { 198.51.100.0/24, 2001:db8::/48 }
set others = dynamic(max 10)
set found = dynamic(max 10)
set feed = dynamic(max 10, lease 5m)
protect from admins tcp port 22
protect to 192.0.2.1 not from 192.0.2.7 udp
protect from others
drop from found as "found"
%s
default pass
test "x" { packet from 192.0.2.9 expect pass }
`
	for _, c := range []struct {
		onError, essential string
		want               action.Action
	}{
		{"on error drop", "", action.Drop},
		{"on error pass", "essential off", action.Pass},
	} {
		p, ds := Parse("x.levee", fmt.Appendf(nil, text, c.onError, c.essential), nil)
		if ds.HasErrors() {
			t.Fatal(ds)
		}
		for keep, sets := range map[bool]int{true: 4, false: 2} {
			f := p.Fallback(keep)
			if len(f.Protect) != 3 || len(f.Rules) != 0 || len(f.Tests) != 0 ||
				f.Essential != p.Essential || len(f.Sets) != sets {
				t.Errorf("%s, sets kept %v: %+v", c.onError, keep, f)
			}
			if f.Default.Action != c.want || f.Default.Pos.Line != 1 || len(p.Rules) != 1 ||
				p.Default.Action != action.Pass {
				t.Errorf("%s: default %v, of the policy itself %v", c.onError, f.Default, p.Default)
			}
			slots := f.Slots()
			if last := slots[f.DefaultSlot()]; last.Reason != policy.ByDefault ||
				last.Action != c.want {
				t.Errorf("%s: last slot %+v", c.onError, last)
			}
		}
		if got := fmt.Sprint(p.Protected()); got != "[198.51.100.0/24 2001:db8::/48 192.0.2.1/32]" {
			t.Errorf("protected %s", got)
		}
	}
	p, _ := Parse("x.levee", fmt.Appendf(nil, text, "", ""), nil)
	if p.Fallback(true) != nil {
		t.Error("a fallback without \"on error\"")
	}
}
