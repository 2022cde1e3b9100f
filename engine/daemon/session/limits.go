package session

import "time"

// Limits, each with what it stops.
const (
	// batchSize is how many entries of one work queue are taken before the next queue has its turn: a busy queue
	// pair must not starve the others of its program.
	batchSize = 64
	// idleSpins is how often an idle pump yields before it sleeps: what follows shortly needs no system call then.
	idleSpins = 16
	// stallPause is how long a pump waits when the engine's queues are full.
	stallPause = 100 * time.Microsecond
	// maxShortStalls is how many such waits there are in a row before the pump listens to the doorbell instead,
	// with waits that double up to longestStall: a program whose peer takes nothing must not keep a processor
	// busy.
	maxShortStalls = 4
	maxStallPause  = 10 * time.Millisecond
	// A bell that rings makes a debt of 1, a ring that ends the pump's sleep one of wakeDebt; workCredit of
	// it is forgiven for each batch that was there to be posted. From mostDebt on the pump rests for
	// debtPause for each, at most longestRest: a program that rings for nothing costs the daemon some
	// hundredths of a processor.
	wakePenalty      = 32
	batchCredit      = 128
	maxIdleDoorbells = 512
	idlePause        = 16 * time.Microsecond
	maxIdlePause     = 20 * time.Millisecond
	// closeWait is how long the close of a program's descriptors may take before its session ends.
	closeWait = time.Second
	// refillTries is how often a worker looks whether the pump has finished its batch, when a message finds no
	// receive: at once refillSpins times, then every refillPause. A pump that the scheduler has stopped keeps a
	// worker for 20 ms at most, and then the message's connection ends.
	refillTries = refillSpins + 200
	refillSpins = 64
	refillPause = 100 * time.Microsecond
	// lingerWait is how long a queue pair that is ending may take to let a region go: its program
	// waits meanwhile, and looks at the region every farewellPause.
	lingerWait  = 500 * time.Millisecond
	lingerPause = 2 * time.Millisecond
	// maxClosers is how many queue pairs of a dead client are closed at a time.
	maxClosers = 32
	// helloTimeout is how long a client may be connected without saying hello.
	helloTimeout = 5 * time.Second
	// deadSessionWait is how long a new program waits for those of its user that died to give back what they had: one
	// that does not end keeps nobody out.
	deadSessionWait = 3 * time.Second
)

// destroyWait is how long a program waits for the end of a queue pair, which is logged then. Tests shorten it.
var destroyWait = 10 * time.Second
