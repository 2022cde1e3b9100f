//go:build ignore
// SPDX-License-Identifier: Apache-2.0
//
// steer.c: redirects the engine's TCP segments to its AF_XDP sockets and passes everything else to the kernel.
//
//   frame -> Ethernet, or our VLAN -> IPv4 | IPv6 -> TCP -> exact flow, else listener -> socket of the rx queue
//                                                    (a SYN: its listener's limit, then the flow)
//                                                 -> later fragment -> where its first fragment went
//                                                 -> ICMP error     -> where the quoted packet would go
//                                              -> ESP -> an SA of the engine -> socket of the rx queue
//         -> anything else: XDP_PASS
//
// Every frame is counted under exactly one outcome. The kernel no longer sees:
//
//   - TCP segments to a claimed local address and port. A listener of any address claims its port on the addresses of
//     this host (the map local_prefixes), not on addresses that the host routes for. The host's firewall and IPsec policies
//     do not apply to these segments. Nor does the kernel see ESP packets of SAs that the engine claims.
//   - Fragments of such segments and packets that arrive after the first fragment. They never reach the kernel's reassembly.
//   - ICMP errors that quote such a segment or packet. The kernel's path MTU cache does not learn from them.
//
// Four kinds of claimed frames are dropped. No frame is modified. In libxdp's dispatcher the program passes these frames to the
// kernel while no queue has a socket: its process may have been killed.
//
//   - Frames on a receive queue without a socket: only the socket of that queue could take the frame, and the kernel, which
//     does not know the connection, would answer RST. TCP retransmits.
//   - Segments to a listener from an address that the map of peers does not contain.
//   - Segments and ICMP errors to a listener beyond the listener's rate limits.
//   - Segments in the clear from an address whose connections IPsec must protect.
//
// Listeners claim no frames to other Ethernet addresses (bridged machines, macvlan, promiscuous captures) and to groups.
// Flows claim such frames: the four-tuple is unique, the engine checks the Ethernet address itself, and after a change of the
// interface's address the kernel must not answer RST before this program has the new one.
//
// Claims and settings belong to one VLAN, or to frames without one. The tag of VLAN 0 carries only a priority. The kernel keeps
// frames of VLANs without settings, of VLANs within VLANs, and with service tags (802.1ad). A device that strips tags before XDP
// hides them: that offload must be off where there are VLANs. The kernel keeps segments behind AH, which only the kernel can
// authenticate, ESP packets of SAs that the engine does not claim, and frames whose headers are truncated or
// inconsistent. If such a frame belongs to a claimed connection, for example because its first fragment ends inside the TCP
// header, the kernel answers RST.
//
// Checksums are not verified here: the engine verifies them over bytes that it reads anyway.

#include "kernel.h"
#include "maps.h"
#include "wire.h"

// No helper in use is reserved for GPL programs, so the program has the licence of the project.
const char license_text[] SEC("license") = "Apache-2.0";

#define MAX_QUEUES 256 /* as DefaultMaxQueues of limits.go */
#define MAX_VLAN_TAGS 2
#define MAX_EXT_HEADERS 6 /* RFC 8200 4.1 lists seven places; more than six before TCP is an attack */
#define MAX_HEADERS 4096  /* bytes from the start of the frame to the end of the last header that is read */
#define FRAGMENT_LIFETIME_NS 30000000000ULL /* Linux waits as long for missing fragments (ipfrag_time) */

// A frame. Offsets count from its first byte.
struct frame {
	struct xdp_md *ctx;
	const struct settings *settings; /* of its VLAN */
	__u32 first_buffer; /* bytes in the first buffer, which holds most frames whole */
	__u32 vlan;
};

enum part { WHOLE, FIRST_FRAGMENT, LATER_FRAGMENT };

// An IP datagram, or the fragment of one in the frame.
struct datagram {
	struct address src, dst;
	__u32 payload;	/* where the transport header starts */
	__u32 end;	/* one past the last byte */
	__u32 protocol; /* of the payload */
	enum part part;
	__be32 id; /* with part != WHOLE: identification, as in struct fragment_key */
	__u32 id_protocol;
};

// header_at returns the size bytes at off, or 0 when they are not in the first buffer.
static inline_always void *header_at(const struct frame *f, __u32 off, __u32 size)
{
	void *data = (void *)(long)f->ctx->data;
	void *end = (void *)(long)f->ctx->data_end;

	if (off > MAX_HEADERS)
		return 0;
	data += off;
	if (data + size > end)
		return 0;
	return data;
}

