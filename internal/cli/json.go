package cli

import (
	"encoding/json"
	"fmt"

	"levee/internal/lang/diag"
)

// Shown is a name, or a place in a file, as a line of text has it.
type Shown = diag.Shown

// PrintJSON prints one document, indented: it is read by people as often as by jq.
func (e *Env) PrintJSON(v any) error {
	enc := json.NewEncoder(e.Stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil && e.Stdout.Err == nil {
		return fmt.Errorf("make JSON: %w", err)
	}
	return nil
}
