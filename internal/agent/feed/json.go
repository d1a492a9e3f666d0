package feed

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/listform"
)

var jsonValues = format{form: listform.Field, read: readValues}

// readValues reads each value of one name, at any depth, in any number of JSON texts: a text, or
// texts in a list. A number is read as its text. JSON that has other names, and no empty list, is
// not a list that happens to have no entry, but another one, or an error of the server. A null
// stands for an empty list where the JSON has no other value: beside others it may be an error's.
func readValues(in *reader, r io.Reader) error {
	const maxDepth = 64
	type level struct {
		object, value bool // value: a value comes, no name
		filled        bool // a value of it has ended
		name          string
	}
	values := &pieces{r: r}
	d := json.NewDecoder(values)
	d.UseNumber()
	var at []level
	var others []string // names
	found, empty, null, says := false, false, false, false
	top := func() *level { return &at[len(at)-1] }
	done := func() { // a value has ended
		if len(at) > 0 {
			top().value, top().filled = false, true
		}
	}
	for {
		token, err := d.Token()
		values.next()
		if err == io.EOF && len(at) == 0 {
			if len(others) == 0 || found || empty || null && !says {
				return nil
			}
			return fmt.Errorf("no value is named %q; names are %s", in.of.Value,
				strings.Join(others, ", "))
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("read the JSON at byte %d: %w", d.InputOffset(), err)
		}
		switch t := token.(type) {
		case json.Delim:
			switch t {
			case '{', '[':
				next := level{object: t == '{'}
				if t == '[' && len(at) > 0 {
					next.name = top().name
				}
				if at = append(at, next); len(at) > maxDepth {
					return fmt.Errorf("the JSON is more than %d levels deep", maxDepth)
				}
			default:
				empty = empty || t == ']' && !top().filled
				at = at[:len(at)-1]
				done()
			}
			continue
		case nil:
			null = true
		default:
			text, is := t.(string)
			if is && len(at) > 0 && top().object && !top().value {
				top().name, top().value = text, true
				found = found || text == in.of.Value
				if name := strconv.Quote(text[:min(len(text), 40)]); len(others) < maxSkipped &&
					!slices.Contains(others, name) {
					others = append(others, name)
				}
				continue
			}
			says = true
			if !is {
				text = fmt.Sprint(t) // a number, or true or false
			}
			if len(at) > 0 && top().name == in.of.Value {
				place := func() string { return fmt.Sprintf("byte %d", d.InputOffset()) }
				ok, err := in.add(text, place)
				if err != nil {
					return err
				}
				if !ok {
					in.bad++
					in.out.Bad++
					in.skip(place(), text, "is no "+in.what())
				}
			}
		}
		done()
	}
}
