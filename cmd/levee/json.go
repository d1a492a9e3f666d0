package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"levee/internal/lang/syntax"
)

// jsonFlag gives a listing its --json.
func jsonFlag(cmd *cobra.Command, v *bool) {
	cmd.Flags().BoolVar(v, "json", false, "print JSON; field names stay from release to release")
}

// shown is a name, or a place in a file, as a line of text has it (syntax.Quoted). JSON, which
// escapes by itself, has it as it is.
type shown string

// MarshalText implements encoding.TextMarshaler.
func (s shown) MarshalText() ([]byte, error) { return []byte(syntax.Unquoted(string(s))), nil }

// printJSON prints one document, indented: it is read by people as often as by jq.
func (e *env) printJSON(v any) error {
	enc := json.NewEncoder(e.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil && e.stdout.err == nil {
		return fmt.Errorf("make JSON: %w", err)
	}
	return nil
}
