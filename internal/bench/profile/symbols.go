package profile

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"levee/internal/kernel"
)

// symbol is a function.
type symbol struct {
	name    string
	module  string         // "" for the kernel itself, "bpf" for programs
	program ebpf.ProgramID // of an eBPF program, 0 for all else
	known   bool
}

// symbols finds functions by address.
type symbols struct {
	starts   []uint64
	symbols  []symbol
	programs []program
}

// program is the machine code of one function of an eBPF program.
type program struct {
	from, to uint64
	name     string
	id       ebpf.ProgramID
}

// farthest is the longest that a function is taken to be: beyond it an address belongs to code that
// has no symbol. The kernel's own functions are shorter.
const farthest = 64 << 10

// readKernel reads the kernel's list of functions.
func readKernel() (*symbols, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, kernel.Refuse(err, "read the names of the kernel's functions")
	}
	defer f.Close()
	s, err := parseKallsyms(f)
	if err != nil {
		return nil, err
	}
	if s.hidden() {
		return nil, kernel.RefuseAs(os.ErrPermission,
			"read the addresses of the kernel's functions: kernel.kptr_restrict hides them; "+
				"sysctl kernel.kptr_restrict=1, and run this as root")
	}
	return s, nil
}

// hidden tells that the kernel names its functions without their addresses: all are zero.
func (s *symbols) hidden() bool { return len(s.starts) == 0 || s.starts[len(s.starts)-1] == 0 }

// parseKallsyms reads lines of address, type, name and perhaps a module in brackets; functions
// only. Programs are left out: they come and go, and are listed by readPrograms.
func parseKallsyms(r io.Reader) (*symbols, error) {
	type entry struct {
		at uint64
		symbol
	}
	var all []entry
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 3 || !strings.Contains("tTwW", f[1]) {
			continue
		}
		at, err := strconv.ParseUint(f[0], 16, 64)
		if err != nil {
			return nil, fmt.Errorf("reading /proc/kallsyms: %w", err)
		}
		e := entry{at, symbol{name: f[2], known: true}}
		if len(f) > 3 {
			e.module = strings.Trim(f[3], "[]")
		}
		if e.module == "bpf" && strings.HasPrefix(e.name, "bpf_prog_") {
			continue
		}
		all = append(all, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading /proc/kallsyms: %w", err)
	}
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	s := &symbols{}
	for _, e := range all {
		if strings.HasPrefix(e.name, "__pfx_") { // padding in front of a function
			continue
		}
		s.starts, s.symbols = append(s.starts, e.at), append(s.symbols, e.symbol)
	}
	return s, nil
}

// readPrograms lists the programs that are loaded now. Those that go meanwhile are left out.
func (s *symbols) readPrograms() error {
	s.programs = s.programs[:0]
	for id := ebpf.ProgramID(0); ; {
		var err error
		if id, err = ebpf.ProgramGetNextID(id); err != nil {
			if errors.Is(err, os.ErrNotExist) {
				break
			}
			return kernel.Refuse(err, "list the programs that are loaded")
		}
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue
		}
		info, err := p.Info()
		p.Close()
		if err != nil {
			continue
		}
		s.add(id, info)
	}
	slices.SortFunc(s.programs, func(a, b program) int { return cmp.Compare(a.from, b.from) })
	return nil
}

func (s *symbols) add(id ebpf.ProgramID, info *ebpf.ProgramInfo) {
	at, ok := info.JitedKsymAddrs()
	lengths, ok2 := info.JitedFuncLens()
	if !ok || !ok2 || len(at) != len(lengths) {
		return
	}
	for i, a := range at {
		name := "bpf_prog_" + info.Name
		if i > 0 {
			name = fmt.Sprintf("%s.%d", name, i)
		}
		s.programs = append(s.programs,
			program{uint64(a), uint64(a) + uint64(lengths[i]), name, id})
	}
}

// at finds the function around an address.
func (s *symbols) at(ip uint64) symbol {
	i := sort.Search(len(s.programs), func(i int) bool { return s.programs[i].from > ip })
	if i > 0 && ip < s.programs[i-1].to {
		p := &s.programs[i-1]
		return symbol{name: p.name, module: "bpf", program: p.id, known: true}
	}
	i = sort.Search(len(s.starts), func(i int) bool { return s.starts[i] > ip })
	if i == 0 || ip-s.starts[i-1] > farthest {
		return symbol{name: "[unknown]"}
	}
	return s.symbols[i-1]
}
