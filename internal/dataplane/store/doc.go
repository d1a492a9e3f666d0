// Package store is the state of the data plane on disk: the runtime directory with its lock, what
// is pinned there, what describes each generation of a policy, and who may read it.
//
// It may touch files below the runtime directory, and the bpffs that it mounts there. It never
// looks at an interface and attaches nothing. It is the lowest layer of the data plane and imports
// none of the others.
package store
