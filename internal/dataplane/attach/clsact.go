package attach

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/kernel"
)

// Before Linux 6.6 tc has no links. There a filter of the clsact qdisc runs the program: cls_bpf
// with direct action. The kernel replaces its program in one step as well (cls_bpf_change,
// net/sched/cls_bpf.c), but anybody who may change the network can take it away, and it is gone
// when its interface goes to another network namespace (docs/explanation/decisions/0036-clsact.md).
// At egress each generation has one of its own (docs/explanation/decisions/0077-egress-filter.md).

// Hold keeps a program on an interface. It is a bpf_link, pinned with the attachment, or a filter.
type Hold interface {
	Update(*ebpf.Program) error // traffic changes in it
	Detach() error
	Pin(path string) error // what is not pinned is detached by Close
	Close() error
}

// Levee's filters on an interface. They are asked in the order of their priorities, and of one
// priority the last that came is asked first: at ingress before all others, at egress behind them,
// so that they see what the others let go.
const (
	filterName     = "levee"
	filterHandle   = 0x1e7ee
	FilterPriority = 1
	egressHandle   = 0x1e000000 // and the number of the generation
	nthHandle      = 0x400000   // times which of the generation's programs it is
	egressPriority = 0xffff
)

// Filter is a filter of levee's on an interface.
type Filter struct {
	namespace
	Index      int
	Generation int  // whose it is, at egress; 0: at ingress, the one that judges
	judges     bool // at egress: it comes first there, too
	Nth        int  // which of its programs there
	made       bool // the qdisc is levee's too
	kept       bool
}

// attachFilter adds the qdisc, where there is none, and the filter.
func attachFilter(d *Device, f *Filter, p *ebpf.Program) (Hold, error) {
	switch _, name, err := f.Running(); {
	case err != nil:
		return nil, err
	case name != "" && name != filterName:
		return nil, fmt.Errorf("a tc filter of somebody else has levee's handle, %#x", filterHandle)
	}
	err := netlink.QdiscAdd(f.Qdisc())
	if err == nil || errors.Is(err, unix.EEXIST) {
		// traffic changes here
		err = f.Update(p)
	}
	switch {
	case errors.Is(err, unix.ENOENT): // of no such kind
		err = fmt.Errorf("this kernel has no clsact, or no filters of kind bpf "+
			"(CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_BPF): %w", ebpf.ErrNotSupported)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSPC):
		err = fmt.Errorf("a tc filter of somebody else has priority %d, which levee's needs to "+
			"come %s; `tc filter show dev %s %s` shows it: %w", f.Filter().Priority,
			map[bool]string{true: "first", false: "last"}[f.Generation == 0 || f.judges], d.Name,
			f.point(),
			err)
	}
	if err != nil {
		return nil, errors.Join(err, f.RemoveQdisc())
	}
	return f, nil
}

func (f *Filter) link() netlink.Link {
	return &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: f.Index}}
}

func (f *Filter) Qdisc() netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: f.Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
}

func (f *Filter) Filter() *netlink.BpfFilter {
	b := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: f.Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: filterHandle,
			Priority: FilterPriority, Protocol: unix.ETH_P_ALL,
		},
		Name: filterName, DirectAction: true,
	}
	if f.Generation != 0 {
		b.Parent = netlink.HANDLE_MIN_EGRESS
		if !f.judges {
			b.Priority = egressPriority
		}
		b.Handle = egressHandle | uint32(f.Generation)&(nthHandle-1) | uint32(f.Nth)*nthHandle
	}
	return b
}

func (f *Filter) point() codegen.Point {
	if f.Generation != 0 {
		return codegen.Egress
	}
	return codegen.Ingress
}

func (f *Filter) Update(p *ebpf.Program) error {
	filter := f.Filter()
	filter.Fd = p.FD()
	return f.in(func() error { return netlink.FilterReplace(filter) })
}

func (f *Filter) Detach() error {
	err := f.in(func() error { return netlink.FilterDel(f.Filter()) })
	if f.Generation != 0 && isAbsent(err) { // a killed command may have come so far
		err = nil
	}
	f.kept = true // Close has nothing to do any more
	return errors.Join(err, f.RemoveQdisc())
}

// isAbsent reports whether a request failed since there is no such filter, qdisc or interface.
func isAbsent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) ||
		errors.Is(err, unix.ENODEV)
}

// RemoveQdisc takes the qdisc away that levee has added, if nobody else has a filter there.
func (f *Filter) RemoveQdisc() error {
	if !f.made {
		return nil
	}
	return f.in(func() error {
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			others, err := netlink.FilterList(f.link(), parent)
			if err != nil || len(others) > 0 {
				return nil // what cannot be read is somebody's
			}
		}
		err := netlink.QdiscDel(f.Qdisc())
		if isAbsent(err) {
			return nil
		}
		return err
	})
}

// Pin says that the filter is to stay: the qdisc keeps it.
func (f *Filter) Pin(string) error {
	f.kept = true
	return nil
}

func (f *Filter) Close() error {
	var err error
	if !f.kept {
		err = f.Detach()
	}
	return errors.Join(err, f.namespace.Close())
}

// Running returns the id of the program and the name of the filter with levee's handle, 0 and "" if
// there is none. It asks for this one alone: filters of others need not be understood.
func (f *Filter) Running() (program uint32, name string, err error) {
	err = f.in(func() error {
		req := nl.NewNetlinkRequest(unix.RTM_GETTFILTER, 0)
		a := f.Filter().Attrs()
		req.AddData(&nl.TcMsg{
			Family: nl.FAMILY_ALL, Ifindex: int32(a.LinkIndex), Handle: a.Handle, Parent: a.Parent,
			Info: netlink.MakeHandle(a.Priority, nl.Swap16(a.Protocol)),
		})
		req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bpf")))
		answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWTFILTER)
		if isAbsent(err) {
			return nil
		}
		if err == nil && len(answers) == 1 {
			program, name, err = parseFilter(answers[0])
		}
		return err
	})
	return program, name, err
}

