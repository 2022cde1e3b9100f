package checksum

import "golang.org/x/sys/cpu"

// fast reports whether the processor has the instructions CRC32 and PCLMULQDQ.
var fast = cpu.X86.HasSSE42 && cpu.X86.HasPCLMULQDQ

const laneStep = 1 // words of a lane in each iteration of the loop
