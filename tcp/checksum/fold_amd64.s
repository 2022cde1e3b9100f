#include "textflag.h"

// The CRC of the bytes so far is kept folded: Z0 to Z3 hold a polynomial with the same remainder as all these bytes.
// Two carry-less products move each register on by 256 bytes. Z6 to Z9 hold the factors for 256, 64, 128 and 192 bytes.
// Z13 holds the initial CRC register, until FIRST adds it to the first bytes. The sum is kept in lanes of 64 bits: Z11
// sums the low and Z12 the high halves of all words. 2^32 lines do not overflow them.

// FOLD moves acc on by the distance of the factors k and adds (by XOR) the bytes of line.
#define FOLD(acc, k, line) \
	VPCLMULQDQ	$0x00, k, acc, Z5; \
	VPCLMULQDQ	$0x11, k, acc, acc; \
	VPTERNLOGQ	$0x96, line, Z5, acc

// JOIN moves acc on by the distance of the factors k and adds it to Z3.
#define JOIN(acc, k) \
	VPCLMULQDQ	$0x00, k, acc, Z5; \
	VPCLMULQDQ	$0x11, k, acc, acc; \
	VPTERNLOGQ	$0x96, acc, Z5, Z3

// ADD adds the words of line to the sum; Z10 is the mask of the low halves.
#define ADD(line) \
	VPANDQ	Z10, line, Z5; \
	VPADDQ	Z5, Z11, Z11; \
	VPSRLQ	$32, line, Z5; \
	VPADDQ	Z5, Z12, Z12

#define TAKE(acc, k) \
	FOLD(acc, k, Z4); \
	ADD(Z4)

// BEGIN initializes the registers. AX is the CRC register; R8 points to the factors.
#define BEGIN \
	VMOVD	AX, X13; \
	VBROADCASTI32X4	0(R8), Z6; \
	VBROADCASTI32X4	16(R8), Z7; \
	VBROADCASTI32X4	32(R8), Z8; \
	VBROADCASTI32X4	48(R8), Z9; \
	VPTERNLOGQ	$0xff, Z10, Z10, Z10; \
	VPSRLQ	$32, Z10, Z10; \
	VPXORQ	Z11, Z11, Z11; \
	VPXORQ	Z12, Z12, Z12; \
	VPXORQ	Z0, Z0, Z0; \
	VPXORQ	Z1, Z1, Z1; \
	VPXORQ	Z2, Z2, Z2; \
	VPXORQ	Z3, Z3, Z3

// FIRST adds the initial CRC register to the first bytes. Further uses add zero.
#define FIRST \
	VPXORQ	Z13, Z0, Z0; \
	VPXORQ	Z13, Z13, Z13

// QUARTERS combines the four registers in Z3.
#define QUARTERS \
	JOIN(Z0, Z9); \
	JOIN(Z1, Z8); \
	JOIN(Z2, Z7)

// END reduces Z3 to the CRC register in AX, and adds the sum to DX. It uses 64 bytes at SP.
#define END \
	VMOVDQU64	Z3, 0(SP); \
	XORL	AX, AX; \
	CRC32Q	0(SP), AX; \
	CRC32Q	8(SP), AX; \
	CRC32Q	16(SP), AX; \
	CRC32Q	24(SP), AX; \
	CRC32Q	32(SP), AX; \
	CRC32Q	40(SP), AX; \
	CRC32Q	48(SP), AX; \
	CRC32Q	56(SP), AX; \
	VEXTRACTI64X4	$1, Z11, Y0; \
	VPADDQ	Y0, Y11, Y11; \
	VEXTRACTI64X4	$1, Z12, Y1; \
	VPADDQ	Y1, Y12, Y12; \
	VPUNPCKLQDQ	Y12, Y11, Y0; \
	VPUNPCKHQDQ	Y12, Y11, Y1; \
	VPADDQ	Y1, Y0, Y0; \
	VEXTRACTI128	$1, Y0, X1; \
	VPADDQ	X1, X0, X0; \
	VMOVQ	X0, R9; \
	VPEXTRQ	$1, X0, R10; \
	VZEROUPPER; \
	ROLQ	$32, R10; \
	ADDQ	R9, DX; \
	ADCQ	R10, DX; \
	ADCQ	$0, DX

