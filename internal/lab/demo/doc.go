// Package demo shows a web service under a flood: without a defence, with rules in nftables, and
// with levee. Each act searches for the highest rate of the flood at which the service is held
// (search.go).
//
// In goes nothing but a lab that it makes itself, out come the live screen, a table and a sentence.
// The service, its visitors and the flood are processes of their own (role.go), in two network
// namespaces; the flood is made by package gen on the same device and path in all acts. What is
// printed is measured: a request that was not answered in time counts as failed, and its latency
// runs from the moment at which it was due, not from when it could be sent (no coordinated
// omission).
//
// The package must never send outside its lab, and leaves nothing behind: processes end with their
// parent, namespaces with the lab, which the next one sweeps should this process be killed.
package demo
