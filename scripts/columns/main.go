// Command columns names the lines of more than 100 columns in Go, C and Markdown, a tab being four.
// Exempt is what cannot be broken or is not ours to break:
//
//   - in Go, generated files, directives, and lines with raw strings: other tools read these, or a
//     test expects them;
//   - in Markdown, tables, code and output in fences, and words that are wider, such as addresses;
//   - testdata.
package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

const (
	most = 100
	tab  = 4
)

func main() {
	out, err := exec.Command("git", "ls-files", "*.go", "*.c", "*.h", "*.md").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "listing the files:", err)
		os.Exit(1)
	}
	wide := false
	for _, name := range strings.Fields(string(out)) {
		if strings.Contains(name, "testdata/") {
			continue
		}
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // deleted, and not yet committed
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		for _, n := range tooWide(name, string(text)) {
			fmt.Fprintf(os.Stderr, "%s:%d: more than %d columns\n", name, n, most)
			wide = true
		}
	}
	if wide {
		os.Exit(1)
	}
}

// tooWide lists the lines of a file, from 1 on.
func tooWide(name, text string) (out []int) {
	exempt := map[int]bool{}
	switch filepath.Ext(name) {
	case ".go":
		if strings.HasPrefix(text, "// Code generated ") {
			return nil
		}
		exempt = rawLines(text)
	case ".md":
		exempt = markdownLines(text)
	}
	for i, line := range strings.Split(text, "\n") {
		if columns(line) > most && !exempt[i+1] && !strings.HasPrefix(line, "//go:") {
			out = append(out, i+1)
		}
	}
	return out
}

func columns(line string) int {
	return utf8.RuneCountInString(line) + (tab-1)*strings.Count(line, "\t")
}

// rawLines returns those that a raw string of Go stands in.
func rawLines(text string) map[int]bool {
	lines := map[int]bool{}
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), nil, 0)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok == token.STRING && lit[0] == '`' {
			first := file.Line(pos)
			for n := range strings.Count(lit, "\n") + 1 {
				lines[first+n] = true
			}
		}
	}
}

// markdownLines are tables, what stands between fences, and lines of one word.
func markdownLines(text string) map[int]bool {
	lines := map[int]bool{}
	fenced := false
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		fence := strings.HasPrefix(line, "```")
		fenced = fenced != fence
		words := strings.Fields(strings.TrimLeft(line, "-*>#0123456789. "))
		lines[i+1] = fenced || fence || strings.HasPrefix(line, "|") || len(words) == 1
	}
	return lines
}
