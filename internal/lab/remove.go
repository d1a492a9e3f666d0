package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Info describes a lab on record.
type Info struct {
	Name       string
	Owner      int // process id
	Persistent bool
	Hosts      []*Host
}

// List returns the labs that exist, and those whose owners died without removing them: the next
// Sweep does.
func List() (all, left []Info, err error) {
	recs, err := records()
	if err != nil {
		return nil, nil, err
	}
	for _, r := range recs {
		info := Info{r.Name, r.Owner, r.Persistent, r.Hosts}
		if r.alive() {
			all = append(all, info)
		} else {
			left = append(left, info)
		}
	}
	return all, left, nil
}

// Down removes a lab by name, whoever made it, with every process in its namespaces. It returns
// ErrNoLab if there is none. Like New, it first sweeps.
func Down(ctx context.Context, name string) error {
	unlock, err := lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	swept := sweep() // whose failure keeps nobody from removing this one
	rec, err := load(name)
	if err == nil {
		err = rec.remove()
	}
	return errors.Join(err, swept)
}

// Sweep removes the labs whose owners died without doing so, and gives back the settings of this
// machine that they had changed.
func Sweep(ctx context.Context) error {
	unlock, err := lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return sweep()
}

// sweep is Sweep for those who hold the lock.
func sweep() error {
	recs, err := records()
	if err != nil {
		return err
	}
	errs := []error{settleAll()}
	for _, r := range recs {
		if !r.alive() {
			errs = append(errs, r.remove())
		}
	}
	return errors.Join(errs...)
}

// remove takes a lab apart and then its record away; whatever fails stays on record.
func (r *record) remove() error {
	var errs, told []error
	for _, h := range r.Hosts {
		said, err := h.remove()
		told, errs = append(told, said), append(errs, err)
	}
	said, err := errors.Join(told...), errors.Join(errs...)
	if err == nil {
		err = os.Remove(recordPath(r.Name))
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	if err = errors.Join(said, err); err != nil {
		return fmt.Errorf("removing lab %s: %w", r.Name, err)
	}
	return nil
}

// remove takes a host apart: devices first, which go home if they were taken, since the namespace
// itself may linger in the kernel for a while, then the name, so that nobody enters any more, then
// the processes inside. told is what is not as it was at a device that has gone home: that is no
// reason to keep the lab.
func (h *Host) remove() (told, err error) {
	// While it is open, the kernel cannot give the inode to another namespace.
	f, err := os.Open(filepath.Join(netnsDir, h.Namespace))
	if err == nil {
		defer f.Close()
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return nil, fmt.Errorf("identifying network namespace %s: %w", h.Namespace, err)
		}
		if st.Ino == h.Inode && isNSFS(f.Name()) {
			defer endProcesses(h.Inode)
			err := h.Do(func() (err error) {
				told, err = clear(h.Devices)
				return err
			})
			if err != nil {
				return told, err
			}
		}
	}
	for i := range h.Devices {
		if d := &h.Devices[i]; d.Taken != nil {
			told = errors.Join(told, d.arrive())
		}
	}
	return told, dropNetns(h.Namespace, h.Inode)
}

// clear deletes devices of the calling thread's namespace, and sends those home that were taken.
func clear(devices []Device) (told, err error) {
	for i := range devices {
		d := &devices[i]
		if d.Taken != nil {
			said, err := d.leave()
			if told = errors.Join(told, said); err != nil {
				return told, err
			}
			continue
		}
		link, err := netlink.LinkByName(d.Name)
		if err != nil {
			continue // its peer went first
		}
		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			return told, fmt.Errorf("deleting %s: %w", d.Name, err)
		}
	}
	return told, nil
}

// endProcesses ends what runs in a namespace: asks, waits up to a second, kills. This process
// and those that it descends from are spared.
func endProcesses(ino uint64) {
	spare := ancestors()
	deadline := time.Now().Add(time.Second)
	sig := unix.SIGTERM
	for {
		pids := processesIn(ino, spare)
		if len(pids) == 0 {
			return
		}
		for _, p := range pids {
			_ = unix.Kill(p, sig) // gone already is as good
		}
		if sig == unix.SIGKILL {
			return
		}
		for len(processesIn(ino, spare)) > 0 && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
		sig = unix.SIGKILL
	}
}

func processesIn(ino uint64, spare map[int]bool) []int {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil || spare[pid] {
			continue
		}
		if n, err := inode(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && n == ino {
			pids = append(pids, pid)
		}
	}
	return pids
}

// ancestors lists this process and its parents.
func ancestors() map[int]bool {
	m := map[int]bool{os.Getpid(): true}
	for pid := os.Getppid(); pid > 0 && !m[pid]; {
		m[pid] = true
		var ppid int
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			break
		}
		i := len(b) - 1
		for i >= 0 && b[i] != ')' {
			i--
		}
		var state byte
		if _, err := fmt.Sscanf(string(b[i+1:]), " %c %d", &state, &ppid); err != nil {
			break
		}
		pid = ppid
	}
	return m
}
