// Command versions says what the programs that two levee binaries make of the same policies cost:
// both are brought into force by their own binary, and the kernel runs them on the same packets by
// turns, in one run. Each packet is made for a rule and repeated, as levee cost does.
//
//	sudo go run ./scripts/versions OLD NEW POLICY...
//
// It prints nanoseconds with those of the kernel's loop: the mean over all packets, as median of
// the rounds with its 95 % interval; the packets whose cost differs most; seconds that `levee up`
// took; and bytes of machine code, and of the binaries.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"

	"levee/internal/filter/oracle"
	"levee/internal/lab"
	"levee/internal/lang/resolve"
	"levee/internal/packet/craft"
	"levee/internal/report"
)

const (
	rounds = 15
	repeat = 100_000
	most   = 24 // packets of a policy
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: versions OLD NEW POLICY...")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, [2]string(os.Args[1:3]), os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "versions:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binaries [2]string, policies []string) (err error) {
	l, err := lab.New(ctx, lab.Standard())
	if err != nil {
		return err
	}
	defer func() {
		if err2 := l.Close(); err == nil {
			err = err2
		}
	}()
	dir, err := os.MkdirTemp("", "versions")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for i, b := range binaries {
		if binaries[i], err = filepath.Abs(b); err != nil {
			return err
		}
		about, err := os.Stat(b)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %.2f MB\n", [2]string{"old", "new"}[i], float64(about.Size())/1e6)
	}
	for _, path := range policies {
		if err := one(ctx, l.Host(lab.Server), dir, binaries, path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// one compares the programs of one policy.
func one(ctx context.Context, h *lab.Host, dir string, binaries [2]string, path string) error {
	packets, err := packetsOf(path)
	if err != nil {
		return err
	}
	var programs [2]*ebpf.Program
	var up [2]time.Duration
	var code [2]int
	for i, b := range binaries {
		p, took, bytes, err := inForce(ctx, h, dir, b, path)
		if err != nil {
			return err
		}
		defer p.Close()
		programs[i], up[i], code[i] = p, took, bytes
	}
	ns := make([][2][]float64, len(packets)) // by packet and program, of each round
	var means [2][]float64
	for round := range rounds {
		var sum [2]float64
		for k, b := range packets {
			for turn := range 2 {
				i := (turn + round + k) % 2
				_, took, err := programs[i].Benchmark(b, repeat, nil)
				if err != nil {
					return err
				}
				ns[k][i] = append(ns[k][i], float64(took.Nanoseconds()))
				sum[i] += float64(took.Nanoseconds())
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		for i := range sum {
			means[i] = append(means[i], sum[i]/float64(len(packets)))
		}
	}
	widest, least := 0.0, 0.0
	for _, p := range ns {
		d := median(p[1]) - median(p[0])
		widest, least = max(widest, d), min(least, d)
	}
	fmt.Printf("%s: %d packets, ns old %s, new %s, one packet by %+.0f to %+.0f; "+
		"up %.2f, %.2f s; code %d, %d bytes\n", filepath.Base(path), len(packets),
		spread(means[0]), spread(means[1]), least, widest, up[0].Seconds(), up[1].Seconds(),
		code[0], code[1])
	return nil
}

func median(v []float64) float64 {
	m, _, _ := report.Summary(v)
	return m
}

func spread(v []float64) string {
	m, low, high := report.Summary(v)
	return fmt.Sprintf("%.1f (%.1f-%.1f)", m, low, high)
}

// packetsOf makes packets that reach the rules of a policy and its default, evenly drawn.
func packetsOf(path string) (packets [][]byte, err error) {
	p, diagnostics, err := resolve.Load(path)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, diagnostics.Err()
	}
	ref := oracle.New(p)
	s := craft.Search{Policy: p, Every: 1 + len(p.Rules)/most,
		Judge: func(frame []byte) []int {
			r := ref.Eval(frame)
			return append(r.Counted, r.Slot)
		},
		Next: func(int, int) error { return nil },
	}
	frames, err := s.ForSlots()
	if err != nil {
		return nil, err
	}
	for _, f := range frames {
		if f != nil {
			packets = append(packets, f)
		}
	}
	if n := len(packets); n > most {
		for i := range most {
			packets[i] = packets[i*n/most]
		}
		packets = packets[:most]
	}
	return packets, nil
}

// inForce returns the program that a binary brings into force, which stays loaded behind it.
func inForce(ctx context.Context, h *lab.Host, dir, binary, path string) (
	p *ebpf.Program, took time.Duration, bytes int, err error) {
	dev := h.Devices[0].Name
	levee := func(args ...string) ([]byte, error) {
		cmd := h.Command(ctx, binary, args...)
		cmd.Env = append(os.Environ(), "LEVEE_RUN="+filepath.Join(dir, "run"),
			"LEVEE_LIB="+filepath.Join(dir, "lib"))
		out, err := cmd.Output()
		if exit, ok := err.(*exec.ExitError); ok {
			err = fmt.Errorf("%s %v: %w\n%s", binary, args, err, exit.Stderr)
		}
		return out, err
	}
	began := time.Now()
	if _, err := levee("up", path, "--dev", dev, "--mode", "xdp-native"); err != nil {
		return nil, 0, 0, err
	}
	took = time.Since(began)
	defer func() {
		if _, err2 := levee("down", "--dev", dev); err == nil {
			err = err2
		}
	}()
	out, err := levee("status", "--dev", dev, "--json")
	if err != nil {
		return nil, 0, 0, err
	}
	var status struct {
		Interfaces []struct {
			Program struct {
				ID    uint32 `json:"id"`
				Bytes int    `json:"jited_bytes"`
			} `json:"program"`
		} `json:"interfaces"`
	}
	if err := json.Unmarshal(out, &status); err != nil {
		return nil, 0, 0, fmt.Errorf("%s status --json: %w", binary, err)
	}
	if n := len(status.Interfaces); n != 1 {
		return nil, 0, 0, fmt.Errorf("%s status --json has %d interfaces", binary, n)
	}
	program := status.Interfaces[0].Program
	p, err = ebpf.NewProgramFromID(ebpf.ProgramID(program.ID))
	return p, took, program.Bytes, err
}
