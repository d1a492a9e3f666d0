// Package sets holds the dynamic sets of policies: their memory, which programs read while it
// changes, the place where programs find it, the entries as commands and the agent change and list
// them, and what is kept of them on the disk.
//
// It may touch the memories of sets, their pins and their files. It loads and attaches no program.
// Of the layers of the data plane it imports generation, attach and store.
package sets