// datagram_end returns where a datagram ends. end is the end by the IP header. The result is 0 when the frame is shorter. A
// datagram that an ICMP error quotes may be cut: it ends at limit at the latest. limit is 0 for a datagram that is not quoted.
// The helper call is needed only for frames beyond the first buffer.
static inline_always __u32 datagram_end(const struct frame *f, __u32 end, __u32 limit)
{
	if (limit)
		return end < limit ? end : limit;
	return end <= f->first_buffer || end <= bpf_xdp_get_buff_len(f->ctx) ? end : 0;
}

// missing_bytes is the outcome when header_at returns 0: the bytes lie beyond the end of the datagram, or in a later buffer.
static inline_always enum outcome missing_bytes(__u32 off, __u32 size, __u32 end)
{
	return off + size > end ? OUTCOME_PASS_MALFORMED : OUTCOME_PASS_HEADER_SPLIT;
}

// hide_from_verifier returns off, which must be below 8192, and hides from the verifier how off was computed. The verifier then
// treats all chains of headers alike and follows a quarter of the paths.
static inline_always __u32 hide_from_verifier(__u32 off)
{
	asm volatile("%0 &= 0x1fff" : "+r"(off));
	return off;
}

static inline_always void map_ipv4(struct address *a, __be32 v4)
{
	a->word[0] = 0;
	a->word[1] = 0;
	a->word[2] = be32(0xffff);
	a->word[3] = v4;
}

static inline_always int is_mapped_ipv4(const struct address *a)
{
	return (a->word[0] | a->word[1]) == 0 && a->word[2] == be32(0xffff);
}

static inline_always int same_address(const struct address *a, const struct address *b)
{
	return a->word[0] == b->word[0] && a->word[1] == b->word[1] && a->word[2] == b->word[2] && a->word[3] == b->word[3];
}

// read_ipv4 reads the header at off (RFC 791). limit is that of datagram_end.
static inline_always enum outcome read_ipv4(const struct frame *f, __u32 off, __u32 limit, struct datagram *d)
{
	struct ipv4 *ip = header_at(f, off, sizeof(*ip));
	if (!ip)
		return missing_bytes(off, sizeof(*ip), datagram_end(f, off + sizeof(*ip), limit));

	__u32 header = (ip->version_ihl & 0xf) * 4;
	__u32 length = be16(ip->length);
	if (ip->version_ihl >> 4 != 4 || header < sizeof(*ip) || length < header)
		return OUTCOME_PASS_MALFORMED;
	d->end = datagram_end(f, off + length, limit);
	if (!d->end)
		return OUTCOME_PASS_MALFORMED;

	map_ipv4(&d->src, ip->src);
	map_ipv4(&d->dst, ip->dst);
	d->payload = off + header;
	d->protocol = ip->protocol;
	d->id = ip->id;
	d->id_protocol = ip->protocol;
	if (ip->frag & be16(IPV4_FRAG_OFFSET))
		d->part = LATER_FRAGMENT;
	else
		d->part = ip->frag & be16(IPV4_MORE_FRAGMENTS) ? FIRST_FRAGMENT : WHOLE;
	return UNDECIDED;
}

// read_extension steps over the extension header at d->payload (RFC 8200 4).
static inline_always enum outcome read_extension(const struct frame *f, struct datagram *d)
{
	struct extension *ext = header_at(f, d->payload, 8); /* the shortest one has 8 bytes */
	if (!ext)
		return missing_bytes(d->payload, 8, d->end);

	__u32 length = (ext->length + 1) * 8;
	switch (d->protocol) {
	case PROTO_FRAGMENT: {
		struct fragment *frag = (void *)ext;
		d->id = frag->id;
		d->id_protocol = PROTO_FRAGMENT;
		if (frag->offset_more & be16(IPV6_FRAG_OFFSET))
			d->part = LATER_FRAGMENT;
		else if (frag->offset_more & be16(IPV6_MORE_FRAGMENTS))
			d->part = FIRST_FRAGMENT; /* else atomic: a whole datagram (RFC 6946) */
		length = sizeof(*frag);
		break;
	}
	case PROTO_ROUTING:
		if (ext->segments_left) /* not at its destination yet: the kernel forwards or drops it */
			return OUTCOME_PASS_NOT_TCP;
		break;
	}
	d->protocol = ext->next;
	d->payload = hide_from_verifier(d->payload + length); /* at most MAX_HEADERS + 256 * 8 */
	return d->payload > d->end ? OUTCOME_PASS_MALFORMED : UNDECIDED;
}

