// Package openmetrics writes metrics as monitoring systems read them: OpenMetrics 1.0, or the older
// text format of Prometheus, which node_exporter's textfile collector takes.
//
// In go families of samples, out comes their text. Whatever a label holds, a reader gets it back.
// The package knows neither policies nor HTTP.
package openmetrics

import (
	"strconv"
	"strings"
)

// Format is one of the two texts.
type Format uint8

const (
	OpenMetrics Format = iota
	Text               // of Prometheus, version 0.0.4
)

// ContentType returns what HTTP calls the format.
func (f Format) ContentType() string {
	if f == Text {
		return "text/plain; version=0.0.4; charset=utf-8"
	}
	return "application/openmetrics-text; version=1.0.0; charset=utf-8"
}

// Type is the type of a metric.
type Type uint8

const (
	Gauge   Type = iota // goes up and down
	Counter             // goes up, until it begins anew
	Info                // is 1: the labels say it all
)

// names are the types as each format calls them; the older one has no word for Info.
var names = [...][2]string{Gauge: {"gauge", "gauge"}, Counter: {"counter", "counter"},
	Info: {"info", "gauge"}}

// suffixes are those of the samples of a type.
var suffixes = [...]string{Gauge: "", Counter: "_total", Info: "_info"}

// Family is a metric with its samples. The name ends in the unit, if there is one.
type Family struct {
	Name, Unit, Help string
	Type             Type
	Samples          []Sample
}

// Sample is a value with its labels.
type Sample struct {
	Labels []Label
	Value  float64
}

// Label is a name with its value.
type Label struct{ Name, Value string }

// Append adds the text of families. Families without samples stay out.
func Append(b []byte, format Format, families []Family) []byte {
	for i := range families {
		if f := &families[i]; len(f.Samples) > 0 {
			b = f.append(b, format)
		}
	}
	if format == OpenMetrics {
		b = append(b, "# EOF\n"...)
	}
	return b
}

func (f *Family) append(b []byte, format Format) []byte {
	sample := f.Name + suffixes[f.Type]
	family := f.Name
	if format == Text {
		family = sample // this format knows no suffixes
	}
	meta := func(what, text string) {
		b = append(b, "# "+what+" "+family+" "+text+"\n"...)
	}
	meta("TYPE", names[f.Type][format])
	if f.Unit != "" && format == OpenMetrics {
		meta("UNIT", f.Unit)
	}
	help := escapeValue
	if format == Text {
		help = escapeHelp
	}
	meta("HELP", help.Replace(f.Help))
	for _, s := range f.Samples {
		b = append(b, sample...)
		b = appendLabels(b, s.Labels)
		b = append(b, ' ')
		b = strconv.AppendFloat(b, s.Value, 'f', -1, 64)
		b = append(b, '\n')
	}
	return b
}

// Texts end at a line feed, values of labels at a quote. The older format reads \" in a help text
// as two characters.
var (
	escapeValue = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

func appendLabels(b []byte, labels []Label) []byte {
	if len(labels) == 0 {
		return b
	}
	for i, l := range labels {
		b = append(b, "{,"[min(i, 1)])
		b = append(b, l.Name+`="`...)
		b = append(b, escapeValue.Replace(strings.ToValidUTF8(l.Value, "\uFFFD"))...)
		b = append(b, '"')
	}
	return append(b, '}')
}
