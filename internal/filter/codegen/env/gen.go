package env

//go:generate ../../../../bpf/compile -type key -type env -type malformed -type transport parse ../../../../bpf/parse.bpf.c
