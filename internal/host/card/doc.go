// Package card says what network cards and their drivers do with XDP: what the source of a driver
// tells, and what a device tells by ethtool, netlink and sysfs.
//
// In goes the name of an interface, out come facts and conclusions from them, the same for the same
// facts. It must never change a setting or attach a program. What a device does not tell counts as
// nothing known: whether a program is asked for packets is seen by counting them, not believed.
package card
