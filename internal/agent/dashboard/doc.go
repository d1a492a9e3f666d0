// Package dashboard serves the agent's page: the page itself, series of the history, and the policy
// line by line.
//
// In go a history and what reads policies; out come routes of the API. It changes nothing, and
// keeps nothing of who asks.
package dashboard
