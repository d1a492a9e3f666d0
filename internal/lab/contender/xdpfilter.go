package contender

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// XDPFilter is xdp-filter of xdp-tools.
func XDPFilter() Defence { return &xdpFilter{} }

type xdpFilter struct {
	counted
	shell  *exec.Cmd
	stdin  io.Closer
	stderr strings.Builder
}

func (*xdpFilter) Name() string { return "xdp-filter" }
func (*xdpFilter) Hook() Hook   { return XDP }
func (*xdpFilter) Rules() string {
	var b strings.Builder
	for _, args := range xdpFilterRules {
		fmt.Fprintln(&b, "xdp-filter", strings.Join(args, " "))
	}
	return b.String()
}
func (*xdpFilter) Describe() string {
	return "xdp-filter, policy deny, in the driver; the rules that it can express: ports 80 and 443, exact addresses, default; counted by the driver"
}

// xdpFilterScript keeps what xdp-filter pins in a bpffs of its own: the tables of xdp-filter are one
// for the whole machine, and those that its owner may use are not to be touched. The filter is in force
// while the shell, which holds the mount namespace, waits for the end of its input. `%s` are the
// device, and a line for each rule.
const xdpFilterScript = `set -e
mount -t bpf bpf /sys/fs/bpf
xdp-filter load %[1]s --mode native --policy deny --features tcp,udp,ipv4,ipv6
%[2]s
echo ready
cat
xdp-filter unload %[1]s`

func (f *xdpFilter) Install(ctx context.Context, s Site) error {
	if err := need("xdp-filter", "xdp-tools"); err != nil {
		return err
	}
	f.stderr.Reset()
	// Not ended with ctx: Remove lets it unload.
	sh := s.Host.Command(context.WithoutCancel(ctx), "unshare", "--mount", "sh", "-c", fmt.Sprintf(xdpFilterScript, s.Device, f.Rules()))
	sh.Stderr = &f.stderr
	stdin, err := sh.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := sh.StdoutPipe()
	if err != nil {
		return err
	}
	if err := sh.Start(); err != nil {
		return fmt.Errorf("starting xdp-filter: %w", err)
	}
	f.shell, f.stdin = sh, stdin
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if lines.Text() == "ready" {
			return f.start(s)
		}
	}
	return f.end("loading xdp-filter")
}

// end waits for the shell and says what went wrong in it.
func (f *xdpFilter) end(doing string) error {
	f.stdin.Close()
	err := f.shell.Wait()
	f.shell = nil
	if err == nil {
		return nil
	}
	said, _, _ := strings.Cut(strings.TrimSpace(f.stderr.String()), "\n")
	return fmt.Errorf("%s: %w: %s", doing, err, said)
}

func (f *xdpFilter) Remove(context.Context) error {
	if f.shell == nil {
		return nil
	}
	return f.end("unloading xdp-filter")
}
