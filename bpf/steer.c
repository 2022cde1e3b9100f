//go:build ignore
// SPDX-License-Identifier: Apache-2.0
//
// steer.c: gives the engine's TCP segments to its AF_XDP sockets and leaves everything else to the kernel.
//
//   frame -> Ethernet without VLAN -> IPv4 | IPv6 -> TCP -> exact flow, else listener -> socket of the rx queue
//                                                    (a SYN: its listener's limit, then the flow)
//                                                 -> later fragment -> as its first fragment went
//                                                 -> ICMP error     -> as the packet that it quotes
//         -> anything else: XDP_PASS
//
// Every frame is counted under exactly one outcome. What the kernel no longer sees, and what that means:
//
//   - TCP segments to a claimed local address and port. A listener of any address claims its port on the addresses of
//     this host (the map local_prefixes), and not on those that it routes for. Neither the host's firewall nor its IPsec
//     policies are asked about them.
//   - Fragments of such segments, each after its first fragment. They never reach the kernel's reassembly.
//   - ICMP errors that quote such a segment, and only those: the kernel's path MTU cache does not learn from them.
//
// Of these, three kinds are dropped: what arrives on a receive queue that has no socket, because the kernel, which knows
// no such connection, would answer RST (only the socket of a frame's own queue can take it; TCP sends again); segments
// to a listener from whom the list of peers does not name; and what comes to a listener beyond its rates. Nothing is
// written.
//
// Listeners claim nothing in frames for other Ethernet addresses (bridged machines, macvlan, promiscuous captures) and for
// groups. Flows do: nobody else can have the four-tuple, the engine looks at the address itself, and when the interface's
// changes, the kernel must not answer RST before this program hears of it.
//
// The kernel keeps frames with the tag of a VLAN; a tag of VLAN 0 gives a priority only. A device that takes tags off before
// XDP hides them: that offload has to be off where there are VLANs. It keeps segments behind AH and ESP, which only it can
// authenticate, and frames whose headers are cut short or contradict each other. If one is a segment of a claimed connection
// after all, as when its first fragment has half a TCP header, the kernel answers RST as for any that it does not know.
//
// Checksums are not verified here: the engine does it, over octets that it has to touch anyway.

#include "kernel.h"
#include "maps.h"
#include "wire.h"
#include "live.h"

// No helper in use is reserved to GPL programs, so the program carries the licence of the project.
const char license_text[] SEC("license") = "Apache-2.0";

#define MAX_VLAN_TAGS 2
#define MAX_EXT_HEADERS 6 /* RFC 8200 4.1 lists seven places; more than six before TCP is nobody's honest packet */
#define MAX_HEADERS 4096  /* octets from the frame's start to the end of the last header that is read */
#define FRAGMENT_LIFETIME_NS 30000000000ULL /* as long as Linux waits for the missing fragments (ipfrag_time) */

// A frame, and how far it reaches. Offsets count from the frame's first octet.
struct frame {
	struct xdp_md *ctx;
	const struct settings *settings;
	__u32 first; /* octets in its first buffer, which holds most frames whole */
};

enum part { WHOLE, FIRST_FRAGMENT, LATER_FRAGMENT };

// An IP datagram, or the part of one that the frame holds.
struct datagram {
	struct address src, dst;
	__u32 payload;	/* where the transport header starts */
	__u32 end;	/* one past the last octet */
	__u32 protocol; /* of the payload */
	enum part part;
	__be32 id; /* with part != WHOLE: its identity, as in struct fragment_key */
	__u32 id_protocol;
};

// at returns the size octets at off, or 0 when they are not in the frame's first buffer.
static inline_always void *at(const struct frame *f, __u32 off, __u32 size)
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

// ends returns where a datagram ends whose header says end, and 0 when the frame ends before that. A quote ends at limit,
// and may promise more; limit 0 means that it is none. A helper is asked only about what the first buffer does not hold.
static inline_always __u32 ends(const struct frame *f, __u32 end, __u32 limit)
{
	if (limit)
		return end < limit ? end : limit;
	return end <= f->first || end <= bpf_xdp_get_buff_len(f->ctx) ? end : 0;
}

// missing is the outcome for octets that at did not find: they may lie beyond the end, or in a later buffer.
static inline_always enum outcome missing(__u32 off, __u32 size, __u32 end)
{
	return off + size > end ? OUTCOME_PASS_MALFORMED : OUTCOME_PASS_HEADER_SPLIT;
}

