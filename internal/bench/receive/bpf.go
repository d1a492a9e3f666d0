package receive

//go:generate ../../../bpf/compile receive ../../../bpf/receive.bpf.c
