package gen

//go:generate ../../../bpf/compile live ../../../bpf/gen.bpf.c

//go:generate ../../../bpf/compile taken ../../../bpf/taken.bpf.c
