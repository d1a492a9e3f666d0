package dataplane

import (
	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/filter/codegen"
	"levee/internal/filter/limit"
)

// seedLimits draws what hashes depend on for the memories of limits that are new.
func seedLimits(l *loaded, replaced map[string]*ebpf.Map) error {
	for _, use := range l.ledger {
		if use.Holds.What != codegen.Limit || replaced[use.Name] != nil {
			continue
		}
		memory, err := mapMemory(l.maps[use.Name], limit.Head)
		if err != nil {
			return err
		}
		limit.Seed(memory)
		if err := unix.Munmap(memory); err != nil {
			return err
		}
	}
	return nil
}
