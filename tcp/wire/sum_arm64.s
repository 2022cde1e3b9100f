#include "textflag.h"

// func sumBlocks(p *byte, n int) uint64
//
// 32-bit words are added in lanes of 64 bits: no carry is lost below 2^32 words.
TEXT ·sumBlocks(SB), NOSPLIT, $0-24
	MOVD	p+0(FP), R0
	MOVD	n+8(FP), R1
	VEOR	V4.B16, V4.B16, V4.B16
	VEOR	V5.B16, V5.B16, V5.B16
	VEOR	V6.B16, V6.B16, V6.B16
	VEOR	V7.B16, V7.B16, V7.B16
	LSR	$6, R1, R2

lines:
	VLD1.P	64(R0), [V0.S4, V1.S4, V2.S4, V3.S4]
	VUADDW	V0.S2, V4.D2, V4.D2
	VUADDW2	V0.S4, V5.D2, V5.D2
	VUADDW	V1.S2, V6.D2, V6.D2
	VUADDW2	V1.S4, V7.D2, V7.D2
	VUADDW	V2.S2, V4.D2, V4.D2
	VUADDW2	V2.S4, V5.D2, V5.D2
	VUADDW	V3.S2, V6.D2, V6.D2
	VUADDW2	V3.S4, V7.D2, V7.D2
	SUB	$1, R2
	CBNZ	R2, lines
	ANDS	$63, R1
	BEQ	done

block:
	VLD1.P	16(R0), [V0.S4]
	VUADDW	V0.S2, V4.D2, V4.D2
	VUADDW2	V0.S4, V5.D2, V5.D2
	SUBS	$16, R1
	BNE	block

done:
	VADD	V5.D2, V4.D2, V4.D2
	VADD	V7.D2, V6.D2, V6.D2
	VADD	V6.D2, V4.D2, V4.D2
	VADDP	V4.D2, V4.D2, V4.D2
	FMOVD	F4, R2
	MOVD	R2, ret+16(FP)
	RET
