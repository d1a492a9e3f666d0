// Package kernel knows what the running kernel can do, and says in one line what it cannot.
//
// It probes features by trying them, never by version alone; the version that first had a feature
// is only told to the reader. It must never change anything that outlives the probe, but for the
// core and the priority of a thread, and where it keeps a program, where a caller asks for that
// (thread.go, dispatch.go).
package kernel
