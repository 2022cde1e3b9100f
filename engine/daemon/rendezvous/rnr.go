package rendezvous

import "time"

// rnrUnits are the times of IBV_QP_MIN_RNR_TIMER in units of 10 microseconds.
var rnrUnits = [32]int32{65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384,
	512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152}

// RNRWait returns how long a message waits for a receive of a peer with the given IBV_QP_MIN_RNR_TIMER if it is resent
// retries times. It is at least RNRGrace.
func RNRWait(timer uint8, retries int) time.Duration {
	wait := time.Duration(retries) * time.Duration(rnrUnits[timer&31]) * 10 * time.Microsecond
	return max(wait, RNRGrace)
}
