#include "go_asm.h"
#include "textflag.h"

// AES-GCM (NIST SP 800-38D) by 256 bytes: the 16 counter blocks of a pass are encrypted in Z0 to Z3, while the 16 blocks
// of cipher text of the pass before are multiplied by H^16 to H and added up, with one reduction. Bits of a block go in
// the reverse order in a register once its bytes do, so that carry-less products need no further reversal (Gueron and
// Kounavis, "Intel Carry-Less Multiplication Instruction and its Usage for Computing the GCM Mode").
//
//	Z0-Z3	counter blocks, key stream
//	Z4	hash so far, in the lowest block
//	Z5-Z7	sum of products: low, middle and high part
//	Z8	64 bytes of src
//	Z9	next four counters, reversed
//	Z10	order of bytes of a reversed block
//	Z11-Z14	blocks that are not hashed yet, reversed, for the powers at R10
//	Z15,Z31	products
//	Z16-Z29	round keys, and Z30 the last one
//	K7	all bits when src is cipher text

DATA gcmReverse<>+0(SB)/8, $0x08090a0b0c0d0e0f
DATA gcmReverse<>+8(SB)/8, $0x0001020304050607
GLOBL gcmReverse<>(SB), RODATA|NOPTR, $16

// The counters that follow J0, and what they advance by.
DATA gcmFirst<>+0(SB)/8, $1
DATA gcmFirst<>+8(SB)/8, $0
DATA gcmFirst<>+16(SB)/8, $2
DATA gcmFirst<>+24(SB)/8, $0
DATA gcmFirst<>+32(SB)/8, $3
DATA gcmFirst<>+40(SB)/8, $0
DATA gcmFirst<>+48(SB)/8, $4
DATA gcmFirst<>+56(SB)/8, $0
GLOBL gcmFirst<>(SB), RODATA|NOPTR, $64

DATA gcmStep<>+0(SB)/8, $4
DATA gcmStep<>+8(SB)/8, $0
DATA gcmStep<>+16(SB)/8, $4
DATA gcmStep<>+24(SB)/8, $0
DATA gcmStep<>+32(SB)/8, $4
DATA gcmStep<>+40(SB)/8, $0
DATA gcmStep<>+48(SB)/8, $4
DATA gcmStep<>+56(SB)/8, $0
GLOBL gcmStep<>(SB), RODATA|NOPTR, $64

// The polynomial, for the reduction.
DATA gcmPoly<>+0(SB)/8, $0xc200000000000000
DATA gcmPoly<>+8(SB)/8, $0
DATA gcmPoly<>+16(SB)/8, $0xc200000000000000
DATA gcmPoly<>+24(SB)/8, $0
DATA gcmPoly<>+32(SB)/8, $0xc200000000000000
DATA gcmPoly<>+40(SB)/8, $0
DATA gcmPoly<>+48(SB)/8, $0xc200000000000000
DATA gcmPoly<>+56(SB)/8, $0
GLOBL gcmPoly<>(SB), RODATA|NOPTR, $64

// Where H^16 and H are in wideGCM.
#define H16	(wideGCM_powers+16)
#define H1	(wideGCM_powers+256)

#define EACH(op, key) \
	op	key, Z0, Z0; \
	op	key, Z1, Z1; \
	op	key, Z2, Z2; \
	op	key, Z3, Z3

// COUNTER makes block the next four counter blocks.
#define COUNTER(block) \
	VPSHUFB	Z10, Z9, block; \
	VPADDD	gcmStep<>(SB), Z9, Z9

// FIRST makes the sum the products of four blocks and the powers at at(R10).
#define FIRST(block, at) \
	VPCLMULQDQ	$0x00, at(R10), block, Z5; \
	VPCLMULQDQ	$0x01, at(R10), block, Z6; \
	VPCLMULQDQ	$0x10, at(R10), block, Z15; \
	VPCLMULQDQ	$0x11, at(R10), block, Z7; \
	VPXORQ	Z15, Z6, Z6

// MULTIPLY adds the products of four blocks and the powers at at(R10) to the sum.
#define MULTIPLY(block, at) \
	VPCLMULQDQ	$0x00, at(R10), block, Z15; \
	VPXORQ	Z15, Z5, Z5; \
	VPCLMULQDQ	$0x11, at(R10), block, Z15; \
	VPXORQ	Z15, Z7, Z7; \
	VPCLMULQDQ	$0x01, at(R10), block, Z15; \
	VPCLMULQDQ	$0x10, at(R10), block, Z31; \
	VPTERNLOGQ	$0x96, Z15, Z31, Z6

