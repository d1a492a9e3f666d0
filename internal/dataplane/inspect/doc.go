// Package inspect tells what is in force and what it does: status, counters, memories, shadows, and
// whether packets come to the program at all.
//
// It reads, for members of a group without any capability, too. What it changes is what generation
// finishes before anybody looks. Of the layers of the data plane it imports tap and those below.
package inspect
