package core

// What a worker does in one turn for what programs and peers can fill without end. The rest waits for the next turn, so
// that the frames and the requests of others never wait for more than one turn.
const (
	// requestsPerTurn is how many work requests a worker takes in one turn, some 0.2 ms, and requestsPerVisit how many
	// of those come from one queue pair before the next owner has its turn. Requests that are refused, or that send
	// nothing, complete at once: without a bound a program posts them as fast as they are taken.
	requestsPerTurn  = 1024
	requestsPerVisit = 256
	// mailPerTurn is how many posted functions a worker runs in one turn: programs make and end objects, and other
	// workers hand frames over.
	mailPerTurn = 64
	// stepsPerTurn is how many connections of the kernel's sockets a worker serves in one turn; each reads and writes
	// once.
	StepsPerTurn = 16
)