static inline_always int is_extension(__u32 protocol)
{
	// Hop-by-hop options may only come first (RFC 8200 4.1), where read_ipv6 accepts them. The kernel checks packets with AH
	// (RFC 4302).
	return protocol == PROTO_DSTOPTS || protocol == PROTO_ROUTING || protocol == PROTO_FRAGMENT;
}

// read_ipv6 reads the header at off and walks the extension headers (RFC 8200) up to the transport header, or to the
// fragment header of a later fragment. limit is that of datagram_end.
static inline_always enum outcome read_ipv6(const struct frame *f, __u32 off, __u32 limit, struct datagram *d)
{
	struct ipv6 *ip = header_at(f, off, sizeof(*ip));
	if (!ip)
		return missing_bytes(off, sizeof(*ip), datagram_end(f, off + sizeof(*ip), limit));

	// A length of zero would be a jumbogram (RFC 2675), which no link of ours carries.
	__u32 length = be16(ip->payload_length);
	if ((ip->version_class_flow & be32(0xf0000000)) != be32(0x60000000) || length == 0)
		return OUTCOME_PASS_MALFORMED;
	d->end = datagram_end(f, off + sizeof(*ip) + length, limit);
	if (!d->end)
		return OUTCOME_PASS_MALFORMED;

	d->src = ip->src;
	d->dst = ip->dst;
	// Mapped addresses never appear on a wire, and would match IPv4 flows here.
	if (is_mapped_ipv4(&d->src) || is_mapped_ipv4(&d->dst))
		return OUTCOME_PASS_MALFORMED;
	d->payload = off + sizeof(*ip);
	d->protocol = ip->next;
	d->part = WHOLE;

	for (int i = 0; i < MAX_EXT_HEADERS; i++) {
		if (!is_extension(d->protocol) && !(i == 0 && d->protocol == PROTO_HOPOPTS))
			return UNDECIDED;
		enum outcome o = read_extension(f, d);
		if (o != UNDECIDED || d->part == LATER_FRAGMENT)
			return o;
	}
	return is_extension(d->protocol) ? OUTCOME_PASS_EXTENSION_DEPTH : UNDECIDED;
}

// contains reports whether one of the prefixes for the VLAN of the frame contains a.
static inline_always int contains(const struct frame *f, void *prefixes, const struct address *a)
{
	struct prefix key = {.bits = 32 + 128, .vlan = f->vlan, .address = *a};
	__u32 *in = bpf_map_lookup_elem(prefixes, &key);
	return in && *in;
}

// is_to_our_mac reports whether the destination of the frame is the interface's Ethernet address.
static inline_always int is_to_our_mac(const struct frame *f)
{
	const struct ethernet *eth = header_at(f, 0, sizeof(*eth));
	const struct mac *mac = &f->settings->mac;
	return eth && ((eth->dst.word[0] ^ mac->word[0]) | (eth->dst.word[1] ^ mac->word[1]) | (eth->dst.word[2] ^ mac->word[2])) == 0;
}

// find_listener looks up the listener of a local address and port.
static inline_always enum outcome find_listener(const struct frame *f, const struct address *local, __be16 port)
{
	struct listener_key listener = {.local = *local, .port = port, .vlan = f->vlan};
	if (bpf_map_lookup_elem(&listeners, &listener))
		return OUTCOME_LISTENER;
	if (is_mapped_ipv4(local)) {
		listener.local.word[3] = 0;
	} else {
		listener.local = (struct address){};
	}
	if (!bpf_map_lookup_elem(&listeners, &listener))
		return OUTCOME_PASS_NO_MATCH;
	return contains(f, &local_prefixes, local) ? OUTCOME_LISTENER : OUTCOME_PASS_NOT_LOCAL;
}

// must_be_protected reports whether segments from a remote address must be protected by IPsec: the program drops them in
// the clear.
static inline_always int must_be_protected(const struct frame *f, const struct address *remote)
{
	return f->settings->protect && contains(f, &must_protect, remote);
}

