package generators

//go:generate ../../../bpf/compile receiver ../../../bpf/receiver.bpf.c
