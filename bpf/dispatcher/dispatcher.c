//go:build ignore
// SPDX-License-Identifier: Apache-2.0
//
// dispatcher.c: the XDP program of an interface that runs up to ten programs in turn, as libxdp's protocol describes. The
// functions prog0 to prog9 are replaced by the programs (freplace). A program's actions are a bitmap: after one of these, the
// next program runs. With any other action the frame is decided.

#include "../kernel.h"

#define MAX_PROGRAMS 10
#define NOT_REPLACED 31 /* what a function without a program returns. The actions of each program contain it */

// The loader fills it in. The verifier treats it as constant, and removes the calls beyond the last program.
struct config {
	__u8 magic;
	__u8 version;
	__u8 programs; /* number in use */
	__u8 frags;    /* the dispatcher takes frames of several buffers */
	__u32 actions[MAX_PROGRAMS];
	__u32 priorities[MAX_PROGRAMS];
	__u32 flags[MAX_PROGRAMS]; /* with which the program was loaded: BPF_F_XDP_HAS_FRAGS */
	__u8 bound;		   /* since version 3: to one device */
};

static volatile const struct config config = {};

// The kernel refuses programs that change the length of frames unless the function that they replace may do so.
#define FUNCTION(n)                                      \
	__attribute__((noinline)) int prog##n(struct xdp_md *ctx) \
	{                                                \
		volatile int action = NOT_REPLACED;      \
                                                         \
		if (!ctx)                                \
			return XDP_ABORTED;              \
		bpf_xdp_adjust_tail(ctx, 0);             \
		return action;                           \
	}

FUNCTION(0)
FUNCTION(1)
FUNCTION(2)
FUNCTION(3)
FUNCTION(4)
FUNCTION(5)
FUNCTION(6)
FUNCTION(7)
FUNCTION(8)
FUNCTION(9)

#define RUN(n)                                            \
	if (config.programs <= n)                         \
		return XDP_PASS;                          \
	action = prog##n(ctx);                            \
	if (!(1U << (action & 31) & config.actions[n])) \
		return action;

SEC("xdp")
int xdp_dispatcher(struct xdp_md *ctx)
{
	int action;

	RUN(0)
	RUN(1)
	RUN(2)
	RUN(3)
	RUN(4)
	RUN(5)
	RUN(6)
	RUN(7)
	RUN(8)
	RUN(9)
	return XDP_PASS;
}

const char license_text[] SEC("license") = "Apache-2.0";
