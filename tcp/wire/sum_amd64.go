package wire

const (
	sumBlock = 128
	minWide  = sumBlock
)

func hasAVX2() bool

// wide says that sumWide may be called.
var wide = hasAVX2()
