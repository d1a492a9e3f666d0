package route

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/bench"
	"levee/internal/bench/lookup"
	"levee/internal/filter/assembler"
	"levee/internal/kernel"
	"levee/internal/lab"
)

// fib returns the kernel's routing table, in a namespace of its own, asked by bpf_fib_lookup as a
// forwarding program asks it.
func fib(ctx context.Context) lookup.Structure {
	return lookup.Structure{
		Name: "kernel FIB",
		What: "the routing table, asked by bpf_fib_lookup without resolving the neighbour; it " +
			"gives the next hop, where the others say yes or no",
		Build: func(prefixes []netip.Prefix, width int) (*lookup.Built,
			error) {
			return buildFIB(ctx, prefixes, width)
		},
	}
}

// Bounds of what a route takes, in bytes, to refuse what does not fit before the machine is short
// of memory. Measured: IPv4 160, IPv6 760 to 810 on two cores, more on more: next hops have a part
// for each.
const (
	perRoute4 = 256
	perRoute6 = 1024
)

// minGrowth is the least growth of the kernel's memory that says something about what was just
// done.
const minGrowth = 1 << 20

// routerHost is the outer end of the lab's link: the one that has no default route.
const routerHost = "router"

func buildFIB(ctx context.Context, prefixes []netip.Prefix, width int) (_ *lookup.Built,
	err error) {
	need := int64(len(prefixes)) * perRoute4
	if width == 128 {
		need = int64(len(prefixes)) * (perRoute6 + 8*int64(runtime.NumCPU()))
	}
	if free, err := available(); err != nil {
		return nil, err
	} else if need > free/2 {
		return nil, fmt.Errorf("%d routes may take %d MB, more than half of the %d MB that this "+
			"machine has free", len(prefixes), need>>20, free>>20)
	}
	// The lab outlives ctx: close takes the routes out first.
	l, err := lab.New(context.WithoutCancel(ctx),
		lab.Topology{Pairs: []lab.Pair{{Inner: "stub", Outer: routerHost}},
			Forward: []string{routerHost}})
	if err != nil {
		return nil, err
	}
	h := l.Host(routerHost)
	d := &h.Devices[0]
	b := &lookup.Built{Within: h.Do}
	b.Closers = append(
		b.Closers, func() error {
			return errors.Join(h.Do(func() error { return flush(d.Name) }),
				l.Close())
		})
	before, err := bench.KernelMemory()
	if err != nil {
		return b, err
	}
	gateway := d.Peer.IPv4
	if width == 128 {
		gateway = d.Peer.IPv6
	}
	var r *router
	if err := h.Do(func() (err error) {
		r,
			err = newRouter(d.Index, gateway)
		return err
	}); err != nil {
		return b, err
	}
	b.Closers = append(b.Closers, func() error { r.close(); return nil })
	install, cancel := context.WithTimeout(ctx, installDeadline)
	defer cancel()
	start := time.Now()
	if err := r.add(install, prefixes); err != nil {
		if ctx.Err() == nil && install.Err() != nil {
			err = fmt.Errorf("not installed within %v", installDeadline)
		}
		return b, err
	}
	b.LoadTime = time.Since(start)
	after, err := bench.KernelMemory()
	if err != nil {
		return b, err
	}
	if grown := after - before; grown >= minGrowth {
		b.Memory = uint64(grown)
	}
	b.Update = r.replace
	b.Code = func(to *assembler.Builder) { askFIB(to, d.Index, width) }
	b.Depth = func(addrs []netip.Addr) (*lookup.Depth, string) {
		if width == 32 {
			return triestat(b.Within)
		}
		t := lookup.NewRadix(prefixes)
		return lookup.DepthOf(addrs, fmt.Sprintf("nodes on the way down, of %d in a copy of the "+
			"tree's shape", t.Count()), t.FIBDepth), ""
	}
	return b, nil
}

// flush takes the device's routes out before the namespace goes: the kernel would do it later, in
// the background, at the expense of what is measured next.
func flush(device string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("looking at the router's device: %w", err)
	}
	if err := netlink.LinkSetDown(link); err != nil {
		return fmt.Errorf("taking the router's device down: %w", err)
	}
	return nil
}

