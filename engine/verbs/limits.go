package verbs

// Defaults of QPConfig and of Device.Listen.
const (
	DefaultDepth     = 128
	DefaultSGE       = 4
	DefaultInline    = 64
	DefaultReadDepth = 16
	DefaultBacklog   = 128
)

// MaxCQDepth is the maximum depth of a completion queue, so that a wrong depth fails at creation instead of exhausting
// memory.
const MaxCQDepth = 1 << 22
