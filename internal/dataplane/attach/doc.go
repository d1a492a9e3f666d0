// Package attach puts programs on interfaces and takes them off: native and generic XDP, TCX,
// filters of tc, and the place that a dispatcher of libxdp has for them. An Attachment is what runs
// on an interface, together with the generations that the state on disk has for it.
//
// It may touch interfaces, links, filters and pins of links. It compiles and loads nothing, reads
// no counter, and never takes away what is not levee's. Of the layers of the data plane it imports
// the state on disk (store).
package attach
