// Package signature finds rules for a flood: the fewest that drop it and leave good traffic alone.
//
// In go a sample of a flood, a sample of good traffic and limits (Limits); out comes a Proposal:
// rules of the policy language, how much of each sample they drop, and one sentence that says what
// was seen. Which field is looked at, and how it is written, the registry of fields says. Which
// packets a term or a rule matches is asked of the oracle, so that coverage and collateral are what
// levee does with these packets; nothing here compares a packet with a rule.
//
// The same samples give the same proposal. Memory and time are bounded by the samples, whatever
// their packets hold. The package must never load, attach or read anything, and never propose a
// rule that it has not measured on both samples.
package signature
