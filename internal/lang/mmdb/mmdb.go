// Package mmdb selects networks of a MaxMind DB file by country or autonomous system, and tells the
// countries of addresses.
//
// In goes a file, out come its networks as the text of a set file, or a country of an address. The
// fields are those of GeoLite2 and DB-IP, and the flat ones of IPinfo. A file is hostile: its size
// and the work on it are bounded. It opens no files.
package mmdb

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oschwald/maxminddb-golang/v2"
)

// maxBytes is the largest size of a file.
const maxBytes = 512 << 20

// Query selects networks of a database.
type Query struct {
	Country bool     // else of an autonomous system
	Values  []string // two capital letters, or numbers
}

// String returns a query in two words.
func (q *Query) String() string {
	what := "as"
	if q.Country {
		what = "country"
	}
	return what + " " + strings.Join(q.Values, ",")
}

// Networks returns the networks of a file, one a line, at most so many. Each value has to occur.
func Networks(r io.Reader, q Query, most int) (text string, err error) {
	defer recovered(&err)
	db, err := read(r)
	if err != nil {
		return "", err
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

// recovered makes an error of a panic: the library checks what it reads, and neither a policy nor
// an agent is worth a crash.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("it is damaged: %v", p)
	}
}

func read(r io.Reader) (*maxminddb.Reader, error) {
	file, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(file) > maxBytes {
		return nil, fmt.Errorf("it has more than %d bytes", maxBytes)
	}
	db, err := maxminddb.OpenBytes(file)
	if err != nil {
		return nil, errors.New("it is no MaxMind DB file, or a damaged one")
	}
	return db, nil
}

// Countries lists the countries of addresses, as a database has them.
type Countries struct {
	Type  string    // of the file, such as GeoLite2-Country, as it calls itself
	Built time.Time // when
	Of    []string  // two capital letters for each address, "" where the file does not know
}

// CountriesOf looks addresses up in a file.
func CountriesOf(r io.Reader, addrs []netip.Addr) (c Countries, err error) {
	defer recovered(&err)
	db, err := read(r)
	if err != nil {
		return c, err
	}
	defer db.Close()
	c.Type = db.Metadata.DatabaseType
	c.Built = time.Unix(int64(min(db.Metadata.BuildEpoch, 1<<40)), 0).UTC()
	q := Query{Country: true}
	for _, a := range addrs {
		country := ""
		if res := db.Lookup(a.Unmap()); res.Err() == nil && res.Found() {
			country = q.of(res)
		}
		c.Of = append(c.Of, country)
	}
	return c, nil
}

// of returns what a record says.
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