// decide_listener decides on a segment that belongs to no flow, without rate limits.
static inline_always enum outcome decide_listener(const struct frame *f, const struct address *local,
						  const struct address *remote, __be16 port)
{
	if (!is_to_our_mac(f))
		return OUTCOME_PASS_OTHER_MAC;

	__u32 generation = *(volatile __u32 *)&f->settings->generation; /* read before find_listener, which may see an older state */
	__u32 index = (port ^ port >> 8) % LISTENER_CACHE_SIZE;
	struct cached_listener *known = bpf_map_lookup_elem(&listener_cache, &index);
	if (!known)
		return OUTCOME_PASS_NO_MATCH; /* impossible, but the verifier requires the check */
	if (known->generation != generation || known->port != port || known->vlan != f->vlan ||
	    !same_address(&known->local, local)) {
		enum outcome o = find_listener(f, local, port);
		if (o != OUTCOME_LISTENER)
			return o;
		*known = (struct cached_listener){.local = *local, .port = port, .vlan = f->vlan, .generation = generation};
	}
	if (f->settings->only_peers && !contains(f, &peers, remote))
		return OUTCOME_DROP_PEER;
	if (must_be_protected(f, remote))
		return OUTCOME_DROP_CLEAR;
	return OUTCOME_LISTENER;
}

// find_flow returns the flow of a four-tuple, or 0. Its value is 1 until the flow's first segment arrives, then 0.
static inline_always __u32 *find_flow(const struct frame *f, const struct address *local, const struct address *remote,
				      struct ports port)
{
	struct flow_key flow = {.local = *local, .remote = *remote, .port = port, .vlan = f->vlan};
	return bpf_map_lookup_elem(&flows, &flow);
}

// now_ns returns the time in nanoseconds, in steps of a kernel tick.
static inline_always __u64 now_ns(const struct frame *f)
{
	return bpf_jiffies64() * f->settings->tick_ns;
}

// take_token takes a token from a rate limit and reports whether there was one. A token is added in each interval, up to
// LIMIT_BURST.
static inline_always int take_token(__u64 *used_until, __u64 now, __u64 interval)
{
	__u64 until = *used_until < now ? now : *used_until;

	if (until - now > (LIMIT_BURST - 1) * interval)
		return 0;
	*used_until = until + interval;
	return 1;
}

// hash_peer hashes the fields that a SYN shares with its retransmission or, without the sequence number, with the segments
// that follow it. It needs no secret: an attacker who constructs collisions gains no more than by sending a SYN twice.
static inline_always __u64 hash_peer(const struct address *remote, struct ports port, __be32 seq)
{
	const __u64 k = 0x9e3779b97f4a7c15ULL; /* 2^64 / golden ratio: Fibonacci hashing */
	__u64 h = (((__u64)remote->word[0] << 32 | remote->word[1]) + 1) * k;

	h = (h ^ h >> 32 ^ ((__u64)remote->word[2] << 32 | remote->word[3])) * k;
	h = (h ^ h >> 32 ^ ((__u64)port.src << 48 | (__u64)port.dst << 32 | seq)) * k;
	return h ^ h >> 32;
}

// A SYN, and the bucket of recent_syns that it belongs to.
struct syn {
	__u64 *bucket;
	__u64 recent; /* content of the bucket */
	__u32 mark; /* of this SYN in the bucket */
};

// lookup_syn starts to load the bucket that is_repeated_syn needs. During a flood the bucket is not in the processor's cache.
static inline_always struct syn lookup_syn(const struct address *remote, const struct tcp *tcp)
{
	__u64 h = hash_peer(remote, tcp->port, tcp->seq);
	__u32 index = h % SYN_BUCKETS;
	struct syn s = {.bucket = bpf_map_lookup_elem(&recent_syns, &index), .mark = h >> 48 & 0xfff0};
	if (s.bucket)
		s.recent = *(volatile __u64 *)s.bucket;
	return s;
}

// is_repeated_syn reports whether a SYN beyond the limit was dropped before, as long ago as a peer waits before it retransmits
// a SYN, and there is a token for it. It records the SYN, unless it returns 0 for a known one. A flood from spoofed
// addresses has no repeated SYNs, except for hash collisions: one in a thousand. A flood that retransmits as TCP does shares
// this limit with honest peers, because the two cannot be distinguished; the work of the worker stays bounded.
static inline_always int is_repeated_syn(const struct syn *s, __u64 *used_until, __u64 now)
{
	if (!s->bucket)
		return 0; /* impossible, but the verifier requires the check */

	__u32 tick = now >> SYN_TICK_SHIFT & 0xf;
	__u64 left = s->recent;
	int repeated = 0;
	for (int i = 0; i < 4; i++, left >>= 16) {
		if ((left & 0xfff0) != s->mark)
			continue;
		if (((tick - left) & 0xf) < SYN_REPEAT_MIN_TICKS || !take_token(used_until, now, REPEATED_SYN_INTERVAL_NS))
			return 0;
		repeated = 1;
		break;
	}
	*s->bucket = s->recent << 16 | s->mark | tick;
	return repeated;
}

// admit_syn passes a SYN to the listener, and records that up to FOLLOW_UP_MAX segments may follow the SYN.
static inline_always enum outcome admit_syn(const struct datagram *d, const struct tcp *tcp)
{
	__u64 h = hash_peer(&d->src, tcp->port, 0);
	__u32 index = h % ADMITTED_SYNS;
	__u32 *entry = bpf_map_lookup_elem(&admitted_syns, &index);
	if (entry)
		*entry = (h >> 32 & ~FOLLOW_UP_MASK) | FOLLOW_UP_MAX;
	return OUTCOME_LISTENER;
}

// follows_admitted_syn reports whether this is one of the FOLLOW_UP_MAX segments that may follow the peer's admitted SYN.
static inline_always int follows_admitted_syn(const struct datagram *d, const struct tcp *tcp)
{
	__u64 h = hash_peer(&d->src, tcp->port, 0);
	__u32 index = h % ADMITTED_SYNS;
	__u32 *entry = bpf_map_lookup_elem(&admitted_syns, &index);
	if (!entry || ((*entry ^ h >> 32) & ~FOLLOW_UP_MASK) != 0 || (*entry & FOLLOW_UP_MASK) == 0)
		return 0;
	*entry -= 1;
	return 1;
}

// limits_of_queue returns the rate limits of the receive queue of the frame.
static inline_always struct listener_limit *limits_of_queue(const struct frame *f)
{
	__u32 queue = f->ctx->rx_queue_index;
	return bpf_map_lookup_elem(&listener_limits, &queue); /* 0: the queue has no socket either */
}

// limit_stray applies the rate limit to what arrives for a listener and follows no admitted SYN: a segment or an ICMP
// error.
static inline_always enum outcome limit_stray(const struct frame *f, struct listener_limit *limit)
{
	return take_token(&limit->stray, now_ns(f), SYN_INTERVAL_NS) ? OUTCOME_LISTENER : OUTCOME_DROP_STRAY;
}

// decide_unmatched decides on a segment that belongs to no flow and is not a SYN.
static inline_always enum outcome decide_unmatched(const struct frame *f, const struct datagram *d, const struct tcp *tcp)
{
	enum outcome o = decide_listener(f, &d->dst, &d->src, tcp->port.dst);
	struct listener_limit *limit = limits_of_queue(f);
	if (o != OUTCOME_LISTENER || !limit)
		return o;
	if (follows_admitted_syn(d, tcp) && take_token(&limit->follow_up, now_ns(f), FOLLOW_UP_INTERVAL_NS))
		return OUTCOME_LISTENER;
	return limit_stray(f, limit);
}

// decide_syn decides on a SYN, regardless of flows.
static inline_always enum outcome decide_syn(const struct frame *f, const struct datagram *d, const struct tcp *tcp)
{
	struct syn syn = lookup_syn(&d->src, tcp);
	enum outcome o = decide_listener(f, &d->dst, &d->src, tcp->port.dst);
	struct listener_limit *limit = limits_of_queue(f);
	if (o != OUTCOME_LISTENER || !limit)
		return o;
	__u64 now = now_ns(f);
	if (take_token(&limit->syn, now, SYN_INTERVAL_NS) || is_repeated_syn(&syn, &limit->repeated_syn, now))
		return admit_syn(d, tcp);
	return OUTCOME_DROP_SYN;
}

// refund_syn returns the token of the SYN when the first segment of the new flow arrives, so that peers who complete the
// handshake meet no limit. A token of the limit for repeated SYNs is returned to the limit for SYNs. A flow that this host
// opened took no token. Its first segment is a SYN of the peer, which returns none, or a RST, which returns at most one for
// each connection that this host dials.
static inline_always void refund_syn(const struct frame *f, const struct tcp *tcp, __u32 *is_new)
{
	struct listener_limit *limit = limits_of_queue(f);

	*is_new = 0;
	if (limit && !(tcp->flags & TCP_SYN) && limit->syn > SYN_INTERVAL_NS)
		limit->syn -= SYN_INTERVAL_NS;
}

