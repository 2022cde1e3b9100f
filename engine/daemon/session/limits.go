package session

import "time"

// Limits, each with what it stops.
const (
	// batch is how many entries of one work queue are taken before the next queue has its turn: a busy queue
	// pair must not starve the others of its program.
	batch = 64
	// spins is how often an idle pump yields before it sleeps: what follows shortly needs no system call then.
	spins = 16
	// stallPause is how long a pump waits when the engine's queues are full.
	stallPause = 100 * time.Microsecond
	// shortStalls is how many such waits there are in a row before the pump listens to the doorbell instead,
	// with waits that double up to longestStall: a program whose peer takes nothing must not keep a processor
	// busy.
	shortStalls  = 4
	longestStall = 10 * time.Millisecond
	// A bell that rings makes a debt of 1, a ring that ends the pump's sleep one of wakeDebt; workCredit of
	// it is forgiven for each batch that was there to be posted. From mostDebt on the pump rests for
	// debtPause for each, at most longestRest: a program that rings for nothing costs the daemon some
	// hundredths of a processor.
	wakeDebt    = 32
	workCredit  = 128
	mostDebt    = 512
	debtPause   = 16 * time.Microsecond
	longestRest = 20 * time.Millisecond
	// leaveWait is how long the close of a program's descriptors may take before its session ends.
	leaveWait = time.Second
	// refillTries is how often a worker looks whether the pump has finished its batch, when a message finds no
	// receive: at once refillSpins times, then every refillPause. A pump that the scheduler has stopped keeps a
	// worker for 20 ms at most, and then the message's connection ends.
	refillTries = refillSpins + 200
	refillSpins = 64
	refillPause = 100 * time.Microsecond
	// farewellWait is how long a queue pair that is ending may take to let a region go: its program
	// waits meanwhile, and looks at the region every farewellPause.
	farewellWait  = 500 * time.Millisecond
	farewellPause = 2 * time.Millisecond
	// closers is how many queue pairs of a dead client are closed at a time.
	closers = 32
	// helloWait is how long a client may be connected without saying hello.
	helloWait = 5 * time.Second
	// deadWait is how long a new program waits for those of its user that died to give back what they had: one
	// that does not end keeps nobody out.
	deadWait = 3 * time.Second
)

// destroyWait is how long a program waits for the end of a queue pair, which is logged then. Tests shorten it.
var destroyWait = 10 * time.Second
