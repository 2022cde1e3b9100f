package bpf

// The generated files are committed, so that building needs no clang. The same clang gives the same bytes.
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package bpf -tags linux -target bpfel,bpfeb steer steer.c -- -Wall -Wextra -Werror -Wno-unused-function -mcpu=v3
