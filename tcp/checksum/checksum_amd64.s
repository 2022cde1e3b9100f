#include "textflag.h"
#include "lanes_amd64.h"

// func sumLanes(src *byte, n, words int, shift *uint64, crc uint32, sum uint64) (uint32, uint64)
//
// The carry flag holds the sum's carry throughout the lanes' loop: LEAQ and DECQ do not change it.
TEXT ·sumLanes(SB), NOSPLIT, $0-64
	MOVQ	src+0(FP), SI
	MOVQ	words+16(FP), BX
	MOVL	crc+32(FP), AX
	MOVQ	sum+40(FP), DX
	TESTQ	BX, BX
	JEQ	rest

	LEAQ	(SI)(BX*8), R9
	LEAQ	(R9)(BX*8), R10
	XORL	R13, R13
	XORL	CX, CX
	XORL	R8, R8

lanes:
	CRC32Q	(SI)(R8*8), AX
	ADCQ	(SI)(R8*8), DX
	CRC32Q	(R9)(R8*8), R13
	ADCQ	(R9)(R8*8), DX
	CRC32Q	(R10)(R8*8), CX
	ADCQ	(R10)(R8*8), DX
	LEAQ	1(R8), R8
	DECQ	BX
	JNE	lanes
	ADCQ	$0, DX
	ADCQ	$0, DX

	LEAQ	(R8*8), BX
	LEAQ	(R10)(BX*1), SI
	MOVQ	shift+24(FP), R8
	JOIN

rest:
	MOVQ	n+8(FP), CX
	MOVQ	words+16(FP), BX
	LEAQ	(BX)(BX*2), BX
	SHLQ	$3, BX
	SUBQ	BX, CX
	SUBQ	$8, CX
	JLT	last

word:
	MOVQ	(SI), R14
	CRC32Q	R14, AX
	ADDQ	R14, DX
	ADCQ	$0, DX
	ADDQ	$8, SI
	SUBQ	$8, CX
	JGE	word

last:
	TESTQ	$4, CX
	JEQ	two
	MOVL	(SI), R14
	CRC32L	R14, AX
	ADDQ	R14, DX
	ADCQ	$0, DX
	ADDQ	$4, SI

two:
	TESTQ	$2, CX
	JEQ	one
	MOVWLZX	(SI), R14
	CRC32W	R14, AX
	ADDQ	R14, DX
	ADCQ	$0, DX
	ADDQ	$2, SI

one:
	TESTQ	$1, CX
	JEQ	done
	MOVBLZX	(SI), R14
	CRC32B	R14, AX
	ADDQ	R14, DX
	ADCQ	$0, DX

done:
	MOVL	AX, ret+48(FP)
	MOVQ	DX, ret1+56(FP)
	RET

// func crcLanes(src *byte, n, words int, shift *uint64, crc uint32) uint32
//
// The CRC32 instruction has a latency of three cycles and a throughput of one per cycle: three lanes keep it busy.
TEXT ·crcLanes(SB), NOSPLIT, $0-44
	MOVQ	src+0(FP), SI
	MOVQ	words+16(FP), BX
	MOVL	crc+32(FP), AX
	TESTQ	BX, BX
	JEQ	rest

	LEAQ	(SI)(BX*8), R9
	LEAQ	(R9)(BX*8), R10
	XORL	R13, R13
	XORL	CX, CX
	XORL	R8, R8

lanes:
	CRC32Q	(SI)(R8*8), AX
	CRC32Q	(R9)(R8*8), R13
	CRC32Q	(R10)(R8*8), CX
	INCQ	R8
	CMPQ	R8, BX
	JNE	lanes

	LEAQ	(R8*8), BX
	LEAQ	(R10)(BX*1), SI
	MOVQ	shift+24(FP), R8
	JOIN

rest:
	MOVQ	n+8(FP), CX
	MOVQ	words+16(FP), BX
	LEAQ	(BX)(BX*2), BX
	SHLQ	$3, BX
	SUBQ	BX, CX
	SUBQ	$8, CX
	JLT	last

word:
	CRC32Q	(SI), AX
	ADDQ	$8, SI
	SUBQ	$8, CX
	JGE	word

last:
	TESTQ	$4, CX
	JEQ	two
	CRC32L	(SI), AX
	ADDQ	$4, SI

two:
	TESTQ	$2, CX
	JEQ	one
	CRC32W	(SI), AX
	ADDQ	$2, SI

one:
	TESTQ	$1, CX
	JEQ	done
	CRC32B	(SI), AX

done:
	MOVL	AX, ret+40(FP)
	RET
