// Package api is the frame of the agent's HTTP API: one table of routes, each with its method,
// path, role, types and a sentence.
//
// From the table come the multiplexer, the OpenAPI document, the checks of roles, the audit log and
// the tests. In go routes of other packages, listeners and tokens; out come answers, and a line in
// the audit log for each request that changes something or was refused. The package knows neither
// policies nor leases. It must never run a handler before the caller's role was checked, and never
// write a token or its hash into an answer or a log.
package api
