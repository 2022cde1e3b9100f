package endpoint

const (
	// MaxSize is the longest message: both ends have it in memory.
	MaxSize = 1 << 28
	// MaxConns bounds the connections of one measurement.
	MaxConns = 1 << 14
	// MaxDepth bounds the messages under way on a connection.
	MaxDepth = 1 << 15
	// MaxMemory bounds the message buffers of all connections. It is also what a transfer touches over and over: larger
	// than a second-level cache, so that no peer is measured on hot memory, and smaller than the machine.
	MaxMemory = 16 << 20
	// receives is how many receives a sink keeps posted on each connection, and so how many Sends a source
	// may have sent beyond what the sink said it has taken.
	receives = 1024
)
