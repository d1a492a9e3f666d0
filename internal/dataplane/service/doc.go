// Package service keeps policies of services in force: at the cgroup (v2) of a unit or a container,
// for what arrives at its sockets and for what they send; or as a filter of sockets, which whoever
// may open it attaches to his own.
//
// In go a compiled policy, the name of a service and its cgroup; out come links of the kernel that
// judge, and pins that outlive the service, so that counters, limits and entries of sets go on when
// it is started again. It must never leave a service with half a policy, or let one begin without
// the policy that it was given: whoever starts it waits for Put and goes on only without an error.
package service