// forget returns off, which must be below 8192, and hides from the verifier which headers led to it: all walks look the
// same to it from here on, and it has a quarter of the paths to follow.
static inline_always __u32 forget(__u32 off)
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

// read_ipv4 reads the header at off (RFC 791), with the limit of ends.
static inline_always enum outcome read_ipv4(const struct frame *f, __u32 off, __u32 limit, struct datagram *d)
{
	struct ipv4 *ip = at(f, off, sizeof(*ip));
	if (!ip)
		return missing(off, sizeof(*ip), ends(f, off + sizeof(*ip), limit));

	__u32 header = (ip->version_ihl & 0xf) * 4;
	__u32 length = be16(ip->length);
	if (ip->version_ihl >> 4 != 4 || header < sizeof(*ip) || length < header)
		return OUTCOME_PASS_MALFORMED;
	d->end = ends(f, off + length, limit);
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
	return GO_ON;
}

// read_extension steps over the extension header at d->payload (RFC 8200 4).
static inline_always enum outcome read_extension(const struct frame *f, struct datagram *d)
{
	struct extension *ext = at(f, d->payload, 8); /* the shortest one has 8 octets */
	if (!ext)
		return missing(d->payload, 8, d->end);

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
		if (ext->segments_left) /* not at its destination yet: the kernel forwards or refuses it */
			return OUTCOME_PASS_NOT_TCP;
		break;
	}
	d->protocol = ext->next;
	d->payload = forget(d->payload + length); /* at most MAX_HEADERS + 256 * 8 */
	return d->payload > d->end ? OUTCOME_PASS_MALFORMED : GO_ON;
}

static inline_always int is_extension(__u32 protocol)
{
	// Hop-by-hop options may only come first (RFC 8200 4.1), where read_ipv6 takes them. What AH (RFC 4302) protects is for
	// the kernel to check.
	return protocol == PROTO_DSTOPTS || protocol == PROTO_ROUTING || protocol == PROTO_FRAGMENT;
}

// read_ipv6 reads the header at off and walks the extension headers (RFC 8200) up to the transport header, or to the
// fragment header of a later fragment, with the limit of ends.
static inline_always enum outcome read_ipv6(const struct frame *f, __u32 off, __u32 limit, struct datagram *d)
{
	struct ipv6 *ip = at(f, off, sizeof(*ip));
	if (!ip)
		return missing(off, sizeof(*ip), ends(f, off + sizeof(*ip), limit));

	// A length of zero would be a jumbogram (RFC 2675), which no link of ours carries.
	__u32 length = be16(ip->payload_length);
	if ((ip->version_class_flow & be32(0xf0000000)) != be32(0x60000000) || length == 0)
		return OUTCOME_PASS_MALFORMED;
	d->end = ends(f, off + sizeof(*ip) + length, limit);
	if (!d->end)
		return OUTCOME_PASS_MALFORMED;

	d->src = ip->src;
	d->dst = ip->dst;
	// They never appear on a wire, and here they would pass for IPv4 flows.
	if (is_mapped_ipv4(&d->src) || is_mapped_ipv4(&d->dst))
		return OUTCOME_PASS_MALFORMED;
	d->payload = off + sizeof(*ip);
	d->protocol = ip->next;
	d->part = WHOLE;

	for (int i = 0; i < MAX_EXT_HEADERS; i++) {
		if (!is_extension(d->protocol) && !(i == 0 && d->protocol == PROTO_HOPOPTS))
			return GO_ON;
		enum outcome o = read_extension(f, d);
		if (o != GO_ON || d->part == LATER_FRAGMENT)
			return o;
	}
	return is_extension(d->protocol) ? OUTCOME_PASS_EXTENSION_DEPTH : GO_ON;
}

static inline_always int has(void *prefixes, const struct address *a)
{
	struct prefix key = {.bits = 128, .address = *a};
	__u32 *in = bpf_map_lookup_elem(prefixes, &key);
	return in && *in;
}

// for_us tells whether the frame has the interface's Ethernet address.
static inline_always int for_us(const struct frame *f)
{
	const struct ethernet *eth = at(f, 0, sizeof(*eth));
	const struct mac *ours = &f->settings->mac;
	return eth && ((eth->dst.word[0] ^ ours->word[0]) | (eth->dst.word[1] ^ ours->word[1]) | (eth->dst.word[2] ^ ours->word[2])) == 0;
}