// STORE4 copies four lines, adds them to the CRC and the sum, and advances the pointers. Z4 holds the first line.
#define STORE4 \
	PREFETCHT0	(R12); \
	PREFETCHT0	64(R12); \
	PREFETCHT0	128(R12); \
	PREFETCHT0	192(R12); \
	VMOVDQU64	Z4, (DI); \
	TAKE(Z0, Z6); \
	FIRST; \
	VMOVDQU64	64(SI), Z4; \
	VMOVDQU64	Z4, 64(DI); \
	TAKE(Z1, Z6); \
	VMOVDQU64	128(SI), Z4; \
	VMOVDQU64	Z4, 128(DI); \
	TAKE(Z2, Z6); \
	VMOVDQU64	192(SI), Z4; \
	VMOVDQU64	Z4, 192(DI); \
	TAKE(Z3, Z6); \
	ADDQ	$256, SI; \
	ADDQ	$256, DI; \
	ADDQ	$256, R12

// func foldSum(src *byte, lines int, k *factors, crc uint32, sum uint64) (uint32, uint64)
TEXT ·foldSum(SB), NOSPLIT, $64-56
	MOVQ	src+0(FP), SI
	MOVQ	lines+8(FP), CX
	MOVQ	k+16(FP), R8
	MOVL	crc+24(FP), AX
	MOVQ	sum+32(FP), DX
	BEGIN
	SUBQ	$4, CX

four:
	VMOVDQU64	(SI), Z4
	TAKE(Z0, Z6)
	FIRST
	VMOVDQU64	64(SI), Z4
	TAKE(Z1, Z6)
	VMOVDQU64	128(SI), Z4
	TAKE(Z2, Z6)
	VMOVDQU64	192(SI), Z4
	TAKE(Z3, Z6)
	ADDQ	$256, SI
	SUBQ	$4, CX
	JGE	four
	QUARTERS
	ADDQ	$4, CX
	JEQ	done

one:
	VMOVDQU64	(SI), Z4
	TAKE(Z3, Z7)
	ADDQ	$64, SI
	DECQ	CX
	JNE	one

done:
	END
	MOVL	AX, ret+40(FP)
	MOVQ	DX, ret1+48(FP)
	RET

// func foldCopy(dst, src *byte, lines, ahead int, k *factors, crc uint32, sum uint64) (uint32, uint64)
//
// Each line of src is read only once, so the CRC is that of the written bytes even if an application changes src
// meanwhile.
TEXT ·foldCopy(SB), NOSPLIT, $64-72
	MOVQ	dst+0(FP), DI
	MOVQ	src+8(FP), SI
	MOVQ	lines+16(FP), CX
	MOVQ	ahead+24(FP), R12
	MOVQ	k+32(FP), R8
	MOVL	crc+40(FP), AX
	MOVQ	sum+48(FP), DX
	LEAQ	(SI)(R12*1), R12
	BEGIN
	SUBQ	$4, CX

four:
	VMOVDQU64	(SI), Z4
	STORE4
	SUBQ	$4, CX
	JGE	four
	QUARTERS
	ADDQ	$4, CX
	JEQ	done

one:
	PREFETCHT0	(R12)
	VMOVDQU64	(SI), Z4
	VMOVDQU64	Z4, (DI)
	TAKE(Z3, Z7)
	ADDQ	$64, SI
	ADDQ	$64, DI
	ADDQ	$64, R12
	DECQ	CX
	JNE	one

done:
	END
	MOVL	AX, ret+56(FP)
	MOVQ	DX, ret1+64(FP)
	RET

// func foldMarked(dst, src *byte, blocks, ahead int, mark uint32, k *factors, crc uint32, sum uint64) (uint32, uint64)
//
// R11 is the next marker. The first line of a block is read from four bytes in front of its bytes, and the marker
// replaces these four. So source and destination both advance by whole lines.
TEXT ·foldMarked(SB), NOSPLIT, $64-80
	MOVQ	dst+0(FP), DI
	MOVQ	src+8(FP), SI
	MOVQ	blocks+16(FP), CX
	MOVQ	ahead+24(FP), R12
	MOVL	mark+32(FP), R11
	MOVQ	k+40(FP), R8
	MOVL	crc+48(FP), AX
	MOVQ	sum+56(FP), DX
	LEAQ	(SI)(R12*1), R12
	BEGIN
	MOVL	$1, R9
	KMOVW	R9, K1

block:
	MOVL	R11, R9
	BSWAPL	R9
	VMOVDQU64	(SI), Z4
	VPBROADCASTD	R9, K1, Z4
	MOVL	$2, BX
	JMP	store

half:
	VMOVDQU64	(SI), Z4

store:
	STORE4
	DECQ	BX
	JNE	half
	SUBQ	$4, SI
	SUBQ	$4, R12
	ADDL	$512, R11
	DECQ	CX
	JNE	block
	QUARTERS
	END
	MOVL	AX, ret+64(FP)
	MOVQ	DX, ret1+72(FP)
	RET