func parseFilter(answer []byte) (program uint32, name string, err error) {
	attrs, err := nl.ParseRouteAttr(answer[min(nl.SizeofTcMsg, len(answer)):])
	if err != nil {
		return 0, "", err
	}
	for _, a := range attrs {
		if a.Attr.Type != nl.TCA_OPTIONS {
			continue
		}
		if attrs, err = nl.ParseRouteAttr(a.Value); err != nil {
			return 0, "", err
		}
		for _, a := range attrs {
			switch {
			case a.Attr.Type == nl.TCA_BPF_ID && len(a.Value) == 4:
				program = binary.NativeEndian.Uint32(a.Value)
			case a.Attr.Type == nl.TCA_BPF_NAME:
				name = unix.ByteSliceToString(a.Value)
			}
		}
	}
	return program, name, nil
}

// openFilter finds the filter of an attachment that has no link. Its descriptions say where.
func openFilter(s *store.Store, a *Attachment) error {
	gens := a.Sorted()
	if len(gens) == 0 || gens[len(gens)-1].Mode != store.Clsact {
		return nil
	}
	g := gens[len(gens)-1]
	f, err := EgressFilterOf(g, 0)
	if errors.Is(err, errNoEntry) {
		a.Unseen = true
		return nil
	}
	if err != nil {
		return err
	}
	a.Link = f // with ifindex 0, which says that it is not there
	program, name, err := f.Running()
	if err != nil && !f.gone {
		return kernel.Refuse(err, "ask the kernel about the tc filter on %s", g.Dev)
	}
	if name == filterName {
		a.Program, a.Ifindex = program, g.Ifindex
	}
	return nil
}

// EgressFilterOf returns the filter of the attachment of g: with generation 0 the one that judges
// at ingress, else the one of that generation at egress.
func EgressFilterOf(g *store.Description, generation int) (*Filter, error) {
	where, err := findNamespace(g.Netns)
	if err != nil {
		return nil, err
	}
	return &Filter{namespace: where, Index: g.Ifindex, Generation: generation, made: g.MadeQdisc,
		kept: true}, nil
}

// tcPrograms returns the ids of the programs at tc ingress of an interface of this network
// namespace that may be levee's.
func tcPrograms(index int) ([]uint32, error) {
	ids, err := TcxProgramsAt(index, ebpf.AttachTCXIngress)
	if err != nil {
		return nil, err
	}
	program, name, err := (&Filter{Index: index}).Running()
	if err != nil {
		return nil, kernel.Refuse(err, "ask the kernel about the tc filter of interface %d", index)
	}
	if name == filterName {
		ids = append(ids, program)
	}
	return ids, nil
}

// RemoveStray removes levee's filters and its place in a dispatcher if no record describes them.
// Such are left when the file system with the records was unmounted; links go with their pins then.
func RemoveStray(s *store.Store, d *Device) (found bool, err error) {
	f := &Filter{Index: d.Index, kept: true}
	_, name, err := f.Running()
	if err != nil {
		return false, kernel.Refuse(err, "ask the kernel about the tc filter on %s", d.Name)
	}
	stray, err := EgressFilters(d.Index)
	if err != nil {
		return false, err
	}
	if name == filterName {
		stray = append(stray, f)
	}
	if len(stray) == 0 {
		return leaveStray(s, d)
	}
	s.Note("%s had a tc filter of levee's that nothing was kept for", d.Name)
	for _, f := range stray {
		if err := f.Detach(); err != nil {
			return true, kernel.Refuse(err, "remove the tc filter on %s", d.Name)
		}
	}
	return true, nil
}

// EgressFilters lists the filters of generations at egress of an interface of this network
// namespace.
func EgressFilters(index int) (all []*Filter, err error) {
	for _, judges := range []bool{true, false} {
		some, err := egressFilters(index, judges)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// egressFilters lists levee's filters at egress: with judges those that judge, else those that
// note.
func egressFilters(index int, judges bool) (all []*Filter, err error) {
	f := &Filter{Index: index, Generation: 1, judges: judges}
	a := f.Filter().Attrs()
	req := nl.NewNetlinkRequest(unix.RTM_GETTFILTER, unix.NLM_F_DUMP)
	req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Parent: a.Parent,
		Info: netlink.MakeHandle(a.Priority, nl.Swap16(a.Protocol))})
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWTFILTER)
	switch {
	case isAbsent(err):
		return nil, nil
	case err != nil:
		return nil, kernel.Refuse(err, "list the tc filters at egress of interface %d", index)
	}
	for _, answer := range answers {
		_, name, err := parseFilter(answer)
		if err != nil || name != filterName || len(answer) < nl.SizeofTcMsg {
			continue
		}
		n := int(nl.DeserializeTcMsg(answer).Handle) - egressHandle
		if n > 0 && n < 4*nthHandle {
			all = append(all, &Filter{Index: index, Generation: n % nthHandle, Nth: n / nthHandle,
				judges: judges, kept: true})
		}
	}
	return all, nil
}

// LacksQdisc says whether an interface has no qdisc for filters.
func (d *Device) LacksQdisc() (bool, error) {
	qdiscs, err := netlink.QdiscList((&Filter{Index: d.Index}).link())
	if err != nil {
		return false, kernel.Refuse(err, "list the qdiscs of %s", d.Name)
	}
	return !slices.ContainsFunc(qdiscs, func(q netlink.Qdisc) bool {
		return q.Attrs().Parent == netlink.HANDLE_CLSACT
	}), nil
}
