package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/service"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
	"levee/internal/lang/syntax"
)

const setLong = `Change and show the dynamic sets of policies that are in force: entries with a
lease, which leave by themselves when it ends; the kernel side itself honours it. Without --dev
a command is about every policy of this network namespace that has a set of that name.`

const setExample = `  sudo levee set add abusers 203.0.113.9 --lease 1h
  sudo levee set list abusers`

func newSet(e *env) *cobra.Command {
	return cli.Noun("set COMMAND", "Change and show entries of dynamic sets", setLong, setExample,
		newSetAdd(e), newSetReplace(e), newSetDel(e), newSetFind(e), newSetList(e), newSetSave(e))
}

// setFlags are those of add, replace and del.
type setFlags struct {
	dev, from, lease string
	empty            bool
}

// changing makes a command that changes sets; one that only takes entries out has no --lease.
func changing(cmd *cobra.Command, lease bool,
	change func(cmd *cobra.Command, name string, words []string,
		f *setFlags) error) *cobra.Command {
	var f setFlags
	cmd.Args = cli.WantSome("NAME")
	cmd.RunE = func(cmd *cobra.Command,
		args []string) error {
		return change(cmd, args[0], args[1:], &f)
	}
	cli.DevFlag(cmd, &f.dev, "only the policy on this interface")
	cli.ServiceFlag(cmd, &f.dev, store.Service, "the policy of this service")
	cmd.Flags().StringVar(&f.from, "from", "",
		"also the entries of this file, one a line, or - for standard input")
	if cmd.Name() == replaceName {
		cmd.Flags().BoolVar(&f.empty, "empty", false, "with no entries: empty the set")
	}
	if lease {
		cmd.Flags().StringVar(&f.lease, "lease", "",
			"30s, 10m, 12h, 7d, 2w, or forever (default: the set's)")
	}
	return cmd
}

// listFlags are those of find and list.
type listFlags struct {
	dev    string
	json   bool
	export bool
}

func (f *listFlags) add(cmd *cobra.Command) {
	cli.DevFlag(cmd, &f.dev, "only the policy on this interface")
	cli.ServiceFlag(cmd, &f.dev, store.Service, "the policy of this service")
	cli.JsonFlag(cmd, &f.json)
}

func newSetAdd(e *env) *cobra.Command {
	return changing(&cobra.Command{
		Use:   "add NAME ENTRY...",
		Short: "Put entries into a dynamic set, or renew their lease",
		Long: `Put entries into a dynamic set, all of them or, with an error, none. An entry is
what the set is of: an address, a prefix or a range; a service such as tcp/443; in a set of
endpoints, an address and a service behind it; or, in a set of names, a name such as
example.com, which stands for all below it, too, or *.example.com for these alone. An entry that
is there already gets the new lease. Without --lease it is the set's own. --from is read to its
end before anything is added.

Sessions are not looked at, as "levee up" does: an entry that holds your own address shuts you
out where a rule drops it, unless a protect rule names you.`,
		Example: `  sudo levee set add abusers 203.0.113.9 2001:db8:bad::/48 --lease 10m
  sudo levee set add abusers --from feed.txt --lease 1d
  sudo levee set add frontends 192.0.2.10 tcp/443 192.0.2.11 udp/4000-4100
  sudo levee set add abused evil.example '*.random.example' --lease 1h
  tail -Fn0 found.log | while read -r address; do sudo levee set add abusers "$address"; done`,
	}, true, e.setChange("added", sets.Add))
}

const replaceName = "replace"

func newSetReplace(e *env) *cobra.Command {
	return changing(&cobra.Command{
		Use:   replaceName + " NAME ENTRY...",
		Short: "Make these the whole contents of a dynamic set, in one step",
		Long: `Make entries (see "levee set add") the whole contents of a dynamic set, all of
them or, with an error, none. They are put together beside what is there and take its place in
one step: packets are judged by the whole of the old contents or the whole of the new. The
lease, that of --lease or the set's own, begins anew for each entry. No entries at all, as in
the file of a feed that did not arrive, are refused unless --empty says that they are meant.`,
		Example: `  sudo levee set replace feed --from feed.txt --lease 1d
  curl -sSfo drop.txt https://feed.example/drop.txt && sudo levee set replace feed --from drop.txt`,
	}, true, e.setChange("in it", sets.Replace))
}

func newSetDel(e *env) *cobra.Command {
	return changing(&cobra.Command{
		Use:   "del NAME ENTRY...",
		Short: "Take entries out of a dynamic set",
		Long: `Take entries out of a dynamic set: out of that of every interface that has one of the
name, or, with an error, out of none. What is no entry is not missed; how many there were is
printed.`,
		Example: "  sudo levee set del abusers 203.0.113.9",
	}, false, e.setDel)
}

