package profile

import (
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// Class is the work of the core at a moment.
type Class string

// The classes, in the order of reports.
const (
	Driver  Class = "driver"       // the innermost function is the network driver's
	Program Class = "eBPF program" // the innermost function is a program
	Helper  Class = "helpers"      // called by a program, at any depth
	// a function of netfilter, nftables, iptables or ipset, or called by one
	Netfilter Class = "netfilter"
	Kernel    Class = "kernel"      // any other function of the kernel, interrupts included
	User      Class = "user"        // the application of a rung that has one, outside the kernel
	Idle      Class = "idle"        // the idle task, not interrupted
	Others    Class = "other tasks" // processes that have nothing to do with the rung
	Unknown   Class = "unknown"     // the innermost function has no name
)

// Classes lists all of them.
var Classes = []Class{Driver, Program, Helper, Netfilter, Kernel, User, Idle, Others, Unknown}

// Rules class a sample, in the order of asking; the table of the documentation.
//
//  1. The task is neither the thread that receives nor levee itself (the application of some
//     rungs), nor the
//     idle one, nor the kernel's for soft interrupts, and no interrupt is on the stack: other
//     tasks.
//  2. Taken in user mode: user.
//  3. From the innermost function outwards, up to the entry of an interrupt: a program that is
//     innermost is
//     "eBPF program", a program further out makes it "helpers", a function that begins with one of
//     netfilterPrefixes "netfilter".
//  4. The innermost function has no symbol: unknown.
//  5. The innermost function is of the driver's module or begins with its name (functionsOf):
//     driver.
//  6. The task is the idle one and no interrupt or soft interrupt is on the stack: idle.
//  7. kernel.
//
// Of an interface in service there is no rung: rule 1 is asked behind rule 3 of what is taken in
// the kernel, and threads that receive are nobody's.
var (
	netfilterPrefixes = []string{"nf_", "__nf_", "nft_", "ipt_", "ip6t_", "xt_", "ip_set_",
		"hash_ip", "hash_net", "nfnetlink_", "ipv4_conntrack_", "ipv6_conntrack_"}
	// interruptPrefixes begin the functions between what was interrupted and what the interrupt
	// does. Exceptions, as page faults, are a task's own.
	interruptPrefixes = []string{"asm_sysvec_", "asm_common_interrupt", "sysvec_",
		"common_interrupt", "irq_exit", "__irq_exit", "do_softirq", "__do_softirq",
		"handle_softirqs", "el1h_64_irq", "el1_interrupt"}
	// softInterruptThread is the root of the thread that runs soft interrupts when there are many.
	softInterruptThread = "run_ksoftirqd"
	// receivingThread is the root of a thread that receives for one queue (threaded NAPI).
	receivingThread = "napi_threaded_poll"
	// functionsOf begins the functions of drivers that do not begin them with their own name. It
	// matters where the driver is no module but a part of the kernel.
	functionsOf = map[string]string{"virtio_net": "virtnet_", "hv_netvsc": "netvsc_",
		"bnxt_en": "bnxt_", "mlx5_core": "mlx5e_", "vif": "xennet_"}
)

// classifier knows the drivers of the receiving device.
type classifier struct {
	*symbols
	drivers []string // as ethtool names them, which are their modules' names
	own     []uint32 // processes that belong to the rung
	// live is set in service, where there is no rung: filters count whoever sends or receives, and
	// so do all threads that receive.
	live bool
}

// class returns the class of a sample whose functions are stack, innermost first, and for programs
// and helpers the id of the program.
func (c *classifier) class(s *sample, stack []symbol) (Class, ebpf.ProgramID) {
	other := c.other(s, stack)
	switch {
	case other && (!c.live || s.user):
		return Others, 0
	case s.user:
		return User, 0
	}
	interrupted := false
	for i, f := range stack {
		switch {
		case hasPrefix(f.name, interruptPrefixes):
			interrupted = true
		case interrupted:
		case f.program != 0 && i == 0:
			return Program, f.program
		case f.program != 0:
			return Helper, f.program
		case hasPrefix(f.name, netfilterPrefixes):
			return Netfilter, 0
		}
	}
	return c.rest(s, stack, other, interrupted), 0
}

// rest returns the class of a sample that no filter has a part in.
func (c *classifier) rest(s *sample, stack []symbol, other, interrupted bool) Class {
	switch {
	case other:
		return Others
	case len(stack) == 0 || !stack[0].known:
		return Unknown
	case slices.ContainsFunc(c.drivers, stack[0].of):
		return Driver
	case s.pid == 0 && !interrupted:
		return Idle
	}
	return Kernel
}

// other tells whether a task has nothing to do with the rung, and nothing else interrupted it.
func (c *classifier) other(s *sample, stack []symbol) bool {
	return s.pid != 0 && !slices.Contains(c.own, s.pid) &&
		!slices.ContainsFunc(stack, func(f symbol) bool {
			return f.name == softInterruptThread || c.live && f.name == receivingThread ||
				hasPrefix(f.name, interruptPrefixes)
		})
}

// of tells whether a function is of a driver.
func (f symbol) of(driver string) bool {
	return driver != "" && (f.module == driver || strings.HasPrefix(f.name, driver+"_") ||
		functionsOf[driver] != "" && strings.HasPrefix(f.name, functionsOf[driver]))
}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// resolve names the functions of a sample, innermost first.
func (c *classifier) resolve(s *sample) []symbol {
	out := make([]symbol, len(s.stack))
	for i, ip := range s.stack {
		if i > 0 {
			ip-- // a return address may be the first of the next function
		}
		out[i] = c.at(ip)
	}
	return out
}
