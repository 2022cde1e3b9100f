package iwarp

func (s state) String() string {
	return [states]string{"starting", "open", "terminating", "ending", "closed"}[s]
}

func (e event) String() string {
	return [events]string{"agreed", "cannotStart", "refused", "broken", "peerFIN", "disconnect",
		"abort", "late", "closeLate", "ended"}[e]
}
