#include "textflag.h"
#include "lanes_arm64.h"

// func sumLanes(src *byte, n, words int, shift *uint64, crc uint32, sum uint64) (uint32, uint64)
TEXT ·sumLanes(SB), NOSPLIT, $0-64
	MOVD	src+0(FP), R0
	MOVD	n+8(FP), R6
	MOVD	words+16(FP), R7
	MOVD	shift+24(FP), R22
	MOVWU	crc+32(FP), R8
	MOVD	sum+40(FP), R11
	ADDS	$0, R11 // no carry
#include "read_arm64.h"
	ADC	ZR, R11 // if a carry is left, R11 is at most 2^64-2: no second carry
	MOVW	R8, ret+48(FP)
	MOVD	R11, ret1+56(FP)
	RET

#undef SUM
#define SUM(word)

// func crcLanes(src *byte, n, words int, shift *uint64, crc uint32) uint32
TEXT ·crcLanes(SB), NOSPLIT, $0-44
	MOVD	src+0(FP), R0
	MOVD	n+8(FP), R6
	MOVD	words+16(FP), R7
	MOVD	shift+24(FP), R22
	MOVWU	crc+32(FP), R8
#include "read_arm64.h"
	MOVW	R8, ret+40(FP)
	RET
