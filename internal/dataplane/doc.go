// Package dataplane brings a compiled policy into the kernel and keeps it there: load, attach,
// replace, pin, counters and dynamic sets. It is the only package of the data path that uses
// bpf(2).
//
// In go compiled programs (package codegen), out come verdicts of single frames (Runner), attached
// interfaces (Up, Confirm, Down) and what they count (Status). What depends on the running kernel,
// and nothing else, is decided here: the hook, multi-buffer support, where pins live.
//
// It must never leave an interface with half a policy: everything is staged beside what runs, and
// traffic changes in one bpf_link update. It must never replace a program that is not levee's own.
package dataplane
