#include "textflag.h"
#include "lanes_arm64.h"

// MARK replaces the first four bytes of word by the marker value.
#define MARK(value, word) \
	REVW	value, R24; \
	BFXIL	$0, R24, $32, word

// func markedLanes(dst, src *byte, blocks, ahead int, mark uint32, shift *uint64, crc uint32, sum uint64) (uint32, uint64)
//
// R21 is the length of a lane in dst, R23 the next marker of the first lane. The first words of a block are read from
// four bytes in front of its bytes, and the marker replaces these four. So source and destination both advance by whole
// words.
TEXT ·markedLanes(SB), NOSPLIT, $0-80
	MOVD	dst+0(FP), R3
	MOVD	src+8(FP), R0
	MOVD	blocks+16(FP), R7
	MOVWU	mark+32(FP), R23
	MOVD	shift+40(FP), R22
	MOVWU	crc+48(FP), R8
	MOVD	sum+56(FP), R11
	LSL	$9, R7, R21
	SUB	R7<<2, R21, R12
	ADD	R12, R0, R1
	ADD	R12, R1, R2
	LANES(R3, R4, R5)
	MOVD	ZR, R9
	MOVD	ZR, R10
	ADDS	$0, R11 // no carry

block:
	LOAD6
	MARK(R23, R12)
	ADDW	R21, R23, R24
	MARK(R24, R14)
	ADDW	R21<<1, R23, R24
	MARK(R24, R19)
	STORE6
	TAKE6
	MOVD	$31, R25

words:
	LOAD6
	STORE6
	TAKE6
	SUB	$1, R25
	CBNZ	R25, words
	SUB	$4, R0
	SUB	$4, R1
	SUB	$4, R2
	ADDW	$512, R23
	SUB	$1, R7
	CBNZ	R7, block

	JOIN
	ADC	ZR, R11 // if a carry is left, R11 is at most 2^64-2: no second carry
	MOVW	R8, ret+64(FP)
	MOVD	R11, ret1+72(FP)
	RET
