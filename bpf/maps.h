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
	OUTCOME_DROP_NO_SOCKET,	      /* claimed, but no socket is bound to the rx queue */
	OUTCOME_DROP_PEER,	      /* to a listener, from an address that the list of peers does not have */
	OUTCOME_PASS_NO_MATCH,	      /* TCP that nobody claimed */
	OUTCOME_PASS_NOT_LOCAL,	      /* to the port of a listener of any address, at an address of another host */
	OUTCOME_PASS_OTHER_MAC,	      /* TCP of no flow, in a frame for another Ethernet address or a group */
	OUTCOME_PASS_NOT_TCP,	      /* IP with another protocol, ICMP that quotes nothing of ours */
	OUTCOME_PASS_NOT_IP,	      /* ARP, LLDP, ... */
	OUTCOME_PASS_FRAGMENT,	      /* a later fragment whose first one was not seen before, or not claimed */
	OUTCOME_PASS_MALFORMED,	      /* cut short, or lengths that contradict each other */
	OUTCOME_PASS_VLAN,	      /* the tag of a VLAN */
	OUTCOME_PASS_VLAN_DEPTH,      /* more than MAX_VLAN_TAGS */
	OUTCOME_PASS_EXTENSION_DEPTH, /* more than MAX_EXT_HEADERS */
	OUTCOME_PASS_HEADER_SPLIT,    /* headers longer than MAX_HEADERS or than the frame's first buffer */
	OUTCOME_COUNT,
};

#define OUTCOME_LAST_STEERED OUTCOME_ICMP
#define OUTCOME_LAST_DROPPED OUTCOME_DROP_PEER
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
	__type(value, __u32); /* always 1 */
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct listener_key);
	__type(value, __u32); /* always 1 */
} listeners SEC(".maps");

// The addresses of this host, for listeners of any address.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct prefix);
	__type(value, __u32); /* 1; 0 for a hole in a shorter prefix */
} local_prefixes SEC(".maps");

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
	__type(value, __u64); /* bpf_ktime_get_ns of the first fragment */
} fragments SEC(".maps");

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
