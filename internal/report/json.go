package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxFile is the number of bytes of a file that Read looks at.
const maxFile = 256 << 20

// JSON writes the document. A measurement that has a report of its own, raw windows and all, hands
// it over as raw, which must become a JSON object: its fields come first, and the document behind
// them under the key "document".
func (d *Document) JSON(w io.Writer, raw any) error {
	d.settle()
	if err := d.check(); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	doc, err := compact(d)
	if err != nil {
		return err
	}
	if raw == nil {
		return indented(w, doc)
	}
	body, err := compact(raw)
	if err != nil {
		return err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(body, &keys); err != nil {
		return fmt.Errorf(
			"writing the report: a measurement's own report must be a JSON object: %w", err)
	}
	if _, taken := keys["document"]; taken {
		return errors.New(
			`writing the report: the measurement's own report has a "document" already`)
	}
	joined := body[:len(body)-1]
	if len(keys) > 0 {
		joined = append(joined, ',')
	}
	joined = append(joined, `"document":`...)
	return indented(w, append(append(joined, doc...), '}'))
}

// compact is JSON without blanks, and without escapes that only HTML needs.
func compact(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("writing the report: %w", err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

func indented(w io.Writer, text []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	out.WriteByte('\n')
	_, err := out.WriteTo(w)
	return err
}

// Read reads what JSON wrote. name is for messages; every error says what is wrong with the file
// and what would be right.
func Read(r io.Reader, name string) (*Document, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d MiB: no report is", name, maxFile>>20)
	}
	var file struct {
		Document json.RawMessage `json:"document"`
	}
	if err := decode(text, &file); err != nil {
		return nil, fmt.Errorf("%s is no report: %w", name, err)
	}
	if file.Document == nil {
		file.Document = text // a measurement without fields of its own
	}
	var head struct {
		Schema string `json:"schema"`
	}
	if err := decode(file.Document, &head); err != nil {
		return nil, fmt.Errorf("%s is no report: %w", name, err)
	}
	switch {
	case head.Schema == Schema:
	case head.Schema == "":
		return nil, fmt.Errorf("%s is no report: it has no \"schema\"; make one with `levee "+
			"bench COMMAND --json`", name)
	default:
		if strings.HasPrefix(head.Schema, "levee.report/") {
			return nil, fmt.Errorf("%s has the schema %.40q and this levee reads %q: read it "+
				"with the levee that made it, or a newer one", name, head.Schema, Schema)
		}
		return nil, fmt.Errorf("%s is no report: its schema is %.40q, not %q", name, head.Schema,
			Schema)
	}
	d := &Document{}
	if err := decode(file.Document, d); err != nil {
		return nil, fmt.Errorf("%s is no report: %w", name, err)
	}
	if err := d.check(); err != nil {
		return nil, fmt.Errorf("%s cannot be used: %w", name, err)
	}
	return d, nil
}

// decode reads one JSON value, and says in words what is wrong with the text.
func decode(text []byte, into any) error {
	err := json.Unmarshal(text, into)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case len(bytes.TrimSpace(text)) == 0:
		return errors.New("it is empty")
	case errors.As(err, &syntax) && syntax.Offset >= int64(len(text)) &&
		strings.Contains(err.Error(), "unexpected end"):
		return fmt.Errorf("it is cut off after %d bytes", len(text))
	case errors.As(err, &syntax):
		return fmt.Errorf("it is not JSON: %v at byte %d", err, syntax.Offset)
	case errors.As(err, &kind):
		if kind.Field == "" {
			return fmt.Errorf("an object is expected, not the JSON %s that it is", kind.Value)
		}
		return fmt.Errorf("%q is of the JSON type %s, which it cannot be", kind.Field, kind.Value)
	}
	return err
}