func newSetList(e *env) *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "list [NAME]",
		Short: "List the dynamic sets, or the entries of one with the time they have left",
		Long: `List the entries of a dynamic set with the time they have left; without a name the sets
that policies in force have, and how full they are. --export prints entries
as "levee set add" and "levee set replace" read them with --from: an entry a line with what is
left of its lease.`,
		Example: `  sudo levee set list abusers --json | jq -r '.sets[].entries[].prefix'
  sudo levee set list abusers --export > abusers.txt
  sudo levee set replace abusers --from abusers.txt`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return cli.Usagef(cmd, "%q is one argument too many", args[1])
			case f.export && f.json:
				return cli.Usagef(cmd, "--export and --json exclude each other")
			case f.export && len(args) == 0:
				return cli.Usagef(cmd, "--export is about one set: levee set list lists them")
			case len(args) == 0:
				return e.listSets(&f)
			}
			return e.setList(args[0], &f, nil)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&f.export, "export", false,
		"print what --from of set add and set replace reads, with leases")
	return cmd
}

// listSets lists the sets in force, as JSON with their entries.
func (e *env) listSets(f *listFlags) error {
	ctx := context.Background()
	all, _, err := inspect.Status(ctx, false)
	if err != nil {
		return err
	}
	if all, err = service.AppendAll(ctx, all); err != nil {
		return err
	}
	rep := setReport{Sets: []setContents{}}
	t := cli.NewTable("SET INTERFACE HOLDS ENTRIES MAX LEASE", "<", "<", "<", ">", ">", ">")
	seen := map[string]bool{}
	for _, at := range all {
		for _, s := range at.Sets {
			if f.dev != "" && f.dev != at.Dev {
				continue
			}
			lease := "-"
			if s.Lease > 0 {
				lease = cli.FormatLease(s.Lease)
			}
			t.Row(s.Name, at.Dev, s.EntryType(), s.Entries, s.Max, lease)
			dev := f.dev
			if _, ok := store.ServiceNamed(at.Dev); ok {
				dev = at.Dev
			}
			if f.json && !seen[dev+" "+s.Name] {
				sets, err := sets.List(ctx, dev, s.Name)
				if err != nil {
					return err
				}
				rep.Sets = append(rep.Sets, contentsOf(s.Name, sets)...)
			}
			seen[dev+" "+s.Name] = true
		}
	}
	if f.json {
		return e.PrintJSON(rep)
	}
	if len(seen) == 0 {
		fmt.Fprintln(e.Stdout, "no policy in force has a dynamic set")
		return nil
	}
	t.Print(e.Stdout, "")
	return nil
}

func newSetSave(e *env) *cobra.Command {
	var dev string
	cmd := &cobra.Command{
		Use:   "save [NAME]",
		Short: "Write the entries of sets that say keep to the disk",
		Long: `Write the entries of dynamic sets that say "keep" to /var/lib/levee, of one set or of
all. The next policy with that set on the interface has them again, after a reboot too, with what is
left of their leases. "levee down" does it by itself. A power cut leaves what was saved before.`,
		Example: "  sudo levee set save",
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			switch {
			case len(args) > 1:
				return cli.Usagef(cmd, "%q is one argument too many", args[1])
			case len(args) == 1:
				name = args[0]
			}
			saved, err := sets.Save(context.Background(), dev, name)
			for _, s := range saved {
				fmt.Fprintf(e.Stdout, "%s on %s: %s saved in %s\n", s.Name, s.Dev,
					entryCount(s.Entries), s.File)
			}
			return err
		},
	}
	cli.DevFlag(cmd, &dev, "only the policy on this interface")
	return cmd
}

func newSetFind(e *env) *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "find NAME ADDRESS",
		Short: "Show the entries of a dynamic set that hold an address or a name",
		Long: `Show the entries of a dynamic set that hold an address, the longest prefix first,
with the time they have left; of a set of names those that hold a name. It is in the set as long
as any of them is. When none holds it, a line says so and the exit status is 1.`,
		Example: `  sudo levee set find abusers 203.0.113.9
  sudo levee set find abused www.evil.example`,
		Args: cli.WantArgs("NAME", "ADDRESS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := netip.ParseAddr(args[1])
			if err == nil && a.Zone() == "" {
				return e.setList(args[0], &f, func(all []sets.Entry) []sets.Entry {
					return sets.Covering(all, a)
				})
			}
			p, wrong := dnsname.Parse(args[1])
			if typ, _ := sets.TypeOf(context.Background(), f.dev, args[0]); typ != policy.Names ||
				wrong != nil || p.Below {
				return cli.Usagef(cmd, "%q is no address, such as 203.0.113.9 or 2001:db8::1, and "+
					"%s no set of names that it could be a name for", args[1], args[0])
			}
			return e.setList(args[0], &f, func(all []sets.Entry) []sets.Entry {
				return sets.Standing(all, p.Name)
			})
		},
	}
	f.add(cmd)
	return cmd
}

