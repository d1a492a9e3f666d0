// Package generation brings what is kept of an interface to a state in which nothing is left to do:
// trials past their deadline end, counts of replaced generations are carried over, what a killed
// command left is removed, shadows are hooked to the generation that judges. Every command begins
// with it.
//
// It may touch counters, links and descriptions of generations that there are. It puts no new
// program into force but the fallback of a trial. Of the layers of the data plane it imports
// attaching (attach) and the state on disk (store).
package generation