// steer_tcp decides on a segment, or on the first fragment of one, which must hold the whole header (RFC 1858).
static inline_always enum outcome steer_tcp(const struct frame *f, const struct datagram *d)
{
	struct tcp *tcp = header_at(f, d->payload, sizeof(*tcp));
	if (!tcp || d->payload + sizeof(*tcp) > d->end)
		return missing_bytes(d->payload, sizeof(*tcp), d->end);

	__u32 header = (tcp->offset >> 4) * 4;
	if (header < sizeof(*tcp) || d->payload + header > d->end)
		return OUTCOME_PASS_MALFORMED;
	// The limit of the listener comes before the lookup of the flow, so that a SYN of a flood costs as little as possible. The
	// limit applies to the SYN of a flow, too.
	int syn = (tcp->flags & (TCP_SYN | TCP_ACK | TCP_RST)) == TCP_SYN;
	enum outcome o = syn ? decide_syn(f, d, tcp) : UNDECIDED;
	if (o == OUTCOME_DROP_SYN)
		return o;
	__u32 *flow = find_flow(f, &d->dst, &d->src, tcp->port);
	if (flow) {
		if (must_be_protected(f, &d->src))
			return OUTCOME_DROP_CLEAR;
		if (*flow)
			refund_syn(f, tcp, flow);
		return OUTCOME_FLOW;
	}
	return syn ? o : decide_unmatched(f, d, tcp);
}

// is_claimable reports whether the engine can claim datagrams of the protocol.
static inline_always int is_claimable(const struct datagram *d)
{
	return d->protocol == PROTO_TCP || d->protocol == PROTO_ESP;
}

static inline_always void fill_fragment_key(struct fragment_key *key, const struct frame *f, const struct datagram *d)
{
	key->vlan = f->vlan;
	key->src = d->src;
	key->dst = d->dst;
	key->id = d->id;
	key->protocol = d->id_protocol;
}

// steer_later_fragment decides on a fragment without ports: it goes where its first fragment went.
static inline_always enum outcome steer_later_fragment(const struct frame *f, const struct datagram *d)
{
	struct fragment_key key;
	fill_fragment_key(&key, f, d);
	__u64 *first_at = bpf_map_lookup_elem(&fragments, &key);
	return first_at && now_ns(f) - *first_at < FRAGMENT_LIFETIME_NS ? OUTCOME_FRAGMENT : OUTCOME_PASS_FRAGMENT;
}

// remember_first_fragment records whether a first fragment was claimed. An unclaimed one deletes the entry of an older
// datagram with the same key. For IPv6 the key does not contain the transport protocol.
static inline_always void remember_first_fragment(const struct frame *f, const struct datagram *d, int claimed)
{
	struct fragment_key key;
	fill_fragment_key(&key, f, d);
	if (claimed) {
		__u64 now = now_ns(f);
		bpf_map_update_elem(&fragments, &key, &now, BPF_ANY);
	} else {
		bpf_map_delete_elem(&fragments, &key);
	}
}

// find_sa returns the value in the map of SAs for an IPsec packet, or 0.
static inline_always __u32 *find_sa(const struct frame *f, const struct datagram *d, __be32 spi)
{
	struct sa_key sa = {.dst = d->dst, .src = d->src, .spi = spi, .vlan = f->vlan};
	return bpf_map_lookup_elem(&sas, &sa);
}

static inline_always int is_icmp_error(const struct icmp_error *icmp, int v6)
{
	if (v6)
		return icmp->type >= ICMPV6_UNREACHABLE && icmp->type <= ICMPV6_PARAMETER;
	return icmp->type == ICMP_UNREACHABLE || icmp->type == ICMP_TIME_EXCEEDED || icmp->type == ICMP_PARAMETER;
}