// endpointWords joins an address with the service behind it: an endpoint is two words.
func endpointWords(words []string) []string {
	var out []string
	for _, w := range words {
		if n := len(out); n > 0 && syntax.IsService(w) && !strings.Contains(out[n-1], " ") &&
			strings.ContainsAny(out[n-1], ".:") {
			out[n-1] += " " + w
			continue
		}
		out = append(out, w)
	}
	return out
}

// setEntries reads the entries of the command line and of --from into what of makes of each. Names
// are told from addresses by the set, where it can be found.
func setEntries[T any](e *env, cmd *cobra.Command, set string, words []string, f *setFlags,
	of func(policy.Element, time.Duration) T) ([]T, error) {
	var all []T
	typ, _ := sets.TypeOf(context.Background(), f.dev, set) // who changes it says why not
	if typ != policy.Names {
		words = endpointWords(words)
	}
	for _, w := range words {
		elements, err := literal.ParseElementsOf(typ, w)
		if err != nil {
			return nil, cli.Usagef(cmd, "%q: %v", w, err)
		}
		for _, el := range elements {
			all = append(all, of(el, 0))
		}
	}
	from := f.from
	if from == "" {
		if len(all) == 0 && !f.empty {
			return nil, cli.Usagef(cmd, "ENTRY or --from is missing")
		}
		return all, nil
	}
	r, err := e.Open(from)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	name := from
	if from == cli.StdinName {
		name = cli.StdinTitle
	}
	shown := e.Progress()
	defer shown.Clear()
	more, ds := literal.ReadEntries(&cli.ProgressReader{R: r, Name: name, Progress: shown}, name,
		typ, of)
	if ds.HasErrors() {
		e.PrintDiagnostics(ds)
		return nil, cli.ErrNo
	}
	if len(all) == 0 { // nothing to copy a million entries for
		return more, nil
	}
	return append(all, more...), nil
}

// setChange adds entries to sets or replaces what is in them; done says which.
func (e *env) setChange(done string,
	change func(ctx context.Context, dev, name string, entries []sets.Entry) ([]string,
		error),
) func(*cobra.Command, string, []string, *setFlags) error {
	return func(cmd *cobra.Command, name string, words []string, f *setFlags) error {
		var lease time.Duration // 0: the set's own
		switch f.lease {
		case "":
		case "forever":
			lease = sets.Forever
		default:
			var err error
			if lease, err = cli.ParseDuration(f.lease); err != nil {
				return cli.Usagef(cmd, "--lease: %v", err)
			}
			if lease > literal.MaxLease {
				return cli.Usagef(cmd, "--lease %s: a lease is at most %s; \"forever\" has none",
					f.lease, cli.Longest)
			}
		}
		entries, err := setEntries(e, cmd, name, words, f,
			func(el policy.Element, own time.Duration) sets.Entry {
				if own == 0 {
					own = lease
				}
				return sets.EntryOf(el, own)
			})
		if err != nil {
			return err
		}
		switch {
		case cmd.Name() != replaceName || len(entries) > 0 == !f.empty:
		case f.empty:
			return cli.Usagef(cmd, "--empty, but there are entries: %d", len(entries))
		default:
			return cli.Usagef(cmd,
				"%s has no entries, so that %s would be empty; say --empty if this is meant",
				f.from, name)
		}
		shown := e.Progress()
		shown.Printf("%s: %s on their way into the kernel", name, entryCount(len(entries)))
		devs, err := change(context.Background(), f.dev, name, entries)
		shown.Clear()
		if err != nil {
			return err
		}
		fmt.Fprintf(e.Stdout, "%s: %s %s on %s\n", name, entryCount(distinct(entries)), done,
			strings.Join(devs, ", "))
		return nil
	}
}

