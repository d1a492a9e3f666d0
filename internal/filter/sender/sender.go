// Package sender asks the kernel who sends a packet that leaves: the user and group of its socket,
// and the unit and container in whose cgroup the socket was made. What goes in is the context of a
// program at egress, and in the map what the policy names, with where members of the kernel's
// structures lie; what comes out are numbers. It opens, pins and loads nothing, and knows no rules.
package sender

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/dchest/siphash"

	"levee/internal/filter/assembler"
)

//go:generate ../../../bpf/compile -type sender_memory -type sender_layout -type sender_names -type sender_name who ../../../bpf/sender.bpf.c

// Map is the map with what the policy names and what is known of sockets, of Bytes. WorkMap is the
// name of the map with each CPU's scratch memory.
const (
	Map       = "senders"
	Bytes     = int(unsafe.Sizeof(whoSenderMemory{}))
	WorkMap   = "sender_work"
	WorkBytes = int(unsafe.Sizeof(whoSenderName{}))
)

// Labels of the functions. UID, GID and Cgroup are given the context; User and Group a number that
// UID or GID gave. Cgroup gives which service it is, and above the lowest byte which container.
const (
	UID    = "sender_uid"
	GID    = "sender_gid"
	User   = "sender_user"
	Group  = "sender_group"
	Cgroup = "sender_cgroup"
)

// MaxInstructions bounds all functions together.
const MaxInstructions = 1_200

// NoID is the number of no user and no group, such as of a name that the machine does not know.
const NoID = ^uint32(0)

// maxForms is the largest number of names that the cgroup of a container may have.
const maxForms = 4

// WorkSpec describes the map of the functions' scratch memory.
func WorkSpec() *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: WorkMap, Type: ebpf.PerCPUArray, KeySize: 4,
		ValueSize: uint32(WorkBytes), MaxEntries: 1}
}

// Names holds the ids and cgroups for the names of a policy, in its order.
type Names struct {
	Users, Groups []uint32   // NoID where the machine has nobody of the name
	Services      []string   // units of systemd
	Containers    [][]string // names of its cgroup, maxForms at most; none where there is none
}

// Equal reports whether both stand for the same.
func (n *Names) Equal(m *Names) bool { return fmt.Sprint(*n) == fmt.Sprint(*m) }

// Memory is the map as user space has it mapped.
type Memory []byte

// Begin says where members of the kernel's structures lie. No packet has been judged yet.
func (m Memory) Begin(l *Layout) { m.memory().Layout = whoSenderLayout(*l) }

// Tell puts names into force, in one step. Key is that of the digests of names, drawn anew each
// time.
func (m Memory) Tell(n *Names, key [16]byte) {
	in := m.memory()
	turn := atomic.LoadUint32(&in.Turn) + 1
	to := &in.Names[turn&1]
	*to = whoSenderNames{Users: uint32(len(n.Users)), Groups: uint32(len(n.Groups)),
		Services: uint32(len(n.Services)), Containers: uint32(len(n.Containers))}
	k0, k1 := binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:])
	to.Key = [2]uint64{k0, k1}
	copy(to.User[:], n.Users)
	copy(to.Group[:], n.Groups)
	for i, unit := range n.Services {
		to.Service[i] = siphash.Hash(k0, k1, []byte(escape(unit)))
	}
	for i, forms := range n.Containers {
		for k, name := range forms[:min(len(forms), maxForms)] {
			to.Container[i*maxForms+k] = siphash.Hash(k0, k1, []byte(name))
		}
	}
	atomic.StoreUint32(&in.Turn, turn)
}

func (m Memory) memory() *whoSenderMemory {
	return (*whoSenderMemory)(unsafe.Pointer(unsafe.SliceData(m[:Bytes])))
}

// escape returns the name of a unit as systemd gives it to a cgroup: what could be a file of the
// kernel's there begins with a _ (cg_escape of systemd's src/basic/cgroup-util.c).
func escape(unit string) string {
	controller, _, _ := strings.Cut(unit, ".")
	switch controller {
	case "cgroup", "cpu", "cpuacct", "cpuset", "io", "blkio", "memory", "devices", "pids":
		return "_" + unit
	}
	if strings.HasPrefix(unit, "_") || strings.HasPrefix(unit, ".") {
		return "_" + unit
	}
	return unit
}

var load = sync.OnceValues(func() (*ebpf.CollectionSpec, error) { return loadWho() })

// Emit emits the functions that are called.
func Emit(b *assembler.Builder, context assembler.Param) error {
	of := func(label string, params ...assembler.Param) assembler.Function {
		return assembler.Function{Label: label, Entry: whoProgEntry, Params: params}
	}
	number := assembler.Number
	return b.Functions(load, "ask who sends", // each in front of those that it calls
		of(UID, context), of(GID, context), of(Cgroup, context), of("sender_socket", context),
		of(User, number("uid")), of(Group, number("gid")),
		of("sender_unit", number("socket")),
		of("sender_digest", number("bytes"), number("key0"), number("key1")),
		of("sender_service", number("unit"), number("turn")),
		of("sender_container", number("unit"), number("below"), number("turn")),
		of("sender_ends", number("bytes"), number("end"), number("mask")))
}
