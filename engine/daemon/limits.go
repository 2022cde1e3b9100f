package daemon

import "time"

// Limits, each with what it stops.
const (
	// batch is how many entries of one work queue are taken before the next queue has its turn: a busy queue pair must not
	// starve the others of its program.
	batch = 64
	// spins is how often an idle pump yields before it sleeps: what follows shortly needs no system call then.
	spins = 16
	// stallPause is how long a pump waits when the engine's queues are full.
	stallPause = 100 * time.Microsecond
	// destroyWait is how long the end of a queue pair may take before it is logged and given up.
	destroyWait = 10 * time.Second
	// closers is how many queue pairs of a dead client are closed at a time.
	closers = 32
	// helloWait is how long a client may be connected without saying hello.
	helloWait = 5 * time.Second
	// watchWait is how long a worker may take to answer before the watchdog counts it as stuck.
	watchWait = 5 * time.Second
	// deafFor is how long a device may fail to follow the kernel's neighbours before the watchdog counts it as stuck: nobody new is
	// connected to then, and only a restart is left. Connections that there are would go on.
	deafFor = 2 * time.Minute
	// unownedEvery is how often the daemon looks for frames on queues that nobody serves.
	unownedEvery = 5 * time.Second
	// exportDepth is the depth of the queues of a connection to an export, which carry flush requests only.
	exportDepth = 16
)
