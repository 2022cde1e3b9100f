#include "textflag.h"
#include "lanes_amd64.h"

// PUT is MOVE with the marker R14 in place of the first four bytes.
#define PUT(from, to) \
	BSWAPL	R14; \
	LOAD(from); \
	PINSRD	$0, R14, X4; \
	STORE(to)

#define FETCH \
	PREFETCHT0	(R12); \
	PREFETCHT0	(R12)(R10*1); \
	PREFETCHT0	(R12)(R10*2)

#define TAKELINE \
	TAKE(0); \
	TAKE(8); \
	TAKE(16); \
	TAKE(24); \
	TAKE(32); \
	TAKE(40); \
	TAKE(48); \
	TAKE(56); \
	LEAQ	64(SI), SI; \
	LEAQ	64(DI), DI; \
	LEAQ	64(R12), R12

// func markedLanes(dst, src *byte, blocks, ahead int, mark uint32, shift *uint64, crc uint32, sum uint64) (uint32, uint64)
//
// BX is the length of a lane in dst, R10 in src, R11 the next marker of the first lane. The first line of a block is
// read from four bytes in front of its bytes, and the marker replaces these four. So source and destination both
// advance by whole lines. The carry flag holds the sum's carry throughout the loops.
TEXT ·markedLanes(SB), NOSPLIT, $0-80
	MOVQ	dst+0(FP), DI
	MOVQ	src+8(FP), SI
	MOVQ	blocks+16(FP), R9
	MOVQ	ahead+24(FP), R12
	MOVL	mark+32(FP), R11
	MOVL	crc+48(FP), AX
	MOVQ	sum+56(FP), DX
	MOVQ	R9, BX
	SHLQ	$9, BX
	IMUL3Q	$508, R9, R10
	LEAQ	(SI)(R12*1), R12
	XORL	R13, R13
	XORL	CX, CX	// no carry

block:
	FETCH
	MOVL	R11, R14
	PUT((SI), (DI))
	LEAL	(R11)(BX*1), R14
	PUT((SI)(R10*1), (DI)(BX*1))
	LEAL	(R11)(BX*2), R14
	PUT((SI)(R10*2), (DI)(BX*2))
	TAKELINE
	MOVL	$7, R8

line:
	FETCH
	MOVE((SI), (DI))
	MOVE((SI)(R10*1), (DI)(BX*1))
	MOVE((SI)(R10*2), (DI)(BX*2))
	TAKELINE
	DECQ	R8
	JNE	line
	LEAQ	-4(SI), SI
	LEAQ	-4(R12), R12
	LEAL	512(R11), R11
	DECQ	R9
	JNE	block
	ADCQ	$0, DX
	ADCQ	$0, DX

	MOVQ	shift+40(FP), R8
	JOIN
	MOVL	AX, ret+64(FP)
	MOVQ	DX, ret1+72(FP)
	RET
