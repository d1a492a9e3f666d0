// Command tutorial types what a page shows, and compares what comes with what the page promises.
//
// It takes the path of a page. In blocks that are marked `console` each line that begins with "$ "
// is a command, with the lines below it that belong to a here-document; the lines up to the next
// command are what it prints. All commands go to one shell, as a reader's do. A number stands for
// any number, blanks for any blanks, `...` in a line for any part of it, and a line of `...` for
// any lines. Each command has to end with 0. Blocks may say more:
//
//	console soon    a command is repeated for half a minute until it prints what it should
//	console waits   the command goes on; the next one in this terminal waits for its end
//	console second  the same as soon, in a shell of a second terminal
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// step is a command with what it should print, and what its block says.
type step struct {
	command, output, block string
}

// steps returns the commands of a page, in order.
func steps(page string) ([]step, error) {
	block := regexp.MustCompile("(?ms)^```console ?(|soon|waits|second)\n(.*?)^```$")
	hereDocument := regexp.MustCompile(`<<'(\w+)'`)
	var all []step
	for _, m := range block.FindAllStringSubmatch(page, -1) {
		end := "" // of the here-document that is open
		for line := range strings.Lines(m[2]) {
			command, is := strings.CutPrefix(line, "$ ")
			switch {
			case end != "":
				all[len(all)-1].command += line
				if line == end+"\n" {
					end = ""
				}
			case is:
				all = append(all, step{command: command, block: m[1]})
				if h := hereDocument.FindStringSubmatch(command); h != nil {
					end = h[1]
				}
			case len(all) == 0:
				return nil, fmt.Errorf("%q is printed before the first command", line)
			default:
				all[len(all)-1].output += line
			}
		}
		if end != "" {
			return nil, fmt.Errorf("a here-document lacks its %s", end)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the page has no command")
	}
	return all, nil
}

// pattern returns the expression that output has to match.
func pattern(output string) *regexp.Regexp {
	number := regexp.MustCompile(`[0-9]+(\\\.[0-9]+)?`)
	blanks := regexp.MustCompile(`[ \t]+`)
	expr := "^"
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line == "..." {
			expr += `(?:.*\n)*`
			continue
		}
		line = number.ReplaceAllString(regexp.QuoteMeta(line), `[0-9]+(?:\.[0-9]+)?`)
		line = blanks.ReplaceAllString(line, `[ \t]+`)
		expr += `[ \t]*` + strings.ReplaceAll(line, `\.\.\.`, ".*") + `[ \t]*\n`
	}
	return regexp.MustCompile(expr + "$")
}

// shell is one that all commands of a page go to.
type shell struct {
	in  io.Writer
	out *bufio.Reader
}

// path lists the directories in which the shell of a user of Debian looks for programs
// (/etc/profile).
const path = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"

func open() (*shell, error) {
	cmd := exec.Command("bash", "--norc")
	cmd.Env = append(os.Environ(), "PAGER=cat", "TERM=dumb", "LC_ALL=C.UTF-8", "PATH="+path)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout
	return &shell{in, bufio.NewReader(out)}, cmd.Start()
}

// run types a command, and returns what it has printed and whether it ended with 0. What runs on in
// the background may print, too.
func (s *shell) run(command string) (string, bool, error) {
	const mark = "-- the command has ended with "
	if _, err := fmt.Fprintf(s.in, "%s\nprintf '\\n%s%%d\\n' $?\n", command, mark); err != nil {
		return "", false, err
	}
	var printed bytes.Buffer
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			return printed.String(), false, fmt.Errorf("the shell has ended: %w", err)
		}
		if status, ok := strings.CutPrefix(line, mark); ok {
			// The mark begins with an end of line, so that it always stands alone.
			return strings.TrimSuffix(printed.String(), "\n"), status == "0\n", nil
		}
		printed.WriteString(line)
	}
}

// walk does a step until it prints what it should.
func (s *shell) walk(one step) error {
	fmt.Print("$ ", one.command)
	until := time.Now()
	if one.block == "soon" || one.block == "second" {
		until = until.Add(30 * time.Second)
	}
	want := pattern(one.output)
	for {
		printed, ended, err := s.run(one.command)
		if err != nil {
			return err
		}
		if ended && want.MatchString(printed) {
			fmt.Print(printed)
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("%s: ended with 0: %v; printed\n%s\nand not\n%s",
				strings.TrimSpace(one.command), ended, printed, one.output)
		}
		time.Sleep(time.Second)
	}
}

// walkAll does all steps, in two terminals.
func walkAll(all []step) error {
	var terminals [2]*shell
	for i := range terminals {
		s, err := open()
		if err != nil {
			return err
		}
		terminals[i] = s
	}
	waits := make(chan error, 1) // of the first terminal, whose command goes on
	waits <- nil
	for _, one := range all {
		if one.block == "second" {
			if err := terminals[1].walk(one); err != nil {
				return err
			}
			continue
		}
		if err := <-waits; err != nil {
			return err
		}
		if one.block == "waits" {
			go func() { waits <- terminals[0].walk(one) }()
			continue
		}
		err := terminals[0].walk(one)
		if err != nil {
			return err
		}
		waits <- nil
	}
	return <-waits
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tutorial:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("one page is needed: tutorial PAGE")
	}
	page, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	all, err := steps(string(page))
	if err != nil {
		return err
	}
	if err := walkAll(all); err != nil {
		return err
	}
	fmt.Printf("%d commands did what the page says\n", len(all))
	return nil
}
