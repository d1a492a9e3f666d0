package attach

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/dispatcher"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// monitorProgram is the name of the program of `levee monitor mpegts --mode xdp`.
const monitorProgram = "mpegts_xdp"

// RefuseForeign returns an error if somebody else's XDP program is on the interface, unless that is
// a dispatcher of libxdp which levee can join.
func RefuseForeign(s *store.Store, d *Device) (joins bool, err error) {
	if err := s.Step("foreign"); err != nil {
		return false, err
	}
	if d.XDP == 0 {
		return false, nil
	}
	switch ProgramName(d.XDP) {
	case strconv.Quote(dispatcher.Name):
	case strconv.Quote(monitorProgram):
		return false, kernel.RefuseAs(unix.EBUSY, "%s runs the monitor of streams at XDP%s: end "+
			"it, or begin it without --mode xdp, so that it is behind policies", d.Name,
			heldBy(d.XDP))
	default:
		return false, kernel.RefuseAs(unix.EBUSY, "%s", foreign(d, fmt.Sprintf("remove it first "+
			"(`ip link set dev %s %s off`, or with the tool that attached it)", d.Name, d.XDPOff)))
	}
	there, err := dispatcher.Read(dispatcher.Interface{Index: d.Index, In: (&namespace{}).in})
	if err == nil {
		there.Close()
		err = dispatcher.Check()
	}
	if err != nil {
		return false, cannotJoin(d, err)
	}
	return true, nil
}

// foreign says that an interface has somebody else's XDP program, and what to do.
func foreign(d *Device, do string) string {
	return fmt.Sprintf("%s already runs the XDP program %s (id %d%s), which is not levee's and "+
		"stays; %s or use --mode tcx", d.Name, ProgramName(d.XDP), d.XDP, heldBy(d.XDP), do)
}

// ProgramName returns the name of a program in quotes, or words that say that it has no name.
func ProgramName(id uint32) string {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return "of unknown name"
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil || info.Name == "" {
		return "without a name"
	}
	return fmt.Sprintf("%q", info.Name)
}

// heldBy names the processes that hold a program or a link of it open, "" if there are none: then
// it is pinned, or held by the interface alone. It looks for a moment only, as a machine may have
// very many open files.
func heldBy(id uint32) string {
	const most = 3
	line := regexp.MustCompile(fmt.Sprintf(`(?m)^prog_id:\s*%d$`, id))
	var who []string
	until := time.Now().Add(200 * time.Millisecond)
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid := filepath.Base(dir)
		if pid == strconv.Itoa(os.Getpid()) {
			continue
		}
		if len(who) == most || time.Now().After(until) {
			break
		}
		if holds(dir, line) {
			name, _ := os.ReadFile(dir + "/comm")
			who = append(who, fmt.Sprintf("%q %s", strings.TrimSpace(string(name)), pid))
		}
	}
	if len(who) == 0 {
		return ""
	}
	return ", held by process " + strings.Join(who, ", ")
}

// holds says whether a process has an open eBPF program or link whose description has the line.
func holds(dir string, line *regexp.Regexp) bool {
	fds, _ := os.ReadDir(dir + "/fd")
	return slices.ContainsFunc(fds, func(fd os.DirEntry) bool {
		to, _ := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
		if to != "anon_inode:bpf-prog" && to != "anon_inode:bpf_link" {
			return false
		}
		text, _ := os.ReadFile(filepath.Join(dir, "fdinfo", fd.Name()))
		return line.Match(text)
	})
}
