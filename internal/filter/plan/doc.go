// Package plan decides of which blocks a policy's program consists.
//
// In goes the lowered policy (package ir) and the target; out comes a Plan: a tree of blocks, each
// with its cost and the reason for it, and a ledger of what the program takes of the kernel's
// limits. One cost model (package price) prices them, and one list of limits (limits.go) says which
// of them the kernel takes. Package codegen emits what the plan says and decides nothing.
//
// Planning is pure: the same policy and target give the same plan on any machine. Tables that are
// found by their contents (prefixes, rule trees) are built here, since their cost depends on what
// is in them; instructions are never made here, only counted, always upwards.
//
// The words: a chain is the rules of a class of packets; a block is a node of the tree; straight
// code asks rule by rule; a rule tree and bytecode hold many rules each; a look-up asks a set; an
// effect does something and goes on, a verdict ends.
package plan
