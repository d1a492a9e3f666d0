// Package bench is what all measurements of levee have in common: options and their bounds, rounds
// in turn, conditions of the machine, progress, and the parts of a report that are the same in
// each.
//
// Each folder beside this one is a measurement (ladder, mix, latency, service, sets, rules, route,
// hash, profile, generators), and says only what is its own: what is compared, how one round of it
// is taken, and which charts and tables show it. Helpers have a folder too: flood (windows of a
// flood in a lab, and the rules that make a figure), load (contenders that hold a set or rules),
// lookup (structures in the kernel), workload (what is measured with), calibration (how fast the
// machine is), published (figures of others), linerate.
//
// In go Options, out comes a Report. A figure is the median of rounds that go through what is
// compared forwards and backwards in turn, with its 95 % interval; what has no figure says why. An
// interrupted measurement returns what it has, marked as incomplete, and an error. The package
// imports none of the measurements.
package bench
