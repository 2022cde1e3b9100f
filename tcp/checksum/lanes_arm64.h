// SUM adds a word to the sum in R11. The carry flag holds the sum's carry throughout a function, in which nothing else
// sets flags. crcLanes redefines SUM to do nothing.
#define SUM(word)	ADCS	word, R11

// LOAD6 loads two words of each lane, and STORE6 stores them.
#define LOAD6 \
	LDP.P	16(R0), (R12, R13); \
	LDP.P	16(R1), (R14, R15); \
	LDP.P	16(R2), (R19, R20)

#define STORE6 \
	STP.P	(R12, R13), 16(R3); \
	STP.P	(R14, R15), 16(R4); \
	STP.P	(R19, R20), 16(R5)

// TAKE6 adds two words of each lane to the CRC and the sum. CRC32CX has a latency of two or three cycles and a
// throughput of one: three lanes keep it busy.
#define TAKE6 \
	CRC32CX	R12, R8; \
	SUM(R12); \
	CRC32CX	R14, R9; \
	SUM(R14); \
	CRC32CX	R19, R10; \
	SUM(R19); \
	CRC32CX	R13, R8; \
	SUM(R13); \
	CRC32CX	R15, R9; \
	SUM(R15); \
	CRC32CX	R20, R10; \
	SUM(R20)

// TAKE2 adds two words behind the lanes to the CRC and the sum.
#define TAKE2 \
	CRC32CX	R12, R8; \
	SUM(R12); \
	CRC32CX	R13, R8; \
	SUM(R13)

// LANES sets p2 and p3 to the second and third of the lanes of R21 bytes that begin at p1.
#define LANES(p1, p2, p3) \
	ADD	R21, p1, p2; \
	ADD	R21, p2, p3

// JOIN combines the CRC registers R8, R9 and R10 of three lanes of R21 bytes in R8. R22 points to the table shift.
#define JOIN \
	FMOVD	(R22)(R21), F1; \
	ADD	R21, R22; \
	FMOVD	(R22)(R21), F2; \
	FMOVD	R8, F0; \
	FMOVD	R9, F3; \
	VPMULL	V2.D1, V0.D1, V0.Q1; \
	VPMULL	V1.D1, V3.D1, V3.Q1; \
	VEOR	V3.B16, V0.B16, V0.B16; \
	FMOVD	F0, R12; \
	MOVD	ZR, R8; \
	CRC32CX	R12, R8; \
	EORW	R10, R8
