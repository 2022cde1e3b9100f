package checksum

import "golang.org/x/sys/cpu"

// fast says that the processor has CRC32 and PCLMULQDQ.
var fast = cpu.X86.HasSSE42 && cpu.X86.HasPCLMULQDQ

const laneStep = 1 // words that a lane's loop takes at a time
