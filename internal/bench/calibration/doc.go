// Package calibration reads how fast the machine is at the moment where its speed is not its own: a
// guest shares caches, memory and, with a thread beside its own on a core, the core itself with
// neighbours whom it cannot see.
//
// In goes nothing; out come ns of loads that depend on each other, over memory that fits into the
// last level of cache and not into those before. A reading is taken on the thread that asks for it,
// between measurements and never within one: it takes milliseconds and fills caches. It must know
// nothing of what is measured, so that a measurement that asks it whether to try again cannot
// choose its own result.
package calibration
