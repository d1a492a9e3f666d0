package receive

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package receive -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu" receive ../../../bpf/receive.bpf.c
