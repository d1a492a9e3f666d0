// Package defend turns a flood into rules in force, and takes them back when it is over.
//
// In go samples of what an interface's policy judges, the policy and its detectors; out come live
// rules in the kernel, and incidents that say what was seen, done and undone. Rules are made by
// package signature against recent good traffic, and are put into force only where they drop less
// of that than the detector allows, cut no session, and spare whom it keeps. They are leased: the
// kernel takes them back by itself when this process is gone.
//
// The package must never change the policy of the operator, ban a single source that nobody has
// proven, or put a rule into force that was not measured.
package defend