// search looks for a listener.
static inline_always enum outcome search(const struct address *local, __be16 port)
{
	struct listener_key listener = {.local = *local, .port = port};
	if (bpf_map_lookup_elem(&listeners, &listener))
		return OUTCOME_LISTENER;
	if (is_mapped_ipv4(local)) {
		listener.local.word[3] = 0;
	} else {
		listener.local = (struct address){};
	}
	if (!bpf_map_lookup_elem(&listeners, &listener))
		return OUTCOME_PASS_NO_MATCH;
	return has(&local_prefixes, local) ? OUTCOME_LISTENER : OUTCOME_PASS_NOT_LOCAL;
}

// listened_to decides on a segment that belongs to no flow.
static inline_always enum outcome listened_to(const struct frame *f, const struct address *local, const struct address *remote,
					      __be16 port)
{
	if (!for_us(f))
		return OUTCOME_PASS_OTHER_MAC;

	__u32 generation = *(volatile __u32 *)&f->settings->generation; /* before the search, which may find what is older */
	__u32 index = (port ^ port >> 8) % ANSWERS;
	struct answer *known = bpf_map_lookup_elem(&answers, &index);
	if (!known)
		return OUTCOME_PASS_NO_MATCH; /* there always is; the verifier wants to see it */
	if (known->generation != generation || known->port != port || !same_address(&known->local, local)) {
		enum outcome o = search(local, port);
		if (o != OUTCOME_LISTENER)
			return o;
		*known = (struct answer){.local = *local, .port = port, .generation = generation};
	}
	if (f->settings->only_peers && !has(&peers, remote))
		return OUTCOME_DROP_PEER;
	return OUTCOME_LISTENER;
}

// find_flow returns the value of the flow of a four-tuple, or 0.
static inline_always __u32 *find_flow(const struct address *local, const struct address *remote, struct ports port)
{
	struct flow_key flow = {.local = *local, .remote = *remote, .port = port};
	return bpf_map_lookup_elem(&flows, &flow);
}

// clock returns nanoseconds, in steps of a tick.
static inline_always __u64 clock(const struct frame *f)
{
	return bpf_jiffies64() * f->settings->tick_ns;
}

// take takes one of a limit, if there is one; another one comes after each interval.
static inline_always int take(__u64 *used_until, __u64 now, __u64 interval)
{
	__u64 until = *used_until < now ? now : *used_until;

	if (until - now > (OPEN_BURST - 1) * interval)
		return 0;
	*used_until = until + interval;
	return 1;
}

// hash_peer mixes what is the same in a SYN and in its repetition or, without the sequence number, in what follows it. It
// has no secret: SYNs can be made that look like each other's repetition, but then any SYN can be sent again.
static inline_always __u64 hash_peer(const struct address *remote, struct ports port, __be32 seq)
{
	const __u64 k = 0x9e3779b97f4a7c15ULL; /* 2^64 / golden ratio: Fibonacci hashing */
	__u64 h = (((__u64)remote->word[0] << 32 | remote->word[1]) + 1) * k;

	h = (h ^ h >> 32 ^ ((__u64)remote->word[2] << 32 | remote->word[3])) * k;
	h = (h ^ h >> 32 ^ ((__u64)port.src << 48 | (__u64)port.dst << 32 | seq)) * k;
	return h ^ h >> 32;
}

// A SYN, and what is remembered where it would be.
struct syn {
	__u64 *bucket;
	__u64 seen;
	__u32 mark;
};

// recall begins early to read what comes_again asks for, which is in no cache when there is a flood.
static inline_always struct syn recall(const struct address *remote, const struct tcp *tcp)
{
	__u64 h = hash_peer(remote, tcp->port, tcp->seq);
	__u32 index = h % SYN_BUCKETS;
	struct syn s = {.bucket = bpf_map_lookup_elem(&syns_seen, &index), .mark = h >> 48 & 0xfff0};
	if (s.bucket)
		s.seen = *(volatile __u64 *)s.bucket;
	return s;
}

