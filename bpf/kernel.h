/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h: the part of the kernel's BPF interface that steer.c uses. It is declared here so that a build needs neither
 * kernel nor libbpf headers. All of it is stable user API (linux/bpf.h).
 */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef __u16 __be16; /* in network order, like all __be types */
typedef __u32 __be32;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define be16(x) ((__be16)__builtin_bswap16(x)) /* to network order and back */
#define be32(x) ((__be32)__builtin_bswap32(x))
#else
#define be16(x) ((__be16)(x))
#define be32(x) ((__be32)(x))
#endif

enum xdp_action { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };

/* The program's context. data and data_end delimit the frame's first buffer. */
struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

enum tc_action { TC_NEXT = -1, TC_DROP = 2 }; /* TCX_NEXT, TCX_DROP: Linux 6.6 */

/* The context of a program on sent packets, up to data_end. data is at the Ethernet header. */
struct __sk_buff {
	__u32 len, pkt_type, mark, queue_mapping, protocol;
	__u32 vlan_present, vlan_tci, vlan_proto; /* of a tag that is not in the data */
	__u32 priority, ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid;
	__u32 data, data_end;
};

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_DEVMAP = 14,
	BPF_MAP_TYPE_XSKMAP = 17,
};

#define BPF_F_NO_PREALLOC 1
#define BPF_F_MMAPABLE 1024
#define BPF_ANY 0

/* None of these helpers is reserved for GPL programs. */
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static long (*bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)51;
static long (*bpf_xdp_adjust_tail)(struct xdp_md *ctx, int delta) = (void *)65;
static long (*bpf_xdp_store_bytes)(struct xdp_md *ctx, __u32 offset, const void *from, __u32 n) = (void *)190; /* Linux 5.18 */
static __u64 (*bpf_jiffies64)(void) = (void *)118; /* Linux 5.6; with a 64-bit JIT a load instead of a call */
static __u64 (*bpf_xdp_get_buff_len)(struct xdp_md *ctx) = (void *)188; /* Linux 5.18, all buffers of the frame */

/* Descriptions of maps and programs for the loader. */
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name
#define SEC(name) __attribute__((section(name), used))
#define inline_always inline __attribute__((always_inline))
