package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// sysctlDir shows the settings of the network namespace of the thread that looks.
const sysctlDir = "/proc/sys/net"

// sysctls prepares the namespace of the calling thread, before it has devices. A flood has
// sources from anywhere, which a reverse-path filter would drop in front of what is measured;
// duplicate address detection and router solicitation would add packets of the kernel's own.
func sysctls(forward bool) error {
	type setting struct{ path, value string }
	settings := []setting{
		{"ipv4/conf/all/rp_filter", "0"},
		{"ipv4/conf/default/rp_filter", "0"},
		{"ipv4/conf/all/log_martians", "0"},
		{"ipv4/conf/default/log_martians", "0"},
	}
	if HaveIPv6() {
		settings = append(settings,
			setting{"ipv6/conf/all/disable_ipv6", "0"},
			setting{"ipv6/conf/default/disable_ipv6", "0"},
			setting{"ipv6/conf/default/accept_dad", "0"},
			setting{"ipv6/conf/default/dad_transmits", "0"},
			setting{"ipv6/conf/default/accept_ra", "0"},
			setting{"ipv6/conf/default/router_solicitations", "0"})
	}
	if forward {
		settings = append(settings, setting{"ipv4/ip_forward", "1"})
		if HaveIPv6() {
			settings = append(settings, setting{"ipv6/conf/all/forwarding", "1"})
		}
	}
	for _, s := range settings {
		if err := os.WriteFile(filepath.Join(sysctlDir, s.path), []byte(s.value),
			0); err != nil {
			return fmt.Errorf("setting net/%s: %w", s.path, err)
		}
	}
	return nil
}

// tune sets offloads, GRO and threaded NAPI of all devices of a host. It runs inside its
// namespace.
func tune(h *Host, t Topology) error {
	for i := range h.Devices {
		d := &h.Devices[i]
		if !t.Offload {
			if err := SendPlain(d.Name); err != nil {
				return err
			}
		}
		// GRO makes veth receive by NAPI, hence take XDP frames from its peer
		// (drivers/net/veth.c, veth_set_features).
		if err := SetGRO(d.Name, true); err != nil {
			return err
		}
		before := namedNAPIThreads(d.Name)
		if err := threadNAPI(d.Name, true); err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
		pids, err := napiThreads(d.Index)
		if err != nil {
			return fmt.Errorf("%s: finding its NAPI thread: %w", d.Name, err)
		}
		if len(pids) == 0 { // a kernel that cannot tell; labs are made in turn
			for p := range namedNAPIThreads(d.Name) {
				if !before[p] {
					pids = append(pids, p)
				}
			}
			slices.Sort(pids)
			if d.Taken != nil {
				d.Taken.Made = pids
			}
		}
		pid := 0
		if len(pids) > 0 {
			pid = pids[0]
		}
		d.NAPI = pid
		d.CPU = t.GeneratorCPU
		if d.IPv4.Addr().As4()[3] == 1 {
			d.CPU = t.ReceiverCPU
		}
		if d.CPU < 0 || pid == 0 {
			d.CPU = -1
			continue
		}
		var set unix.CPUSet
		set.Set(d.CPU)
		for _, pid := range pids {
			if err := unix.SchedSetaffinity(pid, &set); err != nil {
				return fmt.Errorf("%s: pinning its NAPI thread to core %d: %w", d.Name, d.CPU, err)
			}
		}
	}
	return nil
}

// threadNAPI has a device of the calling thread's namespace receive in threads, or not.
func threadNAPI(device string, on bool) error {
	value := []byte("0")
	if on {
		value = []byte("1")
	}
	err := withThreaded(device, func(path string) error { return os.WriteFile(path, value, 0) })
	if err != nil {
		return fmt.Errorf("threading NAPI (needs Linux 5.12): %w", err)
	}
	return nil
}

// threadedNAPI tells whether it does; not where the kernel has no such threads.
func threadedNAPI(device string) (on bool, err error) {
	err = withThreaded(device, func(path string) error {
		text, err := os.ReadFile(path)
		on = strings.TrimSpace(string(text)) == "1"
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return on, err
}

// withThreaded calls f with the file of a device's attribute `threaded`. sysfs shows the devices of
// the namespace that mounted it, so a thread with a mount namespace of its own mounts one.
func withThreaded(device string, f func(path string) error) error {
	home, err := unix.Open(threadNetns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening the current network namespace: %w", err)
	}
	defer unix.Close(home)
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespaces
		done <- func() error {
			if err := unix.Setns(home, unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("entering the network namespace: %w", err)
			}
			if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("making a mount namespace: %w", err)
			}
			if err := unix.Mount("", "/", "none", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return fmt.Errorf("making mounts private: %w", err)
			}
			// EBUSY: what is there already is of this namespace.
			err := unix.Mount("sysfs", "/sys", "sysfs", 0, "")
			if err != nil && !errors.Is(err, unix.EBUSY) {
				return fmt.Errorf("mounting sysfs: %w", err)
			}
			return f(filepath.Join("/sys/class/net", device, "threaded"))
		}()
	}()
	return <-done
}