// MULTIPLY2 is MULTIPLY of two times four blocks.
#define MULTIPLY2(one, at, two, att) \
	VPCLMULQDQ	$0x00, at(R10), one, Z15; \
	VPCLMULQDQ	$0x00, att(R10), two, Z31; \
	VPTERNLOGQ	$0x96, Z15, Z31, Z5; \
	VPCLMULQDQ	$0x11, at(R10), one, Z15; \
	VPCLMULQDQ	$0x11, att(R10), two, Z31; \
	VPTERNLOGQ	$0x96, Z15, Z31, Z7; \
	VPCLMULQDQ	$0x01, at(R10), one, Z15; \
	VPCLMULQDQ	$0x10, at(R10), one, Z31; \
	VPTERNLOGQ	$0x96, Z15, Z31, Z6; \
	VPCLMULQDQ	$0x01, att(R10), two, Z15; \
	VPCLMULQDQ	$0x10, att(R10), two, Z31; \
	VPTERNLOGQ	$0x96, Z15, Z31, Z6

// REDUCE makes Z4 the remainder of the sum. The lowest word has the highest powers: it leaves its product with the
// polynomial one word higher, and itself two. The next word does the same. The four sums are joined at the end.
#define REDUCE \
	VPCLMULQDQ	$0x00, gcmPoly<>(SB), Z5, Z15; \
	VPSHUFD	$0x4e, Z5, Z5; \
	VPTERNLOGQ	$0x96, Z15, Z5, Z6; \
	VPCLMULQDQ	$0x00, gcmPoly<>(SB), Z6, Z15; \
	VPSHUFD	$0x4e, Z6, Z6; \
	VPTERNLOGQ	$0x96, Z15, Z6, Z7; \
	VEXTRACTI64X4	$1, Z7, Y5; \
	VPXOR	Y5, Y7, Y7; \
	VEXTRACTI128	$1, Y7, X5; \
	VPXOR	X5, X7, X4

// KEYSTREAM encrypts the next 16 counter blocks and hashes Z11 to Z14: instructions of the one run while those of the
// other wait for results. R9 is the number of rounds.
#define KEYSTREAM(last) \
	COUNTER(Z0); \
	COUNTER(Z1); \
	COUNTER(Z2); \
	COUNTER(Z3); \
	EACH(VPXORQ, Z16); \
	EACH(VAESENC, Z17); \
	FIRST(Z12, 64); \
	EACH(VAESENC, Z18); \
	EACH(VAESENC, Z19); \
	EACH(VAESENC, Z20); \
	MULTIPLY2(Z13, 128, Z14, 192); \
	EACH(VAESENC, Z21); \
	EACH(VAESENC, Z22); \
	EACH(VAESENC, Z23); \
	VPXORQ	Z4, Z11, Z11; \
	MULTIPLY(Z11, 0); \
	EACH(VAESENC, Z24); \
	EACH(VAESENC, Z25); \
	REDUCE; \
	CMPQ	R9, $10; \
	JEQ	last; \
	EACH(VAESENC, Z26); \
	EACH(VAESENC, Z27); \
	EACH(VAESENC, Z28); \
	EACH(VAESENC, Z29); \
last: \
	EACH(VAESENCLAST, Z30)

// LINE encrypts 64 bytes with a key stream, and makes block the cipher text, reversed.
#define LINE(stream, at, block) \
	VMOVDQU64	at(SI), Z8; \
	VPXORQ	Z8, stream, stream; \
	VMOVDQU64	stream, at(DI); \
	VMOVDQA64	Z8, K7, stream; \
	VPSHUFB	Z10, stream, block

// PART is LINE for the bytes in mask. It neither reads nor writes others, and block has zeros for them.
#define PART(stream, at, mask, block) \
	VMOVDQU8.Z	at(SI), mask, Z8; \
	VPXORQ	Z8, stream, stream; \
	VMOVDQU8	stream, mask, at(DI); \
	VMOVDQU8.Z	stream, mask, stream; \
	VMOVDQA64	Z8, K7, stream; \
	VPSHUFB	Z10, stream, block

// MASK sets a bit of mask for each of the next 64 bytes that is among the CX bytes left, and takes them from CX.
#define MASK(mask) \
	BZHIQ	CX, R12, BX; \
	KMOVQ	BX, mask; \
	SUBQ	$64, CX; \
	CMOVQLT	R11, CX

