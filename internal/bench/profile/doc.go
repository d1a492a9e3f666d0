// Package profile finds out what the receiving core spends its time on while a flood runs in the
// lab: driver, kernel, netfilter, eBPF program, helpers, user space, idle, other tasks; and draws a
// flame graph.
//
// RunLive does so for an interface in service, where it sends and attaches nothing.
//
// In goes a rung of package bench, whose rules for windows hold here too; out come shares by class
// as medians over the windows with 95 % intervals, the functions that took most, and a
// self-contained SVG.
//
// Samples are taken with perf_event_open(2) directly (perf.go): CPU cycles where the machine counts
// them, else the kernel's cpu-clock, a timer. No tool needs to be installed. Symbols come from
// /proc/kallsyms and, for programs, from the kernel's own list of them. A sample belongs to one
// class by the rules in classify.go; what cannot be told is "unknown", and the classes add up to
// 100 %.
//
// The package watches one core of the machine, in service all, and sees every process of it; it
// reads addresses and process ids only, and leaves nothing behind.
package profile