// Of include/uapi/linux/netdev.h.
const (
	netdevCmdNAPIGet   = 11
	netdevAttrNAPIDev  = 1
	netdevAttrNAPIID   = 2
	netdevAttrNAPIPID  = 4
	netdevFamily       = "netdev"
	netdevGenlRevision = 1
)

// napiThreads returns the process ids of the kernel threads that poll a device, in the order in
// which the driver created its NAPI instances: the first receive queue's thread is first, those of
// transmit queues are last. The list is empty without such threads, and on kernels that cannot tell
// (before 6.8).
func napiThreads(index int) (pids []int, err error) {
	fam, err := netlink.GenlFamilyGet(netdevFamily)
	if err != nil {
		return nil, nil
	}
	req := nl.NewNetlinkRequest(int(fam.ID), unix.NLM_F_DUMP)
	// Not nl.Genlmsg: it serialises two bytes beyond itself, and the kernel checks that they are 0.
	req.AddRawData([]byte{netdevCmdNAPIGet, netdevGenlRevision, 0, 0})
	req.AddRawData(nl.NewRtAttr(netdevAttrNAPIDev, nl.Uint32Attr(uint32(index))).Serialize())
	msgs, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	type thread struct{ id, pid int }
	var threads []thread
	for _, m := range msgs {
		if len(m) < nl.SizeofGenlmsg {
			continue
		}
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofGenlmsg:])
		if err != nil {
			return nil, err
		}
		var t thread
		for _, a := range attrs {
			if len(a.Value) != 4 {
				continue
			}
			switch n := int(binary.NativeEndian.Uint32(a.Value)); a.Attr.Type {
			case netdevAttrNAPIID:
				t.id = n
			case netdevAttrNAPIPID:
				t.pid = n
			}
		}
		if t.pid != 0 {
			threads = append(threads, t)
		}
	}
	slices.SortFunc(threads, func(a, b thread) int { return a.id - b.id })
	for _, t := range threads {
		pids = append(pids, t.pid)
	}
	return pids, nil
}

// thread holds the scheduling of a kernel thread that labs and measurements change.
type thread struct {
	CPUs unix.CPUSet // that it may use
	Nice int
	// Policy of the scheduler, 0 for the usual one, and Priority of a real-time one.
	Policy, Priority uint32 `json:",omitempty"`
}

// readThreads reads what a lab changes of the NAPI threads of a device, in their order.
func readThreads(index int) ([]thread, error) {
	pids, err := napiThreads(index)
	if err != nil {
		return nil, fmt.Errorf("finding the NAPI threads: %w", err)
	}
	all := make([]thread, 0, len(pids))
	for _, pid := range pids {
		var t thread
		a, err := unix.SchedGetAttr(pid, 0)
		if err := errors.Join(err, unix.SchedGetaffinity(pid, &t.CPUs)); err != nil {
			return nil, fmt.Errorf("reading the NAPI thread %d: %w", pid, err)
		}
		t.Nice, t.Policy, t.Priority = int(a.Nice), a.Policy, a.Priority
		all = append(all, t)
	}
	return all, nil
}

// restoreThreads gives the NAPI threads of a device back what they had. A driver may have made them
// anew: they are known by their order. Those that were not there get what the kernel gives each.
func (d *Device) restoreThreads(index int) error {
	told, err := napiThreads(index)
	if err != nil {
		return fmt.Errorf("finding the NAPI threads: %w", err)
	}
	err = putThreads(d.threads(told), d.Taken.Threads)
	if err != nil {
		return fmt.Errorf("giving the NAPI threads their cores and priorities back: %w", err)
	}
	return nil
}

// threads returns the NAPI threads of a taken device: those that the kernel lists (told), else
// those that the lab created and that still run.
func (d *Device) threads(told []int) []int {
	if len(told) > 0 || len(d.Taken.Made) == 0 {
		return told
	}
	named := namedNAPIThreads(d.Name)
	return slices.DeleteFunc(slices.Clone(d.Taken.Made), func(p int) bool { return !named[p] })
}

// putThreads gives each thread what the one in its place had.
func putThreads(pids []int, had []thread) (err error) {
	for n, pid := range pids {
		var was thread
		for i := range was.CPUs {
			was.CPUs[i]-- // every core: the kernel leaves out those that there are not
		}
		if n < len(had) {
			was = had[n]
		}
		err = errors.Join(err, unix.SchedSetaffinity(pid, &was.CPUs),
			unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: was.Policy,
				Nice: int32(was.Nice), Priority: was.Priority}, 0))
	}
	return err
}

// namedNAPIThreads lists the NAPI threads of all devices of that name, in all namespaces.
func namedNAPIThreads(device string) map[int]bool {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	pids := make(map[int]bool)
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		// Not from a process of that name: only kernel threads have no command line.
		comm, _ := os.ReadFile(filepath.Join("/proc", p.Name(), "comm"))
		if !strings.HasPrefix(string(comm), "napi/"+device+"-") {
			continue
		}
		if args, err := os.ReadFile(filepath.Join("/proc", p.Name(), "cmdline")); err == nil &&
			len(args) == 0 {
			pids[pid] = true
		}
	}
	return pids
}
