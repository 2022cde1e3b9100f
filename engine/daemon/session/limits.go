package session

import "time"

// Limits, each with what it stops.
const (
	// batchSize is the number of entries of one work queue that are moved before the next queue has its turn: a busy
	// queue pair must not starve the others of its program.
	batchSize = 64
	// idleSpins is how often an idle pump yields before it sleeps. Work that follows shortly needs no system call then.
	idleSpins = 16
	// stallPause is how long a pump waits when the engine's queues are full.
	stallPause = 100 * time.Microsecond
	// maxShortStalls is the number of such waits in a row before the pump waits for the doorbell instead, with
	// timeouts that double up to maxStallPause: a program whose peer takes nothing must not keep a processor busy.
	maxShortStalls = 4
	maxStallPause  = 10 * time.Millisecond
	// A bell that rings adds 1 to pumpDebt, one that ends the pump's sleep wakePenalty, a request that fails
	// failPenalty. Each batch that was posted subtracts batchCredit. From maxPumpDebt on the pump pauses for debtPause
	// each, at most maxDebtPause: a program that rings without work, or whose requests are refused, costs the daemon
	// some hundredths of a processor.
	wakePenalty  = 32
	failPenalty  = 128
	batchCredit  = 128
	maxPumpDebt  = 512
	debtPause    = 16 * time.Microsecond
	maxDebtPause = 20 * time.Millisecond
	// closeWait is how long the close of a program's descriptors may take before its session ends.
	closeWait = time.Second
	// refillSpins is how often a worker looks whether the pump has finished its batch, when a message finds no
	// receive. The message waits for the pump then, and the worker serves other programs.
	refillSpins = 64
	// lingerWait is how long the deregistration of a region waits for queue pairs that are ending. It tries again
	// every lingerPause.
	lingerWait  = 500 * time.Millisecond
	lingerPause = 2 * time.Millisecond
	// maxClosers is the number of queue pairs of a session that ended which are closed at a time.
	maxClosers = 32
	// helloTimeout is how long a program may be connected without a hello.
	helloTimeout = 5 * time.Second
	// deadSessionWait is how long a new program waits for the release of sessions of its user whose programs died. A
	// session that is never released keeps no program out.
	deadSessionWait = 3 * time.Second
)

// destroyWait is how long a program waits for the end of a queue pair before it gets errStuck. Tests shorten it.
var destroyWait = 10 * time.Second
