package session

import "time"

// Limits of a session.
const (
	// batchSize is the number of entries of one work queue moved before the next queue gets its turn, so that a busy
	// queue pair does not starve the others of its program.
	batchSize = 64
	// idleSpins is how often an idle pump yields before it sleeps. Work that follows soon then needs no system call.
	idleSpins = 16
	// stallPause is how long a pump waits if the engine's queues are full.
	stallPause = 100 * time.Microsecond
	// maxShortStalls is the number of consecutive such waits before the pump waits for the doorbell instead, with
	// timeouts that double up to maxStallPause: a program whose peer accepts nothing must not occupy a CPU.
	maxShortStalls = 4
	maxStallPause  = 10 * time.Millisecond
	// A doorbell adds 1 to pumpDebt, and one that wakes the pump adds wakePenalty. Each posted batch subtracts
	// batchCredit. Once the debt is maxPumpDebt or more, the pump pauses for debtPause per unit of debt, at most
	// maxDebtPause, and the debt is 0 again. So a program that rings without work costs the daemon a few percent of a
	// CPU.
	wakePenalty  = 32
	batchCredit  = 128
	maxPumpDebt  = 512
	debtPause    = 16 * time.Microsecond
	maxDebtPause = 20 * time.Millisecond
	// turnTime is how long a request that waits for its peer or a worker keeps the turn of its user: one that no peer
	// answers must not block the user's other programs.
	turnTime = 2 * time.Millisecond
	// closeWait is how long closing a program's descriptors may take before its session ends.
	closeWait = time.Second
	// refillSpins is how often a worker checks whether the pump has finished its batch, if a message finds no receive.
	// After that the message waits for the pump, and the worker serves other programs.
	refillSpins = 64
	// lingerWait is how long deregistering a region waits for closing queue pairs. It retries every lingerPause.
	lingerWait  = 500 * time.Millisecond
	lingerPause = 2 * time.Millisecond
	// maxClosers is the number of queue pairs of an ended session that are closed at a time.
	maxClosers = 32
	// helloTimeout is how long a program may be connected without a hello. On a busy host a program may wait for a
	// processor for seconds.
	helloTimeout = 30 * time.Second
	// deadSessionWait is how long a new program waits for the release of sessions of its user with dead programs. A
	// session that is never released does not lock out programs.
	deadSessionWait = 3 * time.Second
)

// destroyWait is how long a program waits for the end of a queue pair before it gets errStuck. Tests shorten it.
var destroyWait = 10 * time.Second