// comes_again tells whether a SYN that there is no room for was dropped before, as long ago as a peer waits until it
// sends it again, and remembers it. A flood from made-up addresses has no such SYNs, but for one in a thousand that looks
// like another. One that sends its SYNs again as TCP does takes this limit too and leaves peers a share of it: nothing tells
// the two apart, and what the worker spends stays bounded.
static inline_always int comes_again(const struct syn *s, __u64 *used_until, __u64 now)
{
	if (!s->bucket)
		return 0; /* there always is; the verifier wants to see it */

	__u32 tick = now >> SYN_TICK_SHIFT & 0xf;
	__u64 left = s->seen;
	int again = 0;
	for (int i = 0; i < 4; i++, left >>= 16) {
		if ((left & 0xfff0) != s->mark)
			continue;
		if (((tick - left) & 0xf) < SYN_REPEAT_MIN || !take(used_until, now, AGAIN_INTERVAL_NS))
			return 0;
		again = 1;
		break;
	}
	*s->bucket = s->seen << 16 | s->mark | tick;
	return again;
}

// admit lets a SYN through, and some segments that follow it.
static inline_always enum outcome admit(const struct datagram *d, const struct tcp *tcp)
{
	__u64 h = hash_peer(&d->src, tcp->port, 0);
	__u32 index = h % OPENINGS;
	__u32 *opening = bpf_map_lookup_elem(&openings, &index);
	if (opening)
		*opening = (h >> 32 & ~FOLLOW_MASK) | FOLLOW_MAX;
	return OUTCOME_LISTENER;
}

// follows tells whether the peer's SYN was let through and not too many segments came since.
static inline_always int follows(const struct datagram *d, const struct tcp *tcp)
{
	__u64 h = hash_peer(&d->src, tcp->port, 0);
	__u32 index = h % OPENINGS;
	__u32 *opening = bpf_map_lookup_elem(&openings, &index);
	if (!opening || ((*opening ^ h >> 32) & ~FOLLOW_MASK) != 0 || (*opening & FOLLOW_MASK) == 0)
		return 0;
	*opening -= 1;
	return 1;
}

static inline_always struct open_limit *open_limit(const struct frame *f)
{
	__u32 queue = f->ctx->rx_queue_index;
	return bpf_map_lookup_elem(&open_limits, &queue); /* 0: the queue has no socket either */
}

// stray decides on what came to a listener without a SYN before it.
static inline_always enum outcome stray(const struct frame *f, struct open_limit *limit)
{
	return take(&limit->stray, clock(f), OPEN_INTERVAL_NS) ? OUTCOME_LISTENER : OUTCOME_DROP_STRAY;
}

// strays decides on a segment of no flow that is not a SYN.
static inline_always enum outcome strays(const struct frame *f, const struct datagram *d, const struct tcp *tcp)
{
	enum outcome o = listened_to(f, &d->dst, &d->src, tcp->port.dst);
	struct open_limit *limit = open_limit(f);
	if (o != OUTCOME_LISTENER || !limit)
		return o;
	if (follows(d, tcp) && take(&limit->follow, clock(f), FOLLOW_INTERVAL_NS))
		return OUTCOME_LISTENER;
	return stray(f, limit);
}

// opens decides on a SYN as if no flow were there.
static inline_always enum outcome opens(const struct frame *f, const struct datagram *d, const struct tcp *tcp)
{
	struct syn syn = recall(&d->src, tcp);
	enum outcome o = listened_to(f, &d->dst, &d->src, tcp->port.dst);
	struct open_limit *limit = open_limit(f);
	if (o != OUTCOME_LISTENER || !limit)
		return o;
	__u64 now = clock(f);
	if (take(&limit->first, now, OPEN_INTERVAL_NS) || comes_again(&syn, &limit->again, now))
		return admit(d, tcp);
	return OUTCOME_DROP_SYN;
}

// began gives back what the SYN took of a flow whose first segment this is, so that peers who mean it have no limit; to the
// first limit also what a SYN that came again took of the other. A flow that we opened took nothing: its first segment is a
// SYN of the peer or, which gives back one for each that we dial at most, a refusal.
static inline_always void began(const struct frame *f, const struct tcp *tcp, __u32 *fresh)
{
	struct open_limit *limit = open_limit(f);

	*fresh = 0;
	if (limit && !(tcp->flags & TCP_SYN) && limit->first > OPEN_INTERVAL_NS)
		limit->first -= OPEN_INTERVAL_NS;
}

