package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// newManPages is for those who make packages: it writes what `levee help` says of each command as a
// manual page.
func newManPages(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "man-pages DIRECTORY",
		Short:  "Write a manual page for each command",
		Hidden: true,
		Args:   WantArgs("DIRECTORY"),
		RunE: func(_ *cobra.Command, args []string) error {
			return eachPage(root, func(name, text string) error {
				return os.WriteFile(filepath.Join(args[0], name), []byte(text), 0o644)
			})
		},
	}
}

// eachPage visits the pages of all commands below one.
func eachPage(cmd *cobra.Command, write func(name, text string) error) error {
	for _, sub := range cmd.Commands() {
		if sub.Hidden || sub.Name() == "help" || sub.DisableFlagParsing { // of another program
			continue
		}
		name := strings.ReplaceAll(sub.CommandPath(), " ", "-")
		if err := write(name+".8", manPage(name, sub)); err != nil {
			return err
		}
		if err := eachPage(sub, write); err != nil {
			return err
		}
	}
	return nil
}

// manPage returns the help of a command in the language of man(7). There is no date: the same help
// is the same page.
func manPage(name string, cmd *cobra.Command) string {
	var b strings.Builder
	section := func(title string) { fmt.Fprintf(&b, ".SH %s\n", title) }
	fmt.Fprintf(&b, ".TH %s 8 \"\" \"levee %s\" \"levee\"\n", strings.ToUpper(roff(name)), Version)
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(name), roff(strings.ToLower(cmd.Short[:1])+cmd.Short[1:]))
	section("SYNOPSIS")
	fmt.Fprintf(&b, ".B %s\n", roff(cmd.UseLine()))
	section("DESCRIPTION")
	long := cmd.Long
	if long == "" {
		long = cmd.Short + "."
	}
	verbatim(&b, long)
	if flags := cmd.LocalFlags().FlagUsages(); flags != "" {
		section("OPTIONS")
		verbatim(&b, flags)
	}
	var below []string
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			below = append(below, strings.ReplaceAll(sub.CommandPath(), " ", "-")+"(8)")
		}
	}
	if cmd.Example != "" {
		section("EXAMPLES")
		verbatim(&b, cmd.Example)
	}
	section("SEE ALSO")
	parent := strings.ReplaceAll(cmd.Parent().CommandPath(), " ", "-") + "(8)"
	all := append([]string{parent}, below...)
	if parent != "levee(8)" {
		all = append(all, "levee(8)")
	}
	fmt.Fprintln(&b, roff(strings.Join(append(all, "levee.policy(5)"), ", ")))
	return b.String()
}

// verbatim keeps the lines as help shows them: some are tables.
func verbatim(b *strings.Builder, text string) {
	fmt.Fprintf(b, ".nf\n%s\n.fi\n", roff(strings.Trim(text, "\n")))
}

// roff escapes what would mean something to the formatter.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", `\(ga`, "'", `\(aq`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
