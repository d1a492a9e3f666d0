// Package env emits the code that reads what is known of a packet: the environment that decoders
// fill (struct env of bpf/parse.h), and the registers that hold its fields while rules are tried.
//
// In goes a plan and a target, out come comparisons of single fields, look-ups of connections and
// of proven flows, and the rows of counters. The offsets are those of the object that clang made,
// which tests compare. The package knows neither blocks nor rules with their effects, and must
// never decide anything: its caller says where each outcome of a comparison leads.
package env
