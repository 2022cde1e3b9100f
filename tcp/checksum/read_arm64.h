// The body of sumLanes and crcLanes: R0 is src, R6 n, R7 words, R8 the CRC register. R22 points to the table shift.

	LSL	$3, R7, R21
	CBZ	R7, rest
	LANES(R0, R1, R2)
	MOVD	ZR, R9
	MOVD	ZR, R10

lanes:
	LOAD6
	TAKE6
	SUB	$2, R7
	CBNZ	R7, lanes
	JOIN
	MOVD	R2, R0
	ADD	R21<<1, R21
	SUB	R21, R6

rest:
	LSR	$4, R6, R7
	CBZ	R7, eight

sixteen:
	LDP.P	16(R0), (R12, R13)
	TAKE2
	SUB	$1, R7
	CBNZ	R7, sixteen

eight:
	TBZ	$3, R6, four
	MOVD.P	8(R0), R12
	CRC32CX	R12, R8
	SUM(R12)

four:
	TBZ	$2, R6, two
	MOVWU.P	4(R0), R12
	CRC32CW	R12, R8
	SUM(R12)

two:
	TBZ	$1, R6, one
	MOVHU.P	2(R0), R12
	CRC32CH	R12, R8
	SUM(R12)

one:
	TBZ	$0, R6, done
	MOVBU	(R0), R12
	CRC32CB	R12, R8
	SUM(R12)

done:
