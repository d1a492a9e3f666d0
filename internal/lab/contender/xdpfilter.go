package contender

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"strings"
)

// XDPFilter is xdp-filter of xdp-tools with what it can express of the demo policy.
func XDPFilter() Defence {
	return &xdpFilter{
		what: "xdp-filter, policy deny, in the driver; the rules that it can express: ports 80 " +
			"and 443, exact addresses, default; counted by the driver",
		flags: "--policy deny --features tcp,udp,ipv4,ipv6", rules: xdpFilterRules,
	}
}

// XDPFilterAddresses is xdp-filter with a deny list of addresses of one family, each added by a
// process: it has no other way.
func XDPFilterAddresses(prefixes []netip.Prefix, width int) Defence {
	f := &xdpFilter{
		what:  "xdp-filter of xdp-tools, a deny list of single addresses, in the driver",
		flags: "--policy allow --features " + map[int]string{32: "ipv4", 128: "ipv6"}[width],
	}
	for _, p := range prefixes {
		f.rules = append(f.rules, []string{"ip", "-m", "src", p.Addr().String()})
	}
	return f
}

type xdpFilter struct {
	counted
	what, flags string
	rules       [][]string // arguments of a process each
	shell       *exec.Cmd
	stdin       io.Closer
	stderr      strings.Builder
}

func (*xdpFilter) Name() string       { return "xdp-filter" }
func (*xdpFilter) Hook() Hook         { return XDP }
func (f *xdpFilter) Describe() string { return f.what }
func (f *xdpFilter) Rules() string {
	var b strings.Builder
	for _, args := range f.rules {
		fmt.Fprintln(&b, "xdp-filter", strings.Join(args, " "))
	}
	return b.String()
}

// xdpFilterScript keeps what xdp-filter pins in a bpffs of its own: the tables of xdp-filter are
// one for the whole machine, and those that its owner may use are not to be touched. The filter is
// in force until the shell, which holds the mount namespace, reads the end of its input, which
// begins with the arguments for each rule; or until one is refused.
const xdpFilterScript = `set -e
mount -t bpf bpf /sys/fs/bpf
xdp-filter load %[1]s --mode native %[2]s
trap 'xdp-filter unload %[1]s' EXIT
while read -r rule && [ "$rule" != end ]; do xdp-filter $rule; done
echo ready
cat >/dev/null`

func (f *xdpFilter) Install(ctx context.Context, s Site) error {
	if err := Need("xdp-filter", "xdp-tools"); err != nil {
		return err
	}
	f.stderr.Reset()
	// Not ended with ctx: Remove lets it unload.
	sh := s.Host.Command(context.WithoutCancel(ctx), "unshare", "--mount", "sh", "-c",
		fmt.Sprintf(xdpFilterScript, s.Device, f.flags))
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
	for _, args := range f.rules {
		fmt.Fprintln(stdin, strings.Join(args, " "))
	}
	fmt.Fprintln(stdin, "end")
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if lines.Text() == "ready" {
			return f.start(s)
		}
	}
	if err := f.end("loading xdp-filter"); err != nil {
		return err
	}
	return errors.New("xdp-filter ended by itself")
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
