// Package tcpdump has tcpdump's expressions made into filters by the tcpdump that is installed:
// libpcap is a library of C, and what there is in Go judges other packets than it does
// (docs/explanation/decisions/0053-capture.md).
package tcpdump

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/net/bpf"
)

// Link is tcpdump's name of a link layer.
type Link string

// Links.
const (
	Ethernet Link = "EN10MB"
	RawIP    Link = "RAW"
)

// atMost is the longest time that tcpdump may take.
const atMost = 10 * time.Second

// Compile makes a filter of an expression (pcap-filter(7)). It says of a packet's first bytes
// whether it is wanted: 0 is no. The errors are those of tcpdump, or that there is none.
func Compile(ctx context.Context, link Link, expression string) ([]bpf.Instruction, error) {
	path, err := exec.LookPath("tcpdump")
	if err != nil {
		return nil, errors.New("tcpdump reads the expression, and is not installed: install it, " +
			"for example by `apt install tcpdump`, or capture without an expression")
	}
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, path, "-y", string(link), "-ddd", "-s", "262144", "--",
		expression)
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(said.String()); text != "" {
			return nil, errors.New(text)
		}
		return nil, fmt.Errorf("run %s: %w", path, err)
	}
	return parse(out.String())
}

// parse reads what tcpdump -ddd prints: a number of lines, and an instruction a line.
func parse(text string) ([]bpf.Instruction, error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	raw := make([]bpf.RawInstruction, 0, len(lines)-1)
	for _, line := range lines[1:] {
		var r bpf.RawInstruction
		if _, err := fmt.Sscan(line, &r.Op, &r.Jt, &r.Jf, &r.K); err != nil {
			return nil, fmt.Errorf("tcpdump printed %q, which is no instruction: %w", line, err)
		}
		raw = append(raw, r)
	}
	filter, all := bpf.Disassemble(raw)
	if !all || len(filter) == 0 {
		return nil, fmt.Errorf("tcpdump printed instructions that are not known: %q", text)
	}
	return filter, nil
}
