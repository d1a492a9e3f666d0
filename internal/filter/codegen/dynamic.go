package codegen

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/endpoint"
	"levee/internal/filter/names"
	"levee/internal/filter/plan"
	"levee/internal/filter/prefix"
	"levee/internal/lang/policy"
)

// dynamicSets says of every dynamic set where it is.
func (c *compiler) dynamicSets(out *Program) {
	out.Places = map[string]SetPlace{}
	for _, s := range c.Plan.Program.Policy.Sets {
		place, ok := c.Plan.Places[s]
		if !ok {
			continue
		}
		out.Dynamic = append(out.Dynamic, s)
		out.Places[s.Name] = place
		if s.RollUp {
			out.Spared = c.Plan.Program.Policy.Protected()
		}
		out.Tables = append(out.Tables, Table{
			For: "set " + s.Name, Kind: "buckets of hashed " + hashed(s.Type),
			Bytes: int(c.maps[place.Map].InnerMap.ValueSize), Why: c.Plan.WhyPlace(place),
		})
	}
}

// hashed says what the memory of a set holds.
func hashed(t policy.SetType) string {
	switch t {
	case policy.Services:
		return "services"
	case policy.Endpoints:
		return "endpoints"
	case policy.Names:
		return "names"
	}
	return "prefixes"
}

// dynamic looks the address in R1 (and R2) up in a set that is filled at run time; R0 is the
// answer. The code is a global function: it loops over the prefix lengths in use, which the
// verifier walks for every length that there can be.
func (c *compiler) dynamic(s *policy.Set, ip4 bool) {
	if c.Plan.Shared() {
		c.Emit(asm.Mov.Imm(numberOf(ip4), int32(c.Plan.Places[s].Key)))
	}
	c.Emit(asm.Call.Label(c.setFunction(s, ip4)))
}

// numberOf returns the register, behind the address, in which functions of maps that sets share
// take the set's number.
func numberOf(ip4 bool) asm.Register {
	if ip4 {
		return asm.R2
	}
	return asm.R3
}

// setFunction returns the label of the function that looks something up in a dynamic set.
func (c *compiler) setFunction(s *policy.Set, ip4 bool) string {
	return c.setLabel(plan.SetKey{Map: c.Plan.Places[s].Map, IPv4: ip4})
}

func (c *compiler) setLabel(key plan.SetKey) string {
	n, ok := c.Plan.SetFunctionOf[key]
	if !ok {
		panic(fmt.Sprintf("the plan has no function for %+v", key))
	}
	return setLabel(n)
}

func setLabel(n int) string { return fmt.Sprintf("lookup_%d", n) }

// emitSetFunctions emits the functions that search dynamic sets.
func (c *compiler) emitSetFunctions() {
	for i, f := range c.Plan.SetFunctions {
		label, shared := setLabel(i), c.Plan.Shared()
		switch {
		case f.Type == policy.Names && shared:
			names.NumberedDynamicFunction(c.Builder, f.Map, label, f.Room)
		case f.Type == policy.Names:
			names.DynamicFunction(c.Builder, f.Map, label, f.Room)
		case f.Type != policy.Addresses && shared:
			endpoint.NumberedFunction(c.Builder, f.Map, label, f.Room, f.IPv4)
		case f.Type != policy.Addresses:
			endpoint.Function(c.Builder, f.Map, label, f.Room, f.IPv4)
		case shared && f.IPv4:
			prefix.NumberedFunction4(c.Builder, f.Map, label, f.Room)
		case shared:
			prefix.NumberedFunction6(c.Builder, f.Map, label, f.Room)
		case f.IPv4:
			prefix.DynamicFunction4(c.Builder, f.Map, label, f.Room)
		default:
			prefix.DynamicFunction6(c.Builder, f.Map, label, f.Room)
		}
	}
}
