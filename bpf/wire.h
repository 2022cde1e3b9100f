/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h: the headers that steer.c reads, in network order, and their code points (IEEE 802.1Q, IANA registries).
 */
#pragma once

#include "kernel.h"

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_VLAN 0x8100 /* 802.1Q customer tag */
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_QINQ 0x88a8 /* 802.1ad service tag */

enum protocol {
	PROTO_HOPOPTS = 0,
	PROTO_ICMP = 1,
	PROTO_TCP = 6,
	PROTO_ROUTING = 43,
	PROTO_FRAGMENT = 44,
	PROTO_ESP = 50,
	PROTO_ICMPV6 = 58,
	PROTO_DSTOPTS = 60,
};

/* RFC 792, 1122 3.2.2. Source quench (4) is deprecated (RFC 6633), and the kernel handles redirects (5). */
enum { ICMP_UNREACHABLE = 3, ICMP_TIME_EXCEEDED = 11, ICMP_PARAMETER = 12 };

/* RFC 4443 2.1: the errors are the types below 128; those that are defined are 1 to 4. */
enum { ICMPV6_UNREACHABLE = 1, ICMPV6_PARAMETER = 4 };

struct mac {
	__u16 word[3]; /* as in the frame */
};

struct ethernet {
	struct mac dst, src;
	__be16 type;
};

struct vlan_tag {
	__be16 tci; /* priority, drop eligibility, VLAN identifier */
	__be16 type; /* of what follows */
};

#define VLAN_ID 0x0fff /* of the tci; 0 says that the tag carries a priority only */

/* An IPv6 address, or an IPv4 one as ::ffff:a.b.c.d (RFC 4291 2.5.5.2). */
struct address {
	__be32 word[4];
};

/* RFC 791 3.1. */
struct ipv4 {
	__u8 version_ihl;
	__u8 tos;
	__be16 length; /* of header and payload */
	__be16 id;
	__be16 frag; /* flags, then the offset in units of 8 bytes */
	__u8 ttl;
	__u8 protocol;
	__be16 checksum;
	__be32 src, dst;
};

#define IPV4_MORE_FRAGMENTS 0x2000
#define IPV4_FRAG_OFFSET 0x1fff

/* RFC 8200 3. */
struct ipv6 {
	__be32 version_class_flow;
	__be16 payload_length; /* of everything after this header */
	__u8 next;
	__u8 hop_limit;
	struct address src, dst;
};

/* RFC 8200 4: the common part of hop-by-hop options, routing headers and destination options. */
struct extension {
	__u8 next;
	__u8 length; /* in units of 8 bytes, without the first */
	__u8 routing_type;
	__u8 segments_left; /* routing header only */
};

/* RFC 8200 4.5. */
struct fragment {
	__u8 next;
	__u8 reserved;
	__be16 offset_more; /* offset in the upper 13 bits, more-fragments in the lowest */
	__be32 id;
};

#define IPV6_FRAG_OFFSET 0xfff8
#define IPV6_MORE_FRAGMENTS 0x0001

/* RFC 792, RFC 4443: every error starts like this and goes on with the packet that caused it. */
struct icmp_error {
	__u8 type, code;
	__be16 checksum;
	__be32 parameter; /* MTU, pointer or unused */
};

struct ports {
	__be16 src, dst;
};

/* RFC 9293 3.1. */
struct tcp {
	struct ports port;
	__be32 seq, ack;
	__u8 offset; /* data offset in units of 4 bytes, in the upper half */
	__u8 flags;
	__be16 window, checksum, urgent;
};

enum { TCP_SYN = 0x02, TCP_RST = 0x04, TCP_ACK = 0x10 };

#define TCP_QUOTE 8 /* bytes of the TCP header that an ICMP error quotes at least: ports and sequence number */
