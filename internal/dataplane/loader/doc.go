// Package loader puts a compiled policy and its maps into the kernel, begins its memories, places
// its sets, and runs it on frames: verdicts of single frames, benches, traces.
//
// It may create maps and programs, which end with the process unless somebody pins them. It
// attaches nothing. Of the layers of the data plane it imports sets and those below.
package loader
