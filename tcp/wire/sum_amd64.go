package wire

const (
	sumBlock = 128
	minWide  = sumBlock
)

func hasAVX2() bool

// wide reports whether the processor has the vector instructions of sumWide.
var wide = hasAVX2()
