package ntuple

// Bounds on what a driver tells.
const (
	maxRules   = 1 << 16 // that are listed; the largest tables have 16,384
	maxTable   = 1 << 16 // entries of an indirection table
	maxQueue   = 1 << 16 // a rule's action above is no queue: to drop, or a virtual function's
	maxContext = 64      // RSS contexts that are looked for
)
