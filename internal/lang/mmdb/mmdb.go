// Package mmdb selects networks of a MaxMind DB file by country or autonomous system.
//
// In goes a file, out come its networks as the text of a set file. The fields are those of GeoLite2
// and DB-IP, and the flat ones of IPinfo. A file is hostile: its size and the work on it are
// bounded. It opens no files.
package mmdb

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/oschwald/maxminddb-golang/v2"
)

// maxBytes is how large a file may be.
const maxBytes = 512 << 20

// Query is what networks are meant.
type Query struct {
	Country bool     // else of an autonomous system
	Values  []string // two capital letters, or numbers
}

// String is a query in two words.
func (q *Query) String() string {
	what := "as"
	if q.Country {
		what = "country"
	}
	return what + " " + strings.Join(q.Values, ",")
}

// Networks are the networks of a file, one a line, at most so many. Each value has to occur.
func Networks(r io.Reader, q Query, most int) (text string, err error) {
	defer func() { // the library checks what it reads; a policy is not worth a crash
		if p := recover(); p != nil {
			err = fmt.Errorf("it is damaged: %v", p)
		}
	}()
	file, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return "", err
	}
	if len(file) > maxBytes {
		return "", fmt.Errorf("it has more than %d bytes", maxBytes)
	}
	db, err := maxminddb.OpenBytes(file)
	if err != nil {
		return "", errors.New("it is no MaxMind DB file, or a damaged one")
	}
	defer db.Close()
	var out strings.Builder
	meant := map[uintptr]int{} // by record: number of the value, or -1
	found := make([]bool, len(q.Values))
	known := false
	n, networks := 0, 0
	for res := range db.Networks(maxminddb.IncludeNetworksWithoutData()) {
		if err := res.Err(); err != nil {
			return "", fmt.Errorf("it is damaged: %w", err)
		}
		// a tree has a leaf more than nodes; where nodes are shared it can have 2^128
		if networks++; networks > int(db.Metadata.NodeCount)+1 {
			return "", errors.New("it is damaged: its tree has parts that are in it twice")
		}
		if !res.Found() {
			continue
		}
		at, seen := meant[res.Offset()]
		if !seen {
			value := q.of(res)
			known = known || value != ""
			at = slices.Index(q.Values, value)
			meant[res.Offset()] = at
		}
		if at < 0 {
			continue
		}
		found[at] = true
		if n++; n > most {
			return "", fmt.Errorf("more than %d networks are meant", most)
		}
		out.WriteString(res.Prefix().String())
		out.WriteByte('\n')
	}
	if !known {
		return "", fmt.Errorf("its networks have no %s: it is a %q",
			strings.Fields(q.String())[0], db.Metadata.DatabaseType)
	}
	if i := slices.Index(found, false); i >= 0 {
		return "", fmt.Errorf("it has no network of %s", q.Values[i])
	}
	return out.String(), nil
}

// of is what a record says.
func (q *Query) of(res maxminddb.Result) string {
	if q.Country {
		for _, path := range [][]any{{"country", "iso_code"}, {"country_code"}, {"country"}} {
			var text string
			if res.DecodePath(&text, path...) == nil && len(text) == 2 {
				return strings.ToUpper(text)
			}
		}
		return ""
	}
	var number uint64
	if res.DecodePath(&number, "autonomous_system_number") == nil && number != 0 {
		return strconv.FormatUint(number, 10)
	}
	var text string
	if res.DecodePath(&text, "asn") == nil {
		return strings.TrimPrefix(text, "AS")
	}
	if res.DecodePath(&number, "asn") == nil && number != 0 {
		return strconv.FormatUint(number, 10)
	}
	return ""
}
