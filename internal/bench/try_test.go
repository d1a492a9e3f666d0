package bench

import (
	"fmt"
	"os"
	"testing"
	"time"
)

func TestTry(t *testing.T) {
	if os.Getenv("TRY") == "" {
		t.Skip()
	}
	pol, _ := os.ReadFile(os.Getenv("TRY"))
	r, err := Ladder(t.Context(), Options{Policy: pol, PolicyName: "demo.levee", Window: 200 * time.Millisecond, Warmup: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	r.Text(os.Stdout)
	for _, g := range r.Rungs {
		for _, w := range g.Windows {
			if len(w.Invalid) > 0 && w.CoreBusy > 0 {
				fmt.Printf("%-20s %-6s INV %.2f busy %.2f thread %.2f %v\n", g.Name, w.Traffic, w.PPS/1e6, w.CoreBusy, w.ThreadBusy, w.Invalid)
				continue
			}
			fmt.Printf("%-20s %-6s %.2f/%.2f = %.2f ns=%.0f sat=%v\n", g.Name, w.Traffic, w.PPS/1e6, w.ThreadBusy, w.PPS/w.ThreadBusy/1e6, 1e9*w.ThreadBusy/w.PPS, w.Saturated)
		}
	}
}
