package verbs

// Defaults of QPConfig and of Device.Listen.
const (
	DefaultDepth     = 128
	DefaultSGE       = 4
	DefaultInline    = 64
	DefaultReadDepth = 16
	DefaultBacklog   = 128
)

// MaxCQDepth bounds a completion queue, so that a wrong depth fails when it is made and not by exhausting memory.
const MaxCQDepth = 1 << 22
