// LOAD and STORE copy 64 bytes of one lane in 16-byte registers: stores of single words would fill the store buffer
// while the destination is fetched.
#define LOAD(from) \
	MOVOU	0 from, X4; \
	MOVOU	16 from, X5; \
	MOVOU	32 from, X6; \
	MOVOU	48 from, X7

#define STORE(to) \
	MOVOU	X4, 0 to; \
	MOVOU	X5, 16 to; \
	MOVOU	X6, 32 to; \
	MOVOU	X7, 48 to

#define MOVE(from, to) \
	LOAD(from); \
	STORE(to)

// TAKE adds the word at offset d of each lane to the CRC and the sum. It reads the destination, not the source: the CRC
// must be that of the written bytes even if an application changes the source meanwhile.
#define TAKE(d) \
	CRC32Q	d(DI), AX; \
	ADCQ	d(DI), DX; \
	CRC32Q	d(DI)(BX*1), R13; \
	ADCQ	d(DI)(BX*1), DX; \
	CRC32Q	d(DI)(BX*2), CX; \
	ADCQ	d(DI)(BX*2), DX

// JOIN combines the CRC registers AX, R13 and CX of three lanes of BX bytes in AX. R8 points to the table shift.
#define JOIN \
	MOVQ	(R8)(BX*1), X1; \
	MOVQ	(R8)(BX*2), X2; \
	MOVL	AX, AX; \
	MOVQ	AX, X0; \
	MOVL	R13, R13; \
	MOVQ	R13, X3; \
	PCLMULQDQ	$0, X2, X0; \
	PCLMULQDQ	$0, X1, X3; \
	PXOR	X3, X0; \
	MOVQ	X0, R9; \
	XORL	AX, AX; \
	CRC32Q	R9, AX; \
	XORL	CX, AX
