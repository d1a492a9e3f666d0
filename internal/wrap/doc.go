// Package wrap has the commands that give a service a policy of its own: a unit of systemd, a
// container, or the sockets that a service is handed.
//
// In go the name of a service and a policy file; out come a drop-in that keeps the unit from
// starting without its policy, and a policy in force at the service's cgroup or sockets. It must
// never leave a drop-in that nothing stands behind, or start a command whose sockets have no
// filter.
package wrap