// func gcmCrypt(k *wideGCM, low, high uint64, aad *byte, aadLen int, dst, src *byte, n int, open uint64,
//	tag *[ICVLen]byte)
TEXT ·gcmCrypt(SB), NOSPLIT, $0-80
	MOVQ	k+0(FP), R8
	MOVQ	aad+24(FP), AX
	MOVQ	aadLen+32(FP), DX
	MOVQ	dst+40(FP), DI
	MOVQ	src+48(FP), SI
	MOVQ	n+56(FP), CX
	KMOVQ	open+64(FP), K7
	MOVQ	wideGCM_rounds(R8), R9
	XORL	R11, R11
	MOVQ	$-1, R12
	VBROADCASTI32X4	gcmReverse<>(SB), Z10
	VMOVQ	low+8(FP), X9
	VPINSRQ	$1, high+16(FP), X9, X9
	VPSHUFB	X10, X9, X9
	VSHUFI32X4	$0, Z9, Z9, Z9
	VPADDD	gcmFirst<>(SB), Z9, Z9
	VBROADCASTI32X4	0(R8), Z16
	VBROADCASTI32X4	16(R8), Z17
	VBROADCASTI32X4	32(R8), Z18
	VBROADCASTI32X4	48(R8), Z19
	VBROADCASTI32X4	64(R8), Z20
	VBROADCASTI32X4	80(R8), Z21
	VBROADCASTI32X4	96(R8), Z22
	VBROADCASTI32X4	112(R8), Z23
	VBROADCASTI32X4	128(R8), Z24
	VBROADCASTI32X4	144(R8), Z25
	VBROADCASTI32X4	160(R8), Z26
	VBROADCASTI32X4	176(R8), Z27
	VBROADCASTI32X4	192(R8), Z28
	VBROADCASTI32X4	208(R8), Z29
	VBROADCASTI32X4	224(R8), Z30

	// The first block to hash is the associated data, with zeros behind.
	BZHIQ	DX, R12, BX
	KMOVQ	BX, K1
	VMOVDQU8.Z	(AX), K1, X11
	VPSHUFB	X10, X11, X11
	VPXORQ	Z12, Z12, Z12
	VPXORQ	Z13, Z13, Z13
	VPXORQ	Z14, Z14, Z14
	VPXORQ	Z4, Z4, Z4
	LEAQ	H1(R8), R10
	SUBQ	$256, CX
	JLT	tail

pass:
	KEYSTREAM(lastOfPass)
	LINE(Z0, 0, Z11)
	LINE(Z1, 64, Z12)
	LINE(Z2, 128, Z13)
	LINE(Z3, 192, Z14)
	LEAQ	H16(R8), R10
	ADDQ	$256, SI
	ADDQ	$256, DI
	SUBQ	$256, CX
	JGE	pass

tail:
	// The last 0 to 255 bytes are b blocks, of which the first is multiplied by H^(b+1), and the block of lengths by H.
	ADDQ	$256, CX
	LEAQ	15(CX), R13
	ANDQ	$-16, R13
	MASK(K1)
	MASK(K2)
	MASK(K3)
	MASK(K4)
	KEYSTREAM(lastOfTail)
	PART(Z0, 0, K1, Z11)
	PART(Z1, 64, K2, Z12)
	PART(Z2, 128, K3, Z13)
	PART(Z3, 192, K4, Z14)
	LEAQ	H1(R8), R10
	MOVQ	n+56(FP), CX
	SHLQ	$3, CX
	SHLQ	$3, DX
	VMOVQ	CX, X0
	VPINSRQ	$1, DX, X0, X0
	FIRST(Z0, 0)
	SUBQ	R13, R10
	VPXORQ	Z4, Z11, Z11
	MULTIPLY(Z11, 0)
	CMPQ	R13, $64
	JLE	hashed
	MULTIPLY(Z12, 64)
	CMPQ	R13, $128
	JLE	hashed
	MULTIPLY2(Z13, 128, Z14, 192)

hashed:
	// The tag is the hash and encrypted J0.
	VMOVQ	low+8(FP), X0
	VPINSRQ	$1, high+16(FP), X0, X0
	VPXORQ	X16, X0, X0
	VAESENC	X17, X0, X0
	VAESENC	X18, X0, X0
	VAESENC	X19, X0, X0
	VAESENC	X20, X0, X0
	VAESENC	X21, X0, X0
	VAESENC	X22, X0, X0
	VAESENC	X23, X0, X0
	VAESENC	X24, X0, X0
	VAESENC	X25, X0, X0
	CMPQ	R9, $10
	JEQ	lastOfJ0
	VAESENC	X26, X0, X0
	VAESENC	X27, X0, X0
	VAESENC	X28, X0, X0
	VAESENC	X29, X0, X0

lastOfJ0:
	VAESENCLAST	X30, X0, X0
	REDUCE
	VPSHUFB	X10, X4, X4
	VPXOR	X0, X4, X4
	MOVQ	tag+72(FP), AX
	VMOVDQU	X4, (AX)

	// Other code soon overwrites X0 to X15, but not these registers: no keys stay in them.
	VPXORQ	X16, X16, X16
	VPXORQ	X17, X17, X17
	VPXORQ	X18, X18, X18
	VPXORQ	X19, X19, X19
	VPXORQ	X20, X20, X20
	VPXORQ	X21, X21, X21
	VPXORQ	X22, X22, X22
	VPXORQ	X23, X23, X23
	VPXORQ	X24, X24, X24
	VPXORQ	X25, X25, X25
	VPXORQ	X26, X26, X26
	VPXORQ	X27, X27, X27
	VPXORQ	X28, X28, X28
	VPXORQ	X29, X29, X29
	VPXORQ	X30, X30, X30
	VZEROUPPER
	RET

// func subWord(w uint32) uint32
TEXT ·subWord(SB), NOSPLIT, $0-12
	MOVL	w+0(FP), AX
	MOVQ	AX, X0
	PSHUFL	$0, X0, X0
	AESKEYGENASSIST	$0, X0, X0
	MOVQ	X0, AX
	MOVL	AX, ret+8(FP)
	RET