// steer_tcp decides on a segment, or on the first fragment of one, which must hold the whole header (RFC 1858).
static inline_always enum outcome steer_tcp(const struct frame *f, const struct datagram *d)
{
	struct tcp *tcp = at(f, d->payload, sizeof(*tcp));
	if (!tcp || d->payload + sizeof(*tcp) > d->end)
		return missing(d->payload, sizeof(*tcp), d->end);

	__u32 header = (tcp->offset >> 4) * 4;
	if (header < sizeof(*tcp) || d->payload + header > d->end)
		return OUTCOME_PASS_MALFORMED;
	// A SYN is looked for among the flows after its listener's limit, which also drops that of a flow: a flood of them pays
	// no more than it must.
	int syn = (tcp->flags & (TCP_SYN | TCP_ACK | TCP_RST)) == TCP_SYN;
	enum outcome o = syn ? opens(f, d, tcp) : GO_ON;
	if (o == OUTCOME_DROP_SYN)
		return o;
	__u32 *fresh = find_flow(&d->dst, &d->src, tcp->port);
	if (fresh) {
		if (*fresh)
			began(f, tcp, fresh);
		return OUTCOME_FLOW;
	}
	return syn ? o : strays(f, d, tcp);
}

// may_be_ours tells whether the protocol is one that the engine claims datagrams of.
static inline_always int may_be_ours(const struct datagram *d)
{
	return d->protocol == PROTO_TCP || d->protocol == PROTO_ESP;
}

static inline_always void name_fragment(struct fragment_key *key, const struct datagram *d)
{
	key->src = d->src;
	key->dst = d->dst;
	key->id = d->id;
	key->protocol = d->id_protocol;
}

// steer_later_fragment sends a fragment without ports the way of its first fragment.
static inline_always enum outcome steer_later_fragment(const struct frame *f, const struct datagram *d)
{
	struct fragment_key key;
	name_fragment(&key, d);
	__u64 *seen = bpf_map_lookup_elem(&fragments, &key);
	return seen && clock(f) - *seen < FRAGMENT_LIFETIME_NS ? OUTCOME_FRAGMENT : OUTCOME_PASS_FRAGMENT;
}

// remember_first notes where a first fragment goes. One that nobody claimed ends the claim of an older datagram with
// the same identification, of which the protocol is a part with IPv4 only.
static inline_always void remember_first(const struct frame *f, const struct datagram *d, int steered)
{
	struct fragment_key key;
	name_fragment(&key, d);
	if (steered) {
		__u64 now = clock(f);
		bpf_map_update_elem(&fragments, &key, &now, BPF_ANY);
	} else {
		bpf_map_delete_elem(&fragments, &key);
	}
}

static inline_always int is_icmp_error(const struct icmp_error *icmp, int v6)
{
	if (v6)
		return icmp->type >= ICMPV6_UNREACHABLE && icmp->type <= ICMPV6_PARAMETER;
	return icmp->type == ICMP_UNREACHABLE || icmp->type == ICMP_TIME_EXCEEDED || icmp->type == ICMP_PARAMETER;
}

// steer_icmp steers the errors that quote a segment which the engine sent: one of its flows or listeners, seen from the
// other side. The error must be addressed to the quoted source. Whether the quoted sequence number is in flight
// (RFC 5927 4) is for the engine to judge.
static inline_always enum outcome steer_icmp(const struct frame *f, const struct datagram *d, int v6)
{
	if (d->part != WHOLE)
		return OUTCOME_PASS_NOT_TCP;
	struct icmp_error *icmp = at(f, d->payload, sizeof(*icmp));
	__u32 off = d->payload + sizeof(*icmp);
	if (!icmp || off > d->end)
		return missing(d->payload, sizeof(*icmp), d->end);
	if (!is_icmp_error(icmp, v6))
		return OUTCOME_PASS_NOT_TCP;

	struct datagram q = {};
	enum outcome o = v6 ? read_ipv6(f, off, d->end, &q) : read_ipv4(f, off, d->end, &q);
	if (o != GO_ON)
		return o;
	if (q.protocol != PROTO_TCP || q.part == LATER_FRAGMENT)
		return OUTCOME_PASS_NOT_TCP;

	struct ports *port = at(f, q.payload, TCP_QUOTE);
	if (!port || q.payload + TCP_QUOTE > q.end)
		return missing(q.payload, TCP_QUOTE, q.end);
	if (!same_address(&q.src, &d->dst))
		return OUTCOME_PASS_NOT_TCP;
	struct ports reversed = {.src = port->dst, .dst = port->src};
	if (find_flow(&q.src, &q.dst, reversed))
		return OUTCOME_ICMP;
	if (listened_to(f, &q.src, &q.dst, reversed.dst) != OUTCOME_LISTENER)
		return OUTCOME_PASS_NOT_TCP;
	struct open_limit *limit = open_limit(f);
	return limit && stray(f, limit) == OUTCOME_DROP_STRAY ? OUTCOME_DROP_STRAY : OUTCOME_ICMP;
}

