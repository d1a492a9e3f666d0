// Package episode is the life of floods on one interface, from the first alarm to the last rule
// that is gone, as a state machine.
//
// In go events with their time: alarms, what a search found, what became of a change in the kernel,
// counts of rules, commands, another policy, what an agent before this one has left. Out come
// effects: searches, changes of the rules in force, incidents to keep, lines to log. Whoever runs
// the machine does what effects ask for, in their order, and tells what came of it by events.
//
// A flood's state stands in one struct. One function moves an incident from state to state, and one
// its rules. The package must never read a clock, a file or the kernel, and never start anything.
package episode
