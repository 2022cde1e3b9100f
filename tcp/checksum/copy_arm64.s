#include "textflag.h"
#include "lanes_arm64.h"

// func copyLanes(dst, src *byte, n, words, ahead int, shift *uint64, crc uint32, sum uint64) (uint32, uint64)
//
// Each word of src is read only once, so the CRC is that of the written bytes even if an application changes src
// meanwhile.
TEXT ·copyLanes(SB), NOSPLIT, $0-80
	MOVD	dst+0(FP), R3
	MOVD	src+8(FP), R0
	MOVD	n+16(FP), R6
	MOVD	words+24(FP), R7
	MOVD	shift+40(FP), R22
	MOVWU	crc+48(FP), R8
	MOVD	sum+56(FP), R11
	ADDS	$0, R11 // no carry
	LSL	$3, R7, R21
	CBZ	R7, rest
	LANES(R0, R1, R2)
	LANES(R3, R4, R5)
	MOVD	ZR, R9
	MOVD	ZR, R10

lanes:
	LOAD6
	STORE6
	TAKE6
	SUB	$2, R7
	CBNZ	R7, lanes
	JOIN
	MOVD	R2, R0
	MOVD	R5, R3
	ADD	R21<<1, R21
	SUB	R21, R6

rest:
	LSR	$4, R6, R7
	CBZ	R7, eight

sixteen:
	LDP.P	16(R0), (R12, R13)
	STP.P	(R12, R13), 16(R3)
	TAKE2
	SUB	$1, R7
	CBNZ	R7, sixteen

eight:
	TBZ	$3, R6, four
	MOVD.P	8(R0), R12
	MOVD.P	R12, 8(R3)
	CRC32CX	R12, R8
	SUM(R12)

four:
	TBZ	$2, R6, two
	MOVWU.P	4(R0), R12
	MOVW.P	R12, 4(R3)
	CRC32CW	R12, R8
	SUM(R12)

two:
	TBZ	$1, R6, one
	MOVHU.P	2(R0), R12
	MOVH.P	R12, 2(R3)
	CRC32CH	R12, R8
	SUM(R12)

one:
	TBZ	$0, R6, done
	MOVBU	(R0), R12
	MOVB	R12, (R3)
	CRC32CB	R12, R8
	SUM(R12)

done:
	ADC	ZR, R11 // if a carry is left, R11 is at most 2^64-2: no second carry
	MOVW	R8, ret+64(FP)
	MOVD	R11, ret1+72(FP)
	RET

// func prefetchLines(p *byte, n int)
TEXT ·prefetchLines(SB), NOSPLIT, $0-16
	MOVD	p+0(FP), R0
	MOVD	n+8(FP), R1

line:
	PRFM	(R0), PLDL1KEEP
	ADD	$64, R0
	SUBS	$64, R1
	BGT	line
	RET