// steer_icmp decides on ICMP errors. It claims those that are addressed to the quoted source and quote a segment of a flow or
// listener, or an ESP packet, of the engine, which checks whether the quoted sequence number is in flight (RFC 5927 4).
static inline_always enum outcome steer_icmp(const struct frame *f, const struct datagram *d, int v6)
{
	if (d->part != WHOLE)
		return OUTCOME_PASS_NOT_TCP;
	struct icmp_error *icmp = header_at(f, d->payload, sizeof(*icmp));
	__u32 off = d->payload + sizeof(*icmp);
	if (!icmp || off > d->end)
		return missing_bytes(d->payload, sizeof(*icmp), d->end);
	if (!is_icmp_error(icmp, v6))
		return OUTCOME_PASS_NOT_TCP;

	struct datagram q = {};
	enum outcome o = v6 ? read_ipv6(f, off, d->end, &q) : read_ipv4(f, off, d->end, &q);
	if (o != UNDECIDED)
		return o;
	if (!is_claimable(&q) || q.part == LATER_FRAGMENT)
		return OUTCOME_PASS_NOT_TCP;

	struct ports *port = header_at(f, q.payload, TCP_QUOTE); /* of ESP the SPI, and the sequence number as well */
	if (!port || q.payload + TCP_QUOTE > q.end)
		return missing_bytes(q.payload, TCP_QUOTE, q.end);
	if (!same_address(&q.src, &d->dst))
		return OUTCOME_PASS_NOT_TCP;
	if (q.protocol == PROTO_ESP)
		return find_sa(f, &q, *(__be32 *)port) ? OUTCOME_ICMP : OUTCOME_PASS_NOT_TCP;
	struct ports reversed = {.src = port->dst, .dst = port->src};
	if (find_flow(f, &q.src, &q.dst, reversed))
		return OUTCOME_ICMP;
	if (decide_listener(f, &q.src, &q.dst, reversed.dst) != OUTCOME_LISTENER)
		return OUTCOME_PASS_NOT_TCP;
	struct listener_limit *limit = limits_of_queue(f);
	return limit && limit_stray(f, limit) == OUTCOME_DROP_STRAY ? OUTCOME_DROP_STRAY : OUTCOME_ICMP;
}

// steer_esp decides on an IPsec packet (RFC 4303), or on the first fragment of one.
static inline_always enum outcome steer_esp(const struct frame *f, const struct datagram *d)
{
	__be32 *spi = header_at(f, d->payload, sizeof(*spi));
	if (!spi || d->payload + sizeof(*spi) > d->end)
		return missing_bytes(d->payload, sizeof(*spi), d->end);
	return find_sa(f, d, *spi) ? OUTCOME_ESP : OUTCOME_PASS_NOT_TCP;
}

// steer_ip decides on a datagram whose IP headers were read.
static inline_always enum outcome steer_ip(const struct frame *f, const struct datagram *d, int v6)
{
	if (d->part == LATER_FRAGMENT) {
		// Only IPv4 gives the protocol of a later fragment.
		return v6 || is_claimable(d) ? steer_later_fragment(f, d) : OUTCOME_PASS_NOT_TCP;
	}
	if (d->protocol == PROTO_TCP)
		return steer_tcp(f, d);
	if (d->protocol == PROTO_ESP)
		return steer_esp(f, d);
	if (d->protocol == (v6 ? PROTO_ICMPV6 : PROTO_ICMP))
		return steer_icmp(f, d, v6);
	return OUTCOME_PASS_NOT_TCP;
}

// decide_frame returns the outcome of a frame, describes its datagram in d, and sets its VLAN and settings.
static inline_always enum outcome decide_frame(struct frame *f, struct datagram *d)
{
	struct ethernet *eth = header_at(f, 0, sizeof(*eth));
	if (!eth) /* some NICs leave the first of several buffers empty */
		return missing_bytes(0, sizeof(*eth), datagram_end(f, sizeof(*eth), 0));
	__u32 off = sizeof(*eth);
	__be16 type = eth->type;
	__u32 vlan = 0;

	for (int i = 0; type == be16(ETHERTYPE_VLAN) || type == be16(ETHERTYPE_QINQ); i++) {
		if (i == MAX_VLAN_TAGS)
			return OUTCOME_PASS_VLAN_DEPTH;
		struct vlan_tag *tag = header_at(f, off, sizeof(*tag));
		if (!tag)
			return missing_bytes(off, sizeof(*tag), datagram_end(f, off + sizeof(*tag), 0));
		__be16 id = tag->tci & be16(VLAN_ID);
		if (id && (vlan || type != be16(ETHERTYPE_VLAN)))
			return OUTCOME_PASS_VLAN;
		vlan |= be16(id);
		type = tag->type;
		off += sizeof(*tag);
	}
	if (vlan) {
		const struct settings *set = bpf_map_lookup_elem(&settings, &vlan);
		if (!set || !set->generation)
			return OUTCOME_PASS_VLAN;
		f->settings = set;
	}
	f->vlan = f->settings->vlan; /* the same, but the verifier then treats all VLANs alike */

	int v6 = type == be16(ETHERTYPE_IPV6);
	if (!v6 && type != be16(ETHERTYPE_IPV4))
		return OUTCOME_PASS_NOT_IP;
	if (v6) {
		enum outcome o = read_ipv6(f, off, 0, d);
		return o == UNDECIDED ? steer_ip(f, d, 1) : o;
	}
	enum outcome o = read_ipv4(f, off, 0, d);
	return o == UNDECIDED ? steer_ip(f, d, 0) : o;
}

