// Package report turns the figures of a measurement into files that people and programs read: JSON,
// CSV, one HTML page with charts to play with, and a picture (SVG, PNG) of each chart.
//
// In goes a Document, which every measurement of levee draws up from its own results. It knows
// charts, series, points and tables, and nothing about packets. Out come bytes; where they are
// written is the caller's business. The package also reads its own JSON back, and says which
// differences between two documents are real (compare.go).
//
// What is not known is a gap with its reason, never a zero. Whatever a document holds may come from
// a file that somebody sent: names are escaped wherever they go, sizes are bounded, and the page
// asks no network for anything.
//
// The package imports no other part of levee but machine, the fingerprint.
package report
