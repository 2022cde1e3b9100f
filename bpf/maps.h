/* SPDX-License-Identifier: Apache-2.0 */
/*
 * maps.h: the outcomes, the keys and the maps that steer.c shares with Go.
 */
#pragma once

#include "kernel.h"
#include "wire.h"

// The outcome of a frame. Go (outcome.go) and the counters depend on the order: frames up to OUTCOME_LAST_STEERED are
// redirected, those up to OUTCOME_LAST_DROPPED are dropped, the rest is passed. Add an outcome at the end of its group.
enum outcome {
	OUTCOME_FLOW,
	OUTCOME_LISTENER,
	OUTCOME_FRAGMENT,
	OUTCOME_ICMP,
	OUTCOME_ESP,
	OUTCOME_DROP_NO_SOCKET,	      /* claimed, but no socket is bound to the rx queue */
	OUTCOME_DROP_PEER,	      /* to a listener, from an address that the map of peers does not contain */
	OUTCOME_DROP_SYN,	      /* a SYN to a listener, beyond the limits below */
	OUTCOME_DROP_STRAY,	      /* another segment to a listener, or an ICMP error about it, beyond the limits below */
	OUTCOME_DROP_CLEAR,	      /* a segment in the clear of a flow or to a listener, from an address of the map must_protect */
	OUTCOME_PASS_NO_MATCH,	      /* TCP without a matching flow or listener */
	OUTCOME_PASS_NOT_LOCAL,	      /* to the port of a listener of any address, at an address of another host */
	OUTCOME_PASS_OTHER_MAC,	      /* TCP of no flow, in a frame for another Ethernet address or a group */
	OUTCOME_PASS_NOT_TCP,	      /* another IP protocol, ICMP that quotes no claimed segment, ESP of an unknown SA */
	OUTCOME_PASS_NOT_IP,	      /* ARP, LLDP, ... */
	OUTCOME_PASS_FRAGMENT,	      /* a later fragment whose first fragment was not seen or not claimed */
	OUTCOME_PASS_MALFORMED,	      /* truncated, or inconsistent lengths */
	OUTCOME_PASS_VLAN,	      /* a VLAN without settings, nested VLANs, or a service tag */
	OUTCOME_PASS_VLAN_DEPTH,      /* more than MAX_VLAN_TAGS */
	OUTCOME_PASS_EXTENSION_DEPTH, /* more than MAX_EXT_HEADERS */
	OUTCOME_PASS_HEADER_SPLIT,    /* headers longer than MAX_HEADERS or than the frame's first buffer */
	OUTCOME_COUNT,
};

#define OUTCOME_LAST_STEERED OUTCOME_ESP
#define OUTCOME_LAST_DROPPED OUTCOME_DROP_CLEAR
#define UNDECIDED OUTCOME_COUNT /* functions of steer.c return it when there is no outcome yet */

// The keys are bytes in network order without padding, but VLANs are numbers of the host; claims.go writes the same layout.
struct flow_key {
	struct address local, remote;
	struct ports port; /* src is the remote one, dst the local one: as the segment carries them */
	__u32 vlan;	   /* identifier; 0: no tag, or a priority only */
};

struct listener_key {
	struct address local; /* ::ffff:0.0.0.0 is any IPv4 address, :: any IPv6 address */
	__be16 port;
	__u16 vlan;
};

struct sa_key {
	struct address dst, src;
	__be32 spi;
	__u32 vlan;
};

struct fragment_key {
	struct address src, dst;
	__be32 id;
	__u16 vlan;
	__u16 protocol; /* RFC 791 3.2; PROTO_FRAGMENT for IPv6, whose identification does not include it (RFC 8200 4.5) */
};

// A prefix of addresses in a VLAN. bits counts those of vlan, too, and for IPv4 the 96 bits of ::ffff:0:0.
struct prefix {
	__u32 bits;
	__u32 vlan;
	struct address address;
};

// Settings for the frames of a VLAN.
struct settings {
	struct mac mac;	   /* of the interface */
	__u16 vlan;
	__u8 only_peers; /* listeners serve only the addresses in the map of peers */
	__u8 protect;	 /* the map must_protect has addresses */
	__u16 zero;
	__u32 generation; /* of the listeners and local prefixes: changes with each of their changes. 0: the VLAN is the kernel's */
	__u32 tick_ns;	  /* length of a kernel tick */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, VLAN_ID + 1);
	__type(key, __u32); /* identifier of the VLAN; 0 for frames without one */
	__type(value, struct settings);
} settings SEC(".maps");

