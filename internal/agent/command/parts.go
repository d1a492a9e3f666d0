package command

import (
	"fmt"
	"io"
	"slices"
	"time"

	"levee/internal/agent/part"
	"levee/internal/lang/diag"
)

// printParts prints the parts of an agent, those that do not work first.
func printParts(out io.Writer, parts []part.Status) {
	for _, state := range []part.State{part.Fails, part.Waits, part.Works} {
		for i := range parts {
			if parts[i].State == state {
				printPart(out, &parts[i])
			}
		}
	}
}

func printPart(out io.Writer, s *part.Status) {
	fmt.Fprintf(out, "%-8s  %s, since %s", s.State, diag.Escaped(s.Title()),
		s.Since.Local().Format(time.DateTime))
	switch {
	case s.State != part.Works:
		fmt.Fprintf(out, ": %s", diag.Escaped(s.Error))
	case !s.Last.IsZero():
		fmt.Fprintf(out, "; %s, %s ago", diag.Escaped(s.Saw), ago(s.Last))
	}
	fmt.Fprintln(out)
	if s.Do != "" {
		fmt.Fprintf(out, "          to do: %s\n", diag.Escaped(s.Do))
	}
	if s.State == part.Works && s.LastError != "" {
		fmt.Fprintf(out, "          failed last at %s: %s\n",
			s.LastFailed.Local().Format(time.DateTime), diag.Escaped(s.LastError))
	}
}

// printWatched prints where nobody looks for floods, and, where none were seen, since when somebody
// has looked.
func printWatched(out io.Writer, watched []part.Status, seen bool) {
	looks := func(s part.Status) bool { return s.Kind == part.Detector && s.State == part.Works }
	for i := range watched {
		s := &watched[i]
		switch {
		case s.State != part.Works:
			printPart(out, s)
		case looks(*s) && !seen:
			fmt.Fprintf(out, "no floods were seen by %s, which has looked since %s\n",
				diag.Escaped(s.Title()), s.Since.Local().Format(time.DateTime))
		}
	}
	if len(watched) == 0 {
		fmt.Fprintln(out, "nobody looks for floods: no policy in force says detect; such a line "+
			`is: detect "floods" propose`)
	} else if !slices.ContainsFunc(watched, looks) {
		fmt.Fprintln(out, "nobody looks for floods at this moment")
	}
}
