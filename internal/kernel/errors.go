package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ErrRefused is wrapped by every error that means "this machine cannot or may not do it", as
// opposed to a policy or a request that is wrong. levee exits with status 3 for it.
var ErrRefused = errors.New("refused by this machine")

// Refusal is an error of the machine with one line that says what to do about it. It matches
// ErrRefused and what it wraps.
type Refusal struct {
	Msg string // one line: what was being done, what is missing, what to do
	Err error  // the cause, or nil
	As  error  // what callers match, and Msg says in other words; or nil
}

func (r *Refusal) Error() string {
	if r.Err == nil {
		return r.Msg
	}
	return r.Msg + ": " + r.Err.Error()
}

// Unwrap gives the cause, what callers match and ErrRefused.
func (r *Refusal) Unwrap() []error {
	return slices.DeleteFunc([]error{ErrRefused, r.Err, r.As},
		func(err error) bool { return err == nil })
}

// Refuse makes a Refusal; err may be nil.
func Refuse(err error, format string, args ...any) error {
	return &Refusal{Msg: fmt.Sprintf(format, args...), Err: err}
}

// RefuseAs makes a Refusal that matches an error, and that says in its own words what this would.
func RefuseAs(as error, format string, args ...any) error {
	return &Refusal{Msg: fmt.Sprintf(format, args...), As: as}
}

// Verifier is a program that the kernel's verifier refused. Error is one line; Log is everything
// that the verifier said.
type Verifier struct {
	Doing string
	Old   string // why none but a refusal was to be expected, or ""
	Cause error
	Last  string // the line of the log that says why
	Log   []string
}

func (v *Verifier) Error() string {
	if v.Old != "" {
		return fmt.Sprintf("%s: %s (%v: %s)", v.Doing, v.Old, v.Cause, v.Last)
	}
	s := fmt.Sprintf("%s: the kernel's verifier refused it (%v)", v.Doing, v.Cause)
	if v.Last != "" {
		s += ": " + v.Last
	}
	return fmt.Sprintf("%s; the whole log has %d lines, add --verbose to see it, and please "+
		"report it with the policy", s, len(v.Log))
}

// Unwrap gives the cause and ErrRefused.
func (v *Verifier) Unwrap() []error { return []error{ErrRefused, v.Cause} }

// Log returns the whole verifier log in err, or "".
func Log(err error) string {
	var v *Verifier
	if errors.As(err, &v) {
		return strings.Join(v.Log, "\n")
	}
	return ""
}

// LoadError turns an error of loading a program or creating a map into one line that says what
// to do. doing is what was being done: "load program".
func LoadError(doing string, err error) error { return loadError(doing, err, Release()) }

func loadError(doing string, err error, release string) error {
	var ve *ebpf.VerifierError
	old := TooOld(release)
	switch {
	case err == nil:
		return nil
	case old != "" && errors.As(err, &ve) && len(ve.Log) > 0:
		return &Verifier{Doing: doing, Old: old, Cause: ve.Cause, Last: reason(ve.Log), Log: ve.Log}
	case old != "" && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOMEM):
		return Refuse(err, "%s: %s", doing, old)
	case errors.Is(err, unix.E2BIG), errors.Is(err, unix.EFAULT):
		// What the verifier walks and the ways it keeps open are bounded (kernel/bpf/verifier.c).
		return Refuse(err, "%s: the policy has more rules than the kernel's verifier takes; "+
			"rules on addresses, ports, ICMP types and protocols that follow one another become "+
			"tables, and sets cost one rule: use those instead of many others", doing)
	case errors.As(err, &ve) && len(ve.Log) > 0:
		return &Verifier{Doing: doing, Cause: ve.Cause, Last: reason(ve.Log), Log: ve.Log}
	case errors.Is(err, unix.EPERM):
		if perr := Privileged(); perr != nil {
			return perr
		}
		return Refuse(err,
			"%s: not permitted although CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN are there; a "+
				"security module (lockdown, SELinux) or a low RLIMIT_MEMLOCK (kernels before "+
				"5.11: "+
				"ulimit -l unlimited) forbids it", doing)
	case errors.Is(err, unix.ENOMEM):
		return Refuse(err, "%s: the kernel has not enough memory for the policy's tables; use "+
			"smaller sets or free memory", doing)
	case errors.Is(err, ebpf.ErrNotSupported):
		return Refuse(err, "%s: this kernel lacks something the program needs; levee needs Linux "+
			"%s or newer", doing, Oldest)
	case errors.Is(err, unix.EINVAL):
		return Refuse(err, "%s: the kernel does not know what it was asked for; levee needs "+
			"Linux %s or newer", doing, Oldest)
	}
	return Refuse(err, "%s", doing)
}

// reason finds the line of a verifier log that says why: the last one that is neither a summary
// nor an instruction nor a register state.
func reason(log []string) string {
	// Linux 7.3 and newer explain what they have said.
	if i := slices.IndexFunc(log, func(line string) bool {
		return strings.HasPrefix(line, "Verification failed:")
	}); i > 0 {
		log = log[:i]
	}
	for i := len(log) - 1; i >= 0; i-- {
		line := strings.TrimSpace(log[i])
		switch {
		case line == "", summary(line), instruction(line):
			continue
		}
		return line
	}
	return ""
}

func summary(line string) bool {
	for _, prefix := range []string{"processed ", "verification time", "stack depth",
		"mark_precise", "from "} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// instruction reports whether a line is "12: (85) call ..." or "12: R0=...".
func instruction(line string) bool {
	n, rest, ok := strings.Cut(line, ": ")
	if !ok {
		return false
	}
	_, err := strconv.Atoi(n)
	return err == nil && (strings.HasPrefix(rest, "(") || strings.HasPrefix(rest, "R"))
}

// Capabilities that attaching needs: number in linux/capability.h and name.
var needed = [...]struct {
	bit   uint
	name  string
	admin bool // CAP_SYS_ADMIN stands for it
}{{39, "CAP_BPF", true}, {38, "CAP_PERFMON", true}, {12, "CAP_NET_ADMIN", false}}

// Capability is a number of linux/capability.h.
type Capability uint

// With these capabilities some commands do more.
const (
	SysChroot Capability = 18
	SysAdmin  Capability = 21
)

// Holds says whether this thread has a capability.
func Holds(c Capability) bool {
	effective, err := capabilities()
	return err == nil && effective&(1<<c) != 0
}

// Privileged reports with a Refusal which capability is missing for bpf(2), nil if none is.
func Privileged() error {
	effective, err := capabilities()
	if err != nil {
		return Refuse(err, "read this process's capabilities")
	}
	var missing []string
	for _, c := range needed {
		if effective&(1<<c.bit) == 0 && !(c.admin && effective&(1<<SysAdmin) != 0) {
			missing = append(missing, c.name)
		}
	}
	if missing == nil {
		return nil
	}
	return RefuseAs(unix.EPERM, "this needs %s; run it as root (sudo)",
		listed(missing))
}

// listed is "A", "A and B" or "A, B and C".
func listed(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// capabilities returns the effective ones of this thread. A file of /proc would be one of a thread
// that may end while it is read.
func capabilities() (uint64, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return 0, fmt.Errorf("capget: %w", err)
	}
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), nil
}
