// Package keep binds a policy to names of interfaces: each interface of such a name gets it as soon
// as it comes, and what it holds of the machine's addresses, routes and users follows these.
//
// A process, the keeper, waits for interfaces. What is bound stands in a record:
//
//	keep/ID.json  the names, and whose process it is
//	keep/ID.lock  flock of the keeper, for as long as it lives
//
// While a record is there, what is kept for an interface that has vanished stays: its program is
// loaded, its sets hold their entries. The interface that comes back under the name gets that very
// program, by a new link: nothing is compiled or verified again.
//
// In go names and a policy, out come calls that put it into force. It may touch records, and tell
// policies in force what the machine has become. It compiles, loads and attaches nothing: how an
// interface gets a policy is a parameter. Of the layers of the data plane it imports inspect and
// those below.
package keep
