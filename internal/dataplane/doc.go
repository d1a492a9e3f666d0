// Package dataplane puts compiled policies into force on interfaces and replaces them: up, down,
// trials, live rules of the agent, shadows, moves to another hook. What it stands on are the
// packages below it, each a layer that imports none of those above
// (docs/explanation/ARCHITECTURE.md):
//
//	keep        policies that are bound to names
//	inspect     what is in force, and what it counts
//	tap         what is behind a judged packet: captures, decisions, samples, logs, traps
//	loader      programs and maps in the kernel, verdicts of single frames
//	sets        dynamic sets
//	generation  what finishes generations: trials that end, counts that are carried over
//	attach      interfaces, links, filters, dispatchers
//	store       the state on disk
//
// What depends on the running kernel, and nothing else, is decided here and there: the hook,
// multi-buffer support, where pins live. It must never leave an interface with half a policy:
// everything is staged beside what runs, and traffic changes in one bpf_link update. It must never
// replace a program that is not levee's own.
package dataplane
