// Package apitest sends an API the requests that its own OpenAPI document calls for, right and
// wrong ones, as each role, and says what it did that the document does not allow.
//
// In go a server, tokens by role, and what must not change; out come faults. Only tests may import
// it.
package apitest
