package hash

//go:generate ../../../bpf/compile hash ../../../bpf/hash.bpf.c
