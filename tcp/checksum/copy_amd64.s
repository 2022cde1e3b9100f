#include "textflag.h"
#include "lanes_amd64.h"

// func copyLanes(dst, src *byte, n, words, ahead int, shift *uint64, crc uint32, sum uint64) (uint32, uint64)
//
// BX is the length of a lane in bytes. The carry flag holds the sum's carry throughout each loop of the lanes: LEAQ and
// DECQ do not change it.
TEXT ·copyLanes(SB), NOSPLIT, $0-80
	MOVQ	dst+0(FP), DI
	MOVQ	src+8(FP), SI
	MOVQ	words+24(FP), BX
	MOVL	crc+48(FP), AX
	MOVQ	sum+56(FP), DX
	TESTQ	BX, BX
	JEQ	rest

	MOVQ	BX, R8
	MOVQ	BX, R9
	SHLQ	$3, BX
	SHRQ	$3, R9	// lines of a lane
	ANDQ	$7, R8	// words behind them
	MOVQ	ahead+32(FP), R12
	LEAQ	(SI)(R12*1), R12
	XORL	R13, R13
	XORL	CX, CX
	TESTQ	R9, R9	// no carry
	JEQ	words

lines:
	PREFETCHT0	(R12)
	PREFETCHT0	(R12)(BX*1)
	PREFETCHT0	(R12)(BX*2)
	MOVE((SI), (DI))
	MOVE((SI)(BX*1), (DI)(BX*1))
	MOVE((SI)(BX*2), (DI)(BX*2))
	TAKE(0)
	TAKE(8)
	TAKE(16)
	TAKE(24)
	TAKE(32)
	TAKE(40)
	TAKE(48)
	TAKE(56)
	LEAQ	64(SI), SI
	LEAQ	64(DI), DI
	LEAQ	64(R12), R12
	DECQ	R9
	JNE	lines
	ADCQ	$0, DX
	ADCQ	$0, DX

words:
	TESTQ	R8, R8
	JEQ	join

word3:
	MOVQ	(SI), R9
	MOVQ	(SI)(BX*1), R10
	MOVQ	(SI)(BX*2), R11
	MOVQ	R9, (DI)
	MOVQ	R10, (DI)(BX*1)
	MOVQ	R11, (DI)(BX*2)
	TAKE(0)
	LEAQ	8(SI), SI
	LEAQ	8(DI), DI
	DECQ	R8
	JNE	word3
	ADCQ	$0, DX
	ADCQ	$0, DX

join:
	MOVQ	shift+40(FP), R8
	JOIN
	LEAQ	(SI)(BX*2), SI
	LEAQ	(DI)(BX*2), DI

rest:
	MOVQ	n+16(FP), CX
	LEAQ	(BX)(BX*2), BX
	SUBQ	BX, CX
	SUBQ	$8, CX
	JLT	last

word:
	MOVQ	(SI), R9
	MOVQ	R9, (DI)
	CRC32Q	R9, AX
	ADDQ	R9, DX
	ADCQ	$0, DX
	ADDQ	$8, SI
	ADDQ	$8, DI
	SUBQ	$8, CX
	JGE	word

last:
	TESTQ	$4, CX
	JEQ	two
	MOVL	(SI), R9
	MOVL	R9, (DI)
	CRC32L	R9, AX
	ADDQ	R9, DX
	ADCQ	$0, DX
	ADDQ	$4, SI
	ADDQ	$4, DI

two:
	TESTQ	$2, CX
	JEQ	one
	MOVWLZX	(SI), R9
	MOVW	R9, (DI)
	CRC32W	R9, AX
	ADDQ	R9, DX
	ADCQ	$0, DX
	ADDQ	$2, SI
	ADDQ	$2, DI

one:
	TESTQ	$1, CX
	JEQ	done
	MOVBLZX	(SI), R9
	MOVB	R9, (DI)
	CRC32B	R9, AX
	ADDQ	R9, DX
	ADCQ	$0, DX

done:
	MOVL	AX, ret+64(FP)
	MOVQ	DX, ret1+72(FP)
	RET

// func prefetchLines(p *byte, n int)
TEXT ·prefetchLines(SB), NOSPLIT, $0-16
	MOVQ	p+0(FP), SI
	MOVQ	n+8(FP), CX

line:
	PREFETCHT0	(SI)
	LEAQ	64(SI), SI
	SUBQ	$64, CX
	JGT	line
	RET
