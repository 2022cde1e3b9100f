package wire

const (
	sumBlock = 16
	minWide  = 256 // for fewer bytes a call takes more instructions than it saves
)

const wide = true // every arm64 has vectors