// distinct counts entries, those that are named more than once once.
func distinct(entries []sets.Entry) (n int) {
	order := make([]int32, len(entries)) // a million entries are not copied
	for i := range order {
		order[i] = int32(i)
	}
	compare := func(i, j int32) int {
		a, b := &entries[i], &entries[j]
		return cmp.Or(a.Prefix.Compare(b.Prefix), strings.Compare(a.Name, b.Name),
			a.Service.Compare(b.Service))
	}
	slices.SortFunc(order, compare)
	return len(slices.CompactFunc(order, func(i, j int32) bool { return compare(i, j) == 0 }))
}

func (e *env) setDel(cmd *cobra.Command, name string, words []string, f *setFlags) error {
	elements, err := setEntries(e, cmd, name, words, f,
		func(el policy.Element, _ time.Duration) policy.Element { return el })
	if err != nil {
		return err
	}
	n, devs, err := sets.Delete(context.Background(), f.dev, name, elements)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Stdout, "%s: %s deleted on %s\n", name, entryCount(n), strings.Join(devs, ", "))
	return nil
}

func entryCount(n int) string { return cli.Plural(n, "entry") }

// setReport is the object of `levee set list --json`.
type setReport struct {
	Sets []setContents `json:"sets"`
}

type setContents struct {
	Name    string      `json:"name"`
	Dev     string      `json:"dev"`
	Entries []setMember `json:"entries"`
}

func contentsOf(name string, sets []sets.Contents) []setContents {
	out := []setContents{}
	for _, s := range sets {
		c := setContents{Name: name, Dev: s.Dev, Entries: make([]setMember, len(s.Entries))}
		for i, en := range s.Entries {
			c.Entries[i] = newSetMember(en)
		}
		out = append(out, c)
	}
	return out
}

type setMember struct {
	Prefix *netip.Prefix `json:"prefix,omitempty"` // of an address or an endpoint
	// of a service or an endpoint: "tcp/443", "gre"
	Service      string  `json:"service,omitempty"`
	Name         string  `json:"name,omitempty"` // of a set of names: "*.example.com"
	LeaseSeconds float64 `json:"lease_seconds"`  // left; 0: until deleted
}

func newSetMember(en sets.Entry) setMember {
	m := setMember{Name: en.Name}
	if en.Prefix.IsValid() {
		m.Prefix = &en.Prefix
	}
	if en.Service != (policy.Service{}) {
		m.Service = en.Service.String()
	}
	if en.Lease != sets.Forever {
		m.LeaseSeconds = en.Lease.Seconds()
	}
	return m
}

// setExport prints the entries of a set as --from reads them. A lease is rounded up, so that no
// entry leaves before its time.
func (e *env) setExport(name string, held []sets.Contents) error {
	if len(held) > 1 {
		return fmt.Errorf("several interfaces have a set %s, say which with --dev", name)
	}
	out := e.Stdout.Buffered()
	for _, en := range held[0].Entries {
		lease := "forever"
		if en.Lease != sets.Forever {
			lease = fmt.Sprintf("%dms", max(1, (en.Lease+time.Millisecond-1)/time.Millisecond))
		}
		fmt.Fprintf(out, "%s lease %s\n", en.Element(), lease)
	}
	return out.Flush()
}

// setList prints the entries of a set, or with find those that it leaves, of which there should be
// one.
func (e *env) setList(name string, f *listFlags,
	find func([]sets.Entry) []sets.Entry) error {
	held, err := sets.List(context.Background(), f.dev, name)
	if err != nil {
		return err
	}
	var none error
	if find != nil {
		none = cli.ErrNo
		for i := range held {
			if held[i].Type == policy.Services {
				return fmt.Errorf("the set %s holds services, which have no address: levee set "+
					"list %[1]s", name)
			}
			if held[i].Entries = find(held[i].Entries); len(held[i].Entries) > 0 {
				none = nil
			}
		}
	}
	if f.json {
		return errors.Join(e.PrintJSON(setReport{contentsOf(name, held)}), none)
	}
	if f.export {
		return e.setExport(name, held)
	}
	out := e.Stdout.Buffered()
	for _, s := range held {
		if len(held) > 1 {
			fmt.Fprintf(out, "%s on %s: %s\n", name, s.Dev, entryCount(len(s.Entries)))
		}
		for _, en := range s.Entries {
			left := "until deleted"
			if en.Lease != sets.Forever {
				left = cli.FormatLease(en.Lease) + " left"
			}
			fmt.Fprintf(out, "%-43s  %s\n", en.Element(), left)
		}
	}
	if none != nil {
		what := "address"
		if held[0].Type == policy.Names {
			what = "name"
		}
		fmt.Fprintf(out, "%s: no entry holds the %s\n", name, what)
	}
	out.Flush()
	return none
}