// available returns what the machine can still give, in bytes.
func available() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemAvailable:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("/proc/meminfo does not say how much memory is available")
}

// Offsets in struct bpf_fib_lookup (linux/bpf.h), which lies at the bottom of the stack's first 64
// bytes, and what its helper is asked and answers.
const (
	fibParams     = -64
	fibLength     = 6 // of the packet, for the MTU
	fibIfindex    = 8
	fibDst        = 32
	skipNeighbour = 1 << 2 // BPF_FIB_LOOKUP_SKIP_NEIGH, Linux 6.4
	noRoute       = 4      // BPF_FIB_LKUP_RET_NOT_FWDED
	// strange is added up for any other answer, so that nothing looks like so many hits.
	strange = 1 << 20
)

// askFIB looks the address in R1 and R2 up, from a device of the router; R9 is the context. The
// helper writes over what it is asked, so all of it is set each time.
func askFIB(b *assembler.Builder, ifindex, width int) {
	family := int64(unix.AF_INET)
	if width == 128 {
		family = unix.AF_INET6
	}
	b.Emit(asm.Mov.Imm(asm.R3, 0))
	for at := int16(0); at < 64; at += 8 {
		b.Emit(asm.StoreMem(asm.R10, fibParams+at, asm.R3, asm.DWord))
	}
	b.Emit(
		asm.StoreImm(asm.R10, fibParams, family, asm.Byte),
		asm.StoreImm(asm.R10, fibParams+fibLength, 64, asm.Half),
		asm.StoreImm(asm.R10, fibParams+fibIfindex, int64(ifindex), asm.Word),
	)
	lookup.StoreAddress(b, width, fibParams+fibDst)
	end := b.Fresh("end")
	b.Emit(
		asm.Mov.Reg(asm.R1, asm.R9),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, fibParams),
		asm.Mov.Imm(asm.R3, 64),
		asm.Mov.Imm(asm.R4, skipNeighbour),
		asm.FnFibLookup.Call(),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.Mov.Imm(asm.R0, 1),
		asm.JEq.Imm(asm.R1, 0, end),
		asm.Mov.Imm(asm.R0, 0),
		asm.JEq.Imm(asm.R1, noRoute, end),
		asm.Mov.Imm(asm.R0, strange),
	)
	b.Label(end)
}

// triestat returns what the kernel says of its IPv4 trie: the depth of its leaves, all alike.
func triestat(within func(func() error) error) (d *lookup.Depth, why string) {
	err := within(func() error {
		f, err := os.Open("/proc/thread-self/net/fib_triestat")
		if err != nil {
			return err
		}
		defer f.Close()
		d, err = parseTriestat(bufio.NewScanner(f))
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil, "this kernel does not tell (CONFIG_IP_FIB_TRIE_STATS)"
	}
	if err != nil {
		return nil, kernel.Refuse(err, "read the shape of the routing table").Error()
	}
	return d, ""
}

// parseTriestat reads the block of the main table of fib_triestat (net/ipv4/fib_trie.c).
func parseTriestat(lines *bufio.Scanner) (*lookup.Depth, error) {
	values := map[string]string{}
	for main := false; lines.Scan(); {
		line := lines.Text()
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case ok && value == "" && !strings.HasPrefix(line, "\t"): // the head of a table
			main = name == "Main"
		case ok && main:
			values[name] = strings.TrimSpace(value)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	mean, err1 := strconv.ParseFloat(values["Aver depth"], 64)
	most, err2 := strconv.Atoi(values["Max depth"])
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("fib_triestat has an unknown form: %w", err)
	}
	of := fmt.Sprintf("depth of the leaves by fib_triestat: %s leaves, %s inner nodes, %s",
		values["Leaves"], values["Internal nodes"],
		strings.Join(strings.Fields(values["Total size"]), " "))
	return &lookup.Depth{Mean: mean, Max: most, Of: of}, nil
}
