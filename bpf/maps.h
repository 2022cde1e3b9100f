/* SPDX-License-Identifier: Apache-2.0 */
/*
 * maps.h: what steer.c shares with Go: the outcomes, the keys and the maps.
 */
#pragma once

#include "kernel.h"
#include "wire.h"

// What became of a frame. The order is the interface to Go (outcome.go) and to the counters: add at the end of its
// part, regenerate. The first part is redirected, the second dropped, the rest passed.
enum outcome {
	OUTCOME_FLOW,
	OUTCOME_LISTENER,
	OUTCOME_FRAGMENT,
	OUTCOME_ICMP,
	OUTCOME_ESP,
	OUTCOME_DROP_NO_SOCKET,	      /* claimed, but no socket is bound to the rx queue */
	OUTCOME_DROP_PEER,	      /* to a listener, from an address that the list of peers does not have */
	OUTCOME_DROP_SYN,	      /* a SYN to a listener, beyond what the limits below let through */
	OUTCOME_DROP_STRAY,	      /* another segment to a listener, or an ICMP error about it, beyond them */
	OUTCOME_PASS_NO_MATCH,	      /* TCP that nobody claimed */
	OUTCOME_PASS_NOT_LOCAL,	      /* to the port of a listener of any address, at an address of another host */
	OUTCOME_PASS_OTHER_MAC,	      /* TCP of no flow, in a frame for another Ethernet address or a group */
	OUTCOME_PASS_NOT_TCP,	      /* IP with another protocol, ICMP that quotes nothing of ours, ESP of others */
	OUTCOME_PASS_NOT_IP,	      /* ARP, LLDP, ... */
	OUTCOME_PASS_FRAGMENT,	      /* a later fragment whose first one was not seen before, or not claimed */
	OUTCOME_PASS_MALFORMED,	      /* cut short, or lengths that contradict each other */
	OUTCOME_PASS_VLAN,	      /* the tag of a VLAN */
	OUTCOME_PASS_VLAN_DEPTH,      /* more than MAX_VLAN_TAGS */
	OUTCOME_PASS_EXTENSION_DEPTH, /* more than MAX_EXT_HEADERS */
	OUTCOME_PASS_HEADER_SPLIT,    /* headers longer than MAX_HEADERS or than the frame's first buffer */
	OUTCOME_COUNT,
};

#define OUTCOME_LAST_STEERED OUTCOME_ESP
#define OUTCOME_LAST_DROPPED OUTCOME_DROP_STRAY
#define GO_ON OUTCOME_COUNT /* what the parsers of steer.c return when there is no outcome yet */

// The keys are octets in network order without padding; claims.go writes the same layout.
struct flow_key {
	struct address local, remote;
	struct ports port; /* src is the remote one, dst the local one: as the segment carries them */
};

struct listener_key {
	struct address local; /* ::ffff:0.0.0.0 is any IPv4 address, :: any IPv6 address */
	__be16 port;
	__u16 zero;
};

struct sa_key {
	struct address local, remote;
	__be32 spi;
};

struct fragment_key {
	struct address src, dst;
	__be32 id;
	__u32 protocol; /* RFC 791 3.2; PROTO_FRAGMENT for IPv6, where it is no part of the identity (RFC 8200 4.5) */
};

// A prefix of addresses; those of IPv4 have 96 bits more.
struct prefix {
	__u32 bits;
	struct address address;
};

// What is so for all frames.
struct settings {
	struct mac mac;	   /* of the interface */
	__u16 only_peers; /* listeners serve whom the map of peers names */
	__u32 generation; /* of the listeners and local prefixes, never 0: another one after each change */
	__u32 tick_ns;	  /* how long a tick of the kernel's clock is */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

// The sizes of the other maps are set by the loader; those here are for tools that load the object alone.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct flow_key);
	__type(value, __u32); /* 1 until its first segment came, then 0 */
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct listener_key);
	__type(value, __u32); /* always 1 */
} listeners SEC(".maps");

// The IPsec SAs that the engine receives with. All others are the host's.
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
	__type(value, __u32); /* 1; 0 for a hole in a shorter prefix */
} local_prefixes SEC(".maps");

// Where a listener was found, of one generation: a segment to it needs no search. That of a listener of any address asks
// three tables.
#define ANSWERS 16

struct answer {
	struct address local;
	__be16 port;
	__u16 zero;
	__u32 generation;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); /* nobody else writes in the middle of an entry */
	__uint(max_entries, ANSWERS);
	__type(key, __u32);
	__type(value, struct answer);
} answers SEC(".maps");

// Whom listeners serve, with settings.only_peers.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct prefix);
	__type(value, __u32); /* 1; 0 for a hole in a shorter prefix */
} peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct fragment_key);
	__type(value, __u64); /* clock() of the first fragment */
} fragments SEC(".maps");

// The limits of what comes to listeners without a flow, which stop a flood of it from filling the receive ring, where the
// segments of flows would find no room, and from taking the worker's time, which owes each an answer. They are for each
// receive queue: of SYNs, of SYNs that come again, of segments that follow a SYN that was let through until there is a
// flow, and of strays (segments that no SYN was before). The sizes below are meant for one queue under a flood.
#define OPEN_INTERVAL_NS 10000000ULL /* 100 a second of SYNs and of strays: each costs the worker an answer */
#define AGAIN_INTERVAL_NS 500000ULL /* 2,000 a second of SYNs that come again, which are peers */
#define FOLLOW_INTERVAL_NS 100000ULL /* 10,000 a second that follow: four for each SYN of both limits */
#define OPEN_BURST 8192		   /* that many at once: twice as many connections as a crowd of peers opens */
#define SYN_BUCKETS (1 << 18)	   /* four SYNs each are remembered, for seconds of 300,000 a second: 2 MiB, not to push out of */
				   /* the processor's cache what the data needs */
#define SYN_TICK_SHIFT 28	   /* the unit of their age, 268 ms, modulo 16 */
#define SYN_REPEAT_MIN 2	   /* a SYN that comes again sooner is a copy: nobody's timer is so short (RFC 6298 2.1); so is */
				   /* one 4.3 s later, since ages are modulo 16, and no timer that doubles from 1 s hits it */
#define OPENINGS (1 << 13)	   /* SYNs that segments may follow, of 4 octets each: three seconds of both limits, and no more */
				   /* than the cache keeps: each segment of a flood looks one up */
#define FOLLOW_MAX 16		   /* so many may, until there is a flow: an ACK and an initial window (RFC 6928) */
#define FOLLOW_MASK 0x1f

// How much of the limits is used up: clock() of when nothing will be, if no more comes.
struct open_limit {
	__u64 first, again, follow, stray;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct open_limit);
} open_limits SEC(".maps");

// SYNs that were dropped or that came again, by a hash of what is the same when they do.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SYN_BUCKETS);
	__type(key, __u32);
	__type(value, __u64); /* the last four, the latest lowest: 12 other bits of the hash, then 4 of the tick */
} syns_seen SEC(".maps");

// SYNs that were let through, by a hash of the peer's address and of the ports.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OPENINGS);
	__type(key, __u32);
	__type(value, __u32); /* 27 other bits of the hash, then how many segments may follow */
} openings SEC(".maps");

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

// Frames of OUTCOME_DROP_NO_SOCKET by rx queue.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} unowned SEC(".maps");
