package commands

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/inspect"
	"levee/internal/lab"
)

const labLong = `Namespaces joined by veth pairs, to try levee in and to measure it: a server,
whose eth0 is the interface to protect, and the world beyond it. Addresses come from the ranges
set aside for benchmarks and documentation; nothing leaves the machine.`

// defaultLab is the lab that is meant where no name is given.
const defaultLab = "lab"

const labExample = `  sudo levee lab up
  sudo ip netns exec levee-lab-server levee up edge.levee --dev eth0
  sudo levee lab down`

func newLab(e *env) *cobra.Command {
	return cli.Noun("lab COMMAND", "Network namespaces to try all of it in", labLong, labExample,
		newLabUp(e), newLabDown(e), newLabList(e), newLabDemo(e), newLabDemoRole(e))
}

func newLabUp(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "up [NAME]",
		Short:   "Make a lab that stays until `levee lab down`",
		Long:    labLong,
		Example: "  sudo levee lab up\n  sudo levee lab up second",
		Args:    labName,
		RunE: func(_ *cobra.Command, args []string) error {
			return e.labUp(nameOf(args), asJSON)
		},
	}
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

func newLabDown(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "down [NAME]",
		Short: "Remove a lab with everything in it",
		Long: "Remove a lab: its namespaces, their devices, the policies on them, and every\n" +
			"process that still runs in them.",
		Example: "  sudo levee lab down",
		Args:    labName,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := e.needRoot("removing network namespaces"); err != nil {
				return err
			}
			if err := lab.Down(context.Background(), nameOf(args)); err != nil {
				return err
			}
			// Policies that were in force in it are noticed to be gone, and their remains removed.
			if _, _, err := inspect.Status(context.Background(), true); err != nil {
				return err
			}
			fmt.Fprintf(e.Stdout, "lab %s is gone\n", nameOf(args))
			return nil
		},
	}
}

func newLabList(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the labs of this machine",
		Long: "List the labs of this machine. What a command that was killed has left of one\n" +
			"is removed, and that is said.",
		Example: "  sudo levee lab list --json",
		Args:    cli.WantArgs(),
		RunE: func(*cobra.Command, []string) error {
			return e.labList(asJSON)
		},
	}
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

// labName allows one optional argument.
func labName(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return cli.Usagef(cmd, "%q is one argument too many", args[1])
	}
	if len(args) == 1 && args[0] == "" { // a variable that is not set
		return cli.Usagef(cmd, "NAME is empty")
	}
	return nil
}

func nameOf(args []string) string {
	if len(args) == 1 {
		return args[0]
	}
	return defaultLab
}

func (e *env) needRoot(doing string) error {
	if !e.Root {
		return cli.Refusedf("%s needs root; run it with sudo", doing)
	}
	return nil
}

// LabReport is one lab in the object of `levee lab list --json`.
type LabReport struct {
	Name    string      `json:"name"`
	Devices []labDevice `json:"devices"`
}

type labDevice struct {
	Host      string `json:"host"`
	Namespace string `json:"netns"`
	Dev       string `json:"dev"`
	MAC       string `json:"mac"`
	IPv4      string `json:"ipv4"`
	IPv6      string `json:"ipv6"`
}

func newLabReport(name string, hosts []*lab.Host) LabReport {
	r := LabReport{Name: name, Devices: []labDevice{}}
	for _, h := range hosts {
		for _, d := range h.Devices {
			r.Devices = append(r.Devices, labDevice{h.Name, h.Namespace, d.Name, d.MAC.String(),
				d.IPv4.String(), d.IPv6.String()})
		}
	}
	return r
}

func (e *env) labUp(name string, asJSON bool) error {
	if err := e.needRoot("making network namespaces"); err != nil {
		return err
	}
	ctx, stop := e.Signals()
	defer stop()
	t := lab.Standard()
	t.Name, t.Persistent = name, true
	l, err := lab.New(ctx, t)
	if errors.Is(err, lab.ErrExists) {
		return fmt.Errorf("lab %s exists already; remove it with `levee lab down %s`, or name "+
			"another", name, name)
	}
	if err != nil {
		return err
	}
	rep := newLabReport(l.Name, l.Hosts)
	if asJSON {
		return e.PrintJSON(rep)
	}
	fmt.Fprintf(e.Stdout, "lab %s is up\n\n", l.Name)
	e.printLab(&rep)
	server, world := l.Host(lab.Server), l.Host(lab.World)
	fmt.Fprintf(e.Stdout, `
  sudo ip netns exec %s levee up POLICY --dev eth0
  sudo ip netns exec %s ping -c 3 %s
  sudo levee gen --netns %s --dev eth0 --kind syn --port 80 --duration 5s
  sudo levee lab down %s
`, server.Namespace, world.Namespace, server.Devices[0].IPv4.Addr(), world.Namespace, l.Name)
	return nil
}

func (e *env) printLab(r *LabReport) {
	t := cli.NewTable("HOST NAMESPACE DEVICE IPV4 IPV6", "<", "<", "<", "<", "<")
	for _, d := range r.Devices {
		t.Row(d.Host, d.Namespace, d.Dev, d.IPv4, d.IPv6)
	}
	t.Print(e.Stdout, "  ")
}

// sweepLabs removes what commands that were killed have left of their labs, and says so. Settings
// of the machine that they had changed come back.
func (e *env) sweepLabs(left []lab.Info) error {
	how := "it is removed now"
	if !e.Root {
		how = "`sudo levee lab list` removes it"
	} else if err := lab.Sweep(context.Background()); err != nil {
		return err
	}
	for _, i := range left {
		e.Sayf("lab %s was left by a command that was killed; %s", i.Name, how)
	}
	return nil
}

func (e *env) labList(asJSON bool) error {
	infos, left, err := lab.List()
	if err != nil {
		return err
	}
	if err := e.sweepLabs(left); err != nil {
		return err
	}
	all := []LabReport{}
	for _, i := range infos {
		all = append(all, newLabReport(i.Name, i.Hosts))
	}
	if asJSON {
		return e.PrintJSON(map[string]any{"labs": all})
	}
	if len(all) == 0 {
		fmt.Fprintln(e.Stdout, "no lab is up")
	}
	for i := range all {
		fmt.Fprintf(e.Stdout, "%s\n", all[i].Name)
		e.printLab(&all[i])
	}
	return nil
}
