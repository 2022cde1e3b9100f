package explain

// foreign are completion statuses of libibverbs that this engine never gives, and that people bring from
// InfiniBand and RoCE.
var foreign = []Entry{
	wc(3, "LOC_EEC_OP_ERR", "Of InfiniBand's reliable datagrams only."),
	wc(6, "MW_BIND_ERR", "A memory window could not be bound. This engine has no memory windows."),
	wc(8, "LOC_ACCESS_ERR", "InfiniBand's immediate data met memory without the right. On iWARP "+
		"the connection ends with a Terminate at the receiver."),
	wc(12, "RETRY_EXC_ERR", "InfiniBand's transport gave up. On iWARP, TCP does the retries: a "+
		"lost connection is FATAL_ERR, with the end of the TCP connection as its reason."),
	wc(13, "RNR_RETRY_EXC_ERR", "InfiniBand's \"receiver not ready\": no receive was posted. "+
		"iWARP does not retry: the receiver sends Terminate 1/2/02, and the sender sees "+
		"REM_INV_REQ_ERR."),
	wc(20, "RESP_TIMEOUT_ERR", "A request was not answered in time, on InfiniBand."),
	wc(21, "GENERAL_ERR", "Any other error, in libibverbs."),
}

func wc(number int, code, meaning string) Entry {
	return Entry{
		Kind: Status, Code: code, Number: number, Name: "IBV_WC_" + code, Meaning: meaning,
		Causes: lines{"a program or a text about another kind of RDMA"},
		Remedy: lines{"xwarp explain --list shows the statuses of this engine"},
		Spec:   "libibverbs, ibv_poll_cq(3)",
	}
}