static inline_always void count(void *map, __u32 index)
{
	__u64 *n = bpf_map_lookup_elem(map, &index);
	if (n)
		*n += 1; /* per CPU: there is no other writer */
}

// in_dispatcher is set for the program in libxdp's dispatcher, where it stays attached when its process is killed.
const volatile __u32 in_dispatcher = 0;

// is_abandoned reports whether the program has no sockets any more. The kernel closes them with the process.
// As a global function it is verified once.
__attribute__((noinline)) int is_abandoned(void)
{
	for (int i = 0; i < MAX_QUEUES; i++) {
		__u32 queue = i; /* the verifier does not follow a counter on the stack */
		if (bpf_map_lookup_elem(&sockets, &queue))
			return 0;
	}
	return 1;
}

SEC("xdp.frags")
int xwarp_steer(struct xdp_md *ctx)
{
	__u32 zero = 0;
	const struct settings *set = bpf_map_lookup_elem(&settings, &zero);
	if (!set)
		return XDP_PASS; /* impossible, but the verifier requires the check */

	struct frame f = {.ctx = ctx, .settings = set, .first_buffer = ctx->data_end - ctx->data};
	struct datagram d = {};
	enum outcome o = decide_frame(&f, &d);
	int claimed = o <= OUTCOME_LAST_STEERED;
	int action = o <= OUTCOME_LAST_DROPPED ? XDP_DROP : XDP_PASS;

	if (claimed) {
		action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);
		if (action != XDP_REDIRECT)
			o = OUTCOME_DROP_NO_SOCKET;
	}
	if (in_dispatcher && action == XDP_DROP && is_abandoned()) {
		action = XDP_PASS;
		o = OUTCOME_PASS_NO_MATCH;
	}
	if (o == OUTCOME_DROP_NO_SOCKET)
		count(&no_socket_drops, ctx->rx_queue_index);
	if (d.part == FIRST_FRAGMENT && (is_claimable(&d) || d.id_protocol == PROTO_FRAGMENT))
		remember_first_fragment(&f, &d, claimed);
	count(&counters, o);
	return action;
}

// reset_at returns the TCP header at off if the packet is a reset, or 0.
static inline_always struct tcp *reset_at(const struct __sk_buff *skb, __u32 off)
{
	struct tcp *tcp = (void *)(long)skb->data + off;
	if ((void *)(tcp + 1) > (void *)(long)skb->data_end)
		return 0;
	return tcp->flags & TCP_RST ? tcp : 0;
}

// xwarp_hold_reset drops resets of this host's kernel that answer claimed segments. It runs on the packets that the kernel sends
// on a bond: until a new member has xwarp_steer, the kernel receives the member's frames. The peer retransmits them. The engine's
// own resets do not pass here.
SEC("tc")
int xwarp_hold_reset(struct __sk_buff *skb)
{
	struct frame f = {.vlan = skb->vlan_present ? skb->vlan_tci & VLAN_ID : 0};
	__u32 off = sizeof(struct ethernet);
	struct address local, remote;
	struct tcp *tcp;

	struct ipv4 *ip = (void *)(long)skb->data + off;
	struct ipv6 *ip6 = (void *)ip;
	if (skb->protocol == be16(ETHERTYPE_IPV4)) {
		if ((void *)(ip + 1) > (void *)(long)skb->data_end || ip->protocol != PROTO_TCP)
			return TC_NEXT;
		tcp = reset_at(skb, off + (ip->version_ihl & 0xf) * 4);
		map_ipv4(&local, ip->src);
		map_ipv4(&remote, ip->dst);
	} else if (skb->protocol == be16(ETHERTYPE_IPV6)) {
		if ((void *)(ip6 + 1) > (void *)(long)skb->data_end || ip6->next != PROTO_TCP)
			return TC_NEXT;
		tcp = reset_at(skb, off + sizeof(*ip6));
		local = ip6->src;
		remote = ip6->dst;
	} else {
		return TC_NEXT;
	}
	if (!tcp)
		return TC_NEXT;
	struct ports reversed = {.src = tcp->port.dst, .dst = tcp->port.src};
	if (find_flow(&f, &local, &remote, reversed) || find_listener(&f, &local, reversed.dst) == OUTCOME_LISTENER)
		return TC_DROP;
	return TC_NEXT;
}
