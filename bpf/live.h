/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live.h: transmits the engine's own frames. BPF_PROG_RUN with BPF_F_TEST_XDP_LIVE_FRAMES runs the program over pages of a
 * page pool and executes the verdict: the program copies the next frame of a worker to the page and redirects the page to the
 * device. This needs no socket buffer; AF_XDP's copy mode and packet sockets allocate one for each frame.
 *
 * Such a run is recognised by 8 bytes of metadata before the frame, which no driver writes, and by its interface, which is the
 * loopback device, where the program is never attached.
 */
#pragma once

#define LOOPBACK_IFINDEX 1 /* in every network namespace */
#define LIVE_MAGIC 0x78776c66
#define LIVE_ROOM 3360 /* bytes of the longest frame: one page less the kernel's headroom, tailroom and bookkeeping */

struct live_meta {
	__u32 magic;
	__u32 worker;
};

struct live_slot {
	__u32 length;
	__u32 zero;
	__u8 frame[LIVE_ROOM];
};

/* State that a worker shares with its runs; a cache line. */
struct live_state {
	__u32 next; /* slot of the next frame: the worker sets it before a run and reads it after the run */
	__u32 end;  /* one past the worker's last slot */
	__u32 zero[14];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct live_slot);
} live_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct live_state);
} live_states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} live_device SEC(".maps");

/* is_live reports whether the frame belongs to a run of a worker. */
static inline_always int is_live(struct xdp_md *ctx)
{
	struct live_meta *meta = (void *)(long)ctx->data_meta;

	return (void *)(meta + 1) <= (void *)(long)ctx->data && meta->magic == LIVE_MAGIC && ctx->ingress_ifindex == LOOPBACK_IFINDEX;
}

/* transmit_live copies the worker's next frame to the page. An empty slot is skipped. */
static inline_always int transmit_live(struct xdp_md *ctx)
{
	struct live_meta *meta = (void *)(long)ctx->data_meta;

	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return XDP_ABORTED;
	__u32 worker = meta->worker;
	struct live_state *state = bpf_map_lookup_elem(&live_states, &worker);
	if (!state || state->next >= state->end)
		return XDP_ABORTED;
	__u32 index = state->next++;
	struct live_slot *slot = bpf_map_lookup_elem(&live_slots, &index);
	if (!slot)
		return XDP_ABORTED;
	__u32 n = slot->length;
	if (n == 0)
		return XDP_DROP;
	if (n > LIVE_ROOM)
		return XDP_ABORTED;
	if (bpf_xdp_adjust_tail(ctx, (int)n - (int)bpf_xdp_get_buff_len(ctx)))
		return XDP_ABORTED;
	if (bpf_xdp_store_bytes(ctx, 0, slot->frame, n))
		return XDP_ABORTED;
	return bpf_redirect_map(&live_device, 0, XDP_DROP);
}
