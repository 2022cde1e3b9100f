#include "textflag.h"

// func sumBlocks(p *byte, n int) uint64
//
// 32-bit words are added in lanes of 64 bits, the low and the high half of each 64-bit word separately. No carry is
// lost below 2^32 words.
TEXT ·sumBlocks(SB), NOSPLIT, $0-24
	MOVQ	p+0(FP), SI
	MOVQ	n+8(FP), CX
	VPCMPEQD	Y4, Y4, Y4
	VPSRLQ	$32, Y4, Y4
	VPXOR	Y8, Y8, Y8
	VPXOR	Y9, Y9, Y9
	VPXOR	Y10, Y10, Y10
	VPXOR	Y11, Y11, Y11

loop:
	VMOVDQU	(SI), Y0
	VMOVDQU	32(SI), Y1
	VMOVDQU	64(SI), Y2
	VMOVDQU	96(SI), Y3
	VPAND	Y4, Y0, Y5
	VPSRLQ	$32, Y0, Y0
	VPADDQ	Y5, Y8, Y8
	VPADDQ	Y0, Y9, Y9
	VPAND	Y4, Y1, Y6
	VPSRLQ	$32, Y1, Y1
	VPADDQ	Y6, Y10, Y10
	VPADDQ	Y1, Y11, Y11
	VPAND	Y4, Y2, Y7
	VPSRLQ	$32, Y2, Y2
	VPADDQ	Y7, Y8, Y8
	VPADDQ	Y2, Y9, Y9
	VPAND	Y4, Y3, Y12
	VPSRLQ	$32, Y3, Y3
	VPADDQ	Y12, Y10, Y10
	VPADDQ	Y3, Y11, Y11
	ADDQ	$128, SI
	SUBQ	$128, CX
	JNE	loop

	VPADDQ	Y9, Y8, Y8
	VPADDQ	Y11, Y10, Y10
	VPADDQ	Y10, Y8, Y8
	VEXTRACTI128	$1, Y8, X9
	VPADDQ	X9, X8, X8
	VPSHUFD	$0x4e, X8, X9
	VPADDQ	X9, X8, X8
	VMOVQ	X8, AX
	VZEROUPPER
	MOVQ	AX, ret+16(FP)
	RET

// func hasAVX2() bool
//
// hasAVX2 reports whether the processor has AVX2 (leaf 7, EBX bit 5) and the operating system saves its registers (leaf
// 1, ECX bits 27 and 28; XCR0 bits 1 and 2).
TEXT ·hasAVX2(SB), NOSPLIT, $0-1
	MOVB	$0, ret+0(FP)
	XORL	AX, AX
	CPUID
	CMPL	AX, $7
	JLT	no
	MOVL	$1, AX
	XORL	CX, CX
	CPUID
	ANDL	$0x18000000, CX
	CMPL	CX, $0x18000000
	JNE	no
	XORL	CX, CX
	XGETBV
	ANDL	$6, AX
	CMPL	AX, $6
	JNE	no
	MOVL	$7, AX
	XORL	CX, CX
	CPUID
	SHRL	$5, BX
	ANDL	$1, BX
	MOVB	BX, ret+0(FP)
no:
	RET
