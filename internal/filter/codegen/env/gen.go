package env

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package env -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu" -type key -type env -type malformed -type transport parse ../../../../bpf/parse.bpf.c
