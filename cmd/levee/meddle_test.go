package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func init() { programs["meddle"] = meddle }

// meddle is `meddle [-listen ADDRESS] DIR...`: tries to read, change, use and end all that is in
// directories, that levee's processes have, and that the kernel has of it. The lines of standard
// input are secrets. It prints what it could do.
func meddle() {
	did := func(what string, args ...any) { fmt.Printf(what+"\n", args...) }
	var secrets []string
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		secrets = append(secrets, strings.TrimSpace(in.Text()))
	}
	args := os.Args[1:]
	if len(args) > 1 && args[0] == "-listen" {
		meddleAPI(&http.Client{Timeout: 10 * time.Second}, args[1], did)
		args = args[2:]
	}
	for _, dir := range args {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if d != nil {
				meddleFile(path, d, secrets, did)
			}
			return nil // what cannot be entered is not entered
		})
	}
	meddleProcesses(secrets, did)
	meddleKernel(did)
}

// nspawnWorks says whether this machine runs containers of systemd, whose root is of one program.
func nspawnWorks() bool {
	root, err := os.MkdirTemp("", "levee-nspawn-")
	if err != nil {
		return false
	}
	defer os.RemoveAll(root)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil || os.Mkdir(filepath.Join(root, "usr"), 0o755) != nil ||
		os.WriteFile(filepath.Join(root, "usr", "levee"), self, 0o755) != nil {
		return false
	}
	return exec.Command("systemd-nspawn", "-q", "--register=no", "--keep-unit", "--as-pid2",
		"--pipe", "--private-users=pick", "-D", root, "/usr/levee", "version").Run() == nil
}

func meddleFile(path string, d fs.DirEntry, secrets []string, did func(string, ...any)) {
	switch t := d.Type(); {
	case d.IsDir():
		if f, err := os.CreateTemp(path, "meddle"); err == nil {
			f.Close()
			os.Remove(f.Name())
			did("%s: a file was made in it", path)
		}
		if err := unix.Mount("none", path, "tmpfs", 0, ""); err == nil {
			_ = unix.Unmount(path, unix.MNT_DETACH)
		}
	case t&fs.ModeSocket != 0:
		for _, network := range []string{"unix", "unixgram"} {
			c, err := net.Dial(network, path)
			if err != nil {
				continue
			}
			c.Close()
			did("%s: takes connections", path)
			meddleAPI(&http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
				DialContext: func(context.Context, string, string) (net.Conn, error) {
					return net.Dial("unix", path)
				}}}, "http://agent", did)
		}
	case t.IsRegular():
		if b, err := os.ReadFile(path); err == nil {
			did("%s: was read", path)
			tells(path, b, secrets, did)
		}
		read := &ebpf.LoadPinOptions{ReadOnly: true}
		if m, err := ebpf.LoadPinnedMap(path, nil); err == nil {
			m.Close()
			did("%s: is a map that can be written", path)
		}
		if p, err := ebpf.LoadPinnedProgram(path, read); err == nil {
			p.Close()
			did("%s: is a program that can be run", path)
		}
		if l, err := link.LoadPinnedLink(path, read); err == nil {
			l.Close()
			did("%s: is a link", path)
		}
	}
	if f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|unix.O_NONBLOCK, 0); err == nil {
		f.Close()
		did("%s: can be written", path)
	}
	if f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || errors.Is(err, unix.EWOULDBLOCK) { // as soon as who has it ends
			did("%s: can be locked", path)
		}
		f.Close()
	}
	if os.Chmod(path, 0o777) == nil || os.Rename(path, path+".meddled") == nil {
		did("%s: was changed", path)
	}
}

// tells says whether some text has a secret.
func tells(where string, text []byte, secrets []string, did func(string, ...any)) {
	for _, s := range secrets {
		if len(s) > 0 && bytes.Contains(text, []byte(s)) {
			did("%s: has a secret", where)
		}
	}
}

// meddleAPI asks an API without a token.
func meddleAPI(client *http.Client, at string, did func(string, ...any)) {
	for _, ask := range []string{"GET status", "GET interfaces", "GET leases", "GET policies",
		"GET incidents", "GET parts", "GET me", "GET sets", "GET series", "GET events",
		"POST leases", "DELETE sets/abusers/entries?entry=192.0.2.1", "POST check"} {
		method, path, _ := strings.Cut(ask, " ")
		req, err := http.NewRequest(method, at+"/api/v1/"+path,
			strings.NewReader(`{"set":"abusers","entries":["192.0.2.66"]}`))
		if err != nil {
			fail(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer levee_guess")
		res, err := client.Do(req)
		if err != nil {
			continue
		}
		res.Body.Close()
		if res.StatusCode < 400 {
			did("%s %s: %s", at, ask, res.Status)
		}
	}
}

// meddleProcesses looks into all processes of others.
func meddleProcesses(secrets []string, did func(string, ...any)) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range all {
		var s unix.Stat_t
		name, err := os.ReadFile(filepath.Join(proc, "comm"))
		if err != nil || strings.TrimSpace(string(name)) != "levee" ||
			unix.Stat(proc, &s) != nil || int(s.Uid) == os.Getuid() {
			continue
		}
		for _, what := range []string{"environ", "maps", "mem", "auxv", "stack", "fd", "root",
			"cwd"} {
			if f, err := os.Open(filepath.Join(proc, what)); err == nil {
				if _, err := f.Read(make([]byte, 1)); err == nil {
					did("%s of levee: was read", what)
				}
				f.Close()
			}
		}
		if b, err := os.ReadFile(filepath.Join(proc, "cmdline")); err == nil {
			tells("the arguments of levee", b, secrets, did)
		}
		pid := 0
		fmt.Sscan(filepath.Base(proc), &pid)
		if unix.Kill(pid, 0) == nil || unix.PtraceSeize(pid) == nil {
			did("levee can be ended")
		}
	}
}

// meddleKernel opens what the kernel has by its numbers, and takes policies off.
func meddleKernel(did func(string, ...any)) {
	for id := range uint32(20_000) {
		if p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id)); err == nil {
			p.Close()
			did("a program was opened by its number")
		}
		if m, err := ebpf.NewMapFromID(ebpf.MapID(id)); err == nil {
			m.Close()
			did("a map was opened by its number")
		}
		if l, err := link.NewFromID(link.ID(id)); err == nil {
			l.Close()
			did("a link was opened by its number")
		}
	}
	l, err := netlink.LinkByName("lv0")
	if err != nil {
		return
	}
	if netlink.LinkSetXdpFd(l, -1) == nil ||
		netlink.LinkSetXdpFdWithFlags(l, -1, unix.XDP_FLAGS_SKB_MODE) == nil ||
		netlink.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: l.Attrs().Index, Parent: netlink.HANDLE_CLSACT}}) == nil {
		did("a program was taken off the interface")
	}
	if netlink.LinkSetMTU(l, 1400) == nil || netlink.LinkSetDown(l) == nil {
		did("the interface was changed")
	}
}