// steer_esp decides on a packet of IPsec (RFC 4303), or on the first fragment of one.
static inline_always enum outcome steer_esp(const struct frame *f, const struct datagram *d)
{
	__be32 *spi = at(f, d->payload, sizeof(*spi));
	if (!spi || d->payload + sizeof(*spi) > d->end)
		return missing(d->payload, sizeof(*spi), d->end);
	struct sa_key sa = {.local = d->dst, .remote = d->src, .spi = *spi};
	return bpf_map_lookup_elem(&sas, &sa) ? OUTCOME_ESP : OUTCOME_PASS_NOT_TCP;
}

// steer_ip decides on a datagram whose IP headers were read.
static inline_always enum outcome steer_ip(const struct frame *f, const struct datagram *d, int v6)
{
	if (d->part == LATER_FRAGMENT) {
		// Only IPv4 tells the protocol of a later fragment.
		return v6 || may_be_ours(d) ? steer_later_fragment(f, d) : OUTCOME_PASS_NOT_TCP;
	}
	if (d->protocol == PROTO_TCP)
		return steer_tcp(f, d);
	if (d->protocol == PROTO_ESP)
		return steer_esp(f, d);
	if (d->protocol == (v6 ? PROTO_ICMPV6 : PROTO_ICMP))
		return steer_icmp(f, d, v6);
	return OUTCOME_PASS_NOT_TCP;
}

// classify names the outcome of a frame, and describes the datagram in it.
static inline_always enum outcome classify(const struct frame *f, struct datagram *d)
{
	struct ethernet *eth = at(f, 0, sizeof(*eth));
	if (!eth) /* there are NICs that leave the first of several buffers empty */
		return missing(0, sizeof(*eth), ends(f, sizeof(*eth), 0));
	__u32 off = sizeof(*eth);
	__be16 type = eth->type;

	for (int i = 0; type == be16(ETHERTYPE_VLAN) || type == be16(ETHERTYPE_QINQ); i++) {
		if (i == MAX_VLAN_TAGS)
			return OUTCOME_PASS_VLAN_DEPTH;
		struct vlan_tag *tag = at(f, off, sizeof(*tag));
		if (!tag)
			return missing(off, sizeof(*tag), ends(f, off + sizeof(*tag), 0));
		if (tag->tci & be16(VLAN_ID))
			return OUTCOME_PASS_VLAN;
		type = tag->type;
		off += sizeof(*tag);
	}

	int v6 = type == be16(ETHERTYPE_IPV6);
	if (!v6 && type != be16(ETHERTYPE_IPV4))
		return OUTCOME_PASS_NOT_IP;
	if (v6) {
		enum outcome o = read_ipv6(f, off, 0, d);
		return o == GO_ON ? steer_ip(f, d, 1) : o;
	}
	enum outcome o = read_ipv4(f, off, 0, d);
	return o == GO_ON ? steer_ip(f, d, 0) : o;
}

static inline_always void count(void *map, __u32 index)
{
	__u64 *n = bpf_map_lookup_elem(map, &index);
	if (n)
		*n += 1; /* per CPU: no other writer */
}

SEC("xdp.frags")
int xwarp_steer(struct xdp_md *ctx)
{
	if (is_live(ctx))
		return transmit_live(ctx);

	__u32 only = 0;
	const struct settings *set = bpf_map_lookup_elem(&settings, &only);
	if (!set)
		return XDP_PASS; /* there is always one; the verifier wants to see it */

	struct frame f = {.ctx = ctx, .settings = set, .first = ctx->data_end - ctx->data};
	struct datagram d = {};
	enum outcome o = classify(&f, &d);
	int ours = o <= OUTCOME_LAST_STEERED;
	int action = o <= OUTCOME_LAST_DROPPED ? XDP_DROP : XDP_PASS;

	if (ours) {
		action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);
		if (action != XDP_REDIRECT) {
			o = OUTCOME_DROP_NO_SOCKET;
			count(&unowned, ctx->rx_queue_index);
		}
	}
	if (d.part == FIRST_FRAGMENT && (may_be_ours(&d) || d.id_protocol == PROTO_FRAGMENT))
		remember_first(&f, &d, ours);
	count(&counters, o);
	return action;
}