// The loader sets the sizes of the other maps. The sizes below are for tools that load the object without the loader.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct flow_key);
	__type(value, __u32); /* 1 until the first segment of the flow arrives, then 0 */
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct listener_key);
	__type(value, __u32); /* always 1 */
} listeners SEC(".maps");

// The IPsec SAs of the engine, by what their packets carry: those that it receives with, and those that it sends with, whose
// packets ICMP errors quote. All others belong to the host.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct sa_key);
	__type(value, __u32); /* always 1 */
} sas SEC(".maps");

// The addresses of this host, for listeners of any address.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct prefix);
	__type(value, __u32); /* 1; 0 excludes a part of a shorter prefix */
} local_prefixes SEC(".maps");

// A cache of listeners, each valid for one generation. Without it, a listener of any address costs three map lookups for each
// segment.
#define LISTENER_CACHE_SIZE 16

struct cached_listener {
	struct address local;
	__be16 port;
	__u16 vlan;
	__u32 generation;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); /* per CPU, so that no other CPU writes to an entry that is read */
	__uint(max_entries, LISTENER_CACHE_SIZE);
	__type(key, __u32);
	__type(value, struct cached_listener);
} listener_cache SEC(".maps");

// The addresses that listeners serve, with settings.only_peers.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct prefix);
	__type(value, __u32); /* 1; 0 excludes a part of a shorter prefix */
} peers SEC(".maps");

// The addresses whose connections IPsec must protect.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct prefix);
	__type(value, __u32); /* 1; 0 excludes a part of a shorter prefix */
} must_protect SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct fragment_key);
	__type(value, __u64); /* now_ns() of the first fragment */
} fragments SEC(".maps");

// Rate limits for segments to listeners that belong to no flow. They keep a flood from filling the receive ring, which the
// segments of flows need, and from taking the time of the worker, which answers each segment. Each receive queue has four
// limits: SYNs, repeated SYNs, segments that follow an admitted SYN until there is a flow (follow-ups), and strays, which
// follow no SYN. The sizes below are chosen for one queue under a flood.
#define SYN_INTERVAL_NS 10000000ULL /* 100 SYNs and 100 strays a second: the worker answers each */
#define REPEATED_SYN_INTERVAL_NS 500000ULL /* 2,000 repeated SYNs a second: their senders are peers */
#define FOLLOW_UP_INTERVAL_NS 100000ULL /* 10,000 follow-ups a second: four for each SYN of both limits */
#define LIMIT_BURST 8192		   /* tokens that a limit can hold: twice the connections that a crowd of peers opens at once */
#define SYN_BUCKETS (1 << 18)	   /* four SYNs each, enough for seconds at 300,000 SYNs a second: 2 MiB, which leave the */
				   /* processor's cache to the data */
#define SYN_TICK_SHIFT 28	   /* unit of the age of a SYN: 268 ms; ages are modulo 16 */
#define SYN_REPEAT_MIN_TICKS 2	   /* a SYN repeated sooner is a copy: no timer is that short (RFC 6298 2.1). So is one */
				   /* 4.3 s later, since ages are modulo 16; timers that double from 1 s do not fire then */
#define ADMITTED_SYNS (1 << 13)	   /* admitted SYNs, 4 bytes each: three seconds of both limits, small enough for the */
				   /* processor's cache, because each segment of a flood looks one up */
#define FOLLOW_UP_MAX 16		   /* follow-ups of a SYN: an ACK and an initial window (RFC 6928) */
#define FOLLOW_UP_MASK 0x1f

// The state of the limits of a queue. Each value is the time, by now_ns(), at which the limit has all its tokens again.
struct listener_limit {
	__u64 syn, repeated_syn, follow_up, stray;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct listener_limit);
} listener_limits SEC(".maps");

// SYNs that were dropped or repeated, by a hash of the fields that a SYN shares with its retransmission.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SYN_BUCKETS);
	__type(key, __u32);
	__type(value, __u64); /* four SYNs of 16 bits, the latest in the lowest bits: 12 other bits of the hash, then 4 of the tick */
} recent_syns SEC(".maps");

// SYNs that were admitted, by a hash of the peer's address and of the ports.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ADMITTED_SYNS);
	__type(key, __u32);
	__type(value, __u32); /* 27 other bits of the hash, then the number of follow-ups that are left */
} admitted_syns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OUTCOME_COUNT);
	__type(key, enum outcome);
	__type(value, __u64);
} counters SEC(".maps");

// Frames with OUTCOME_DROP_NO_SOCKET by receive queue.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} no_socket_drops SEC(".maps");
