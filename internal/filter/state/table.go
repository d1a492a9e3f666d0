package state

// Table has a row for each memory. Programs have their functions in its order.
var Table = []Row{connections, limits, logs, proofs, fragments, diversions, pairs}
