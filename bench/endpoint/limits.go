package endpoint

const (
	// MaxSize is the longest message in bytes. Both ends keep a whole message in memory.
	MaxSize = 1 << 28
	// MaxConns bounds the connections of one measurement.
	MaxConns = 1 << 14
	// MaxDepth bounds the messages under way on a connection.
	MaxDepth = 1 << 15
	// MaxMemory bounds the message buffers of all connections in bytes, but each connection has at least one buffer.
	// A transfer walks through these buffers over and over. MaxMemory is larger than a second-level cache, so that no
	// peer is measured on cached memory only.
	MaxMemory = 16 << 20
	// receives is the maximum number of receives that a sink keeps posted on each connection. So it also limits the
	// Sends for which a source has received no credit yet.
	receives = 1024
)
