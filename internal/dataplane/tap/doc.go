// Package tap holds the programs that get packets behind the policy that has judged them: captures,
// decisions, samples, logs, and the sockets that connections are led to.
//
// It may load programs of its own and hook them behind a policy, for as long as somebody looks. It
// changes no verdict. Of the layers of the data plane it imports loader and those below.
package tap
