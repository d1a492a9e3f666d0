package main

import (
	"io"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/lang/lsp"
)

const lspLong = `Speak the Language Server Protocol on standard input and output: an editor runs it.
It shows the errors and warnings of "levee check" while a policy is written, lays it out as
"levee fmt" does, says what a word means and what a set holds, completes words, and finds where
sets and labels are defined. It writes no file and needs no rights.`

func newLSP(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "lsp",
		Short:   "Help an editor with policies (Language Server Protocol)",
		Long:    lspLong,
		Example: "  vim.lsp.config('levee', { cmd = { 'levee', 'lsp' }, filetypes = { 'levee' } })",
		Args:    cli.WantArgs(),
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := e.Signals()
			defer stop()
			return lsp.Serve(ctx, e.Stdin, keepOpen{e.Stdout})
		},
	}
}

// keepOpen is an output that the end of a conversation does not close.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }
