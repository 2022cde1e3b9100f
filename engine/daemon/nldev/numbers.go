package nldev

// Constants of linux/rdma/rdma_netlink.h.
const (
	clientNLDev = 5 // RDMA_NL_NLDEV; a type of message is client<<10 + command
	clientShift = 10

	// RDMA_NLDEV_CMD_*
	cmdGet     = 1
	cmdPortGet = 5
	cmdSysGet  = 6
	cmdResGet  = 9
	cmdResQP   = 10
	cmdResCMID = 11
	cmdResCQ   = 12
	cmdResMR   = 13
	cmdResPD   = 14
	cmdStatGet = 17
	cmdResCtx  = 22
	cmdResSRQ  = 23

	// RDMA_NLDEV_ATTR_*
	devIndex      = 1
	devName       = 2
	portIndex     = 3
	fwVersion     = 5
	nodeGUID      = 6
	sysImageGUID  = 7
	portState     = 12
	portPhysState = 13
	devNodeType   = 14
	resSummary    = 15
	summaryEntry  = 16
	summaryName   = 17
	summaryCurr   = 18
	resQP         = 19
	resLQPN       = 21
	resSQPSN      = 24
	resType       = 26
	resState      = 27
	resPID        = 28
	resKernName   = 29
	resCMID       = 30
	resPS         = 32
	resSrcAddr    = 33
	resDstAddr    = 34
	resCQ         = 35
	resCQE        = 37
	resUseCount   = 38
	resMR         = 40
	resRKey       = 42
	resMRLen      = 45
	resPD         = 46
	netdevIndex   = 50
	netdevName    = 51
	resPDN        = 60
	resCQN        = 61
	resMRN        = 62
	resCMIDN      = 63
	resCtxN       = 64
	sysNetns      = 66
	devProtocol   = 67
	statRes       = 75
	hwCounters    = 80
	hwEntry       = 81
	hwName        = 82
	hwValue       = 83
	resCtx        = 86
	resSRQ        = 88
	resSRQN       = 90
	sysCopyOnFork = 93

	// enum ib_qp_type and enum ib_qp_state
	typeRC  = 2
	stReset = 0
	stRTR   = 2
	stRTS   = 3
	stSQD   = 4
	stErr   = 6

	// enum rdma_ucm_port_space, and the kernel's enum rdma_cm_state
	portSpaceTCP = 0x106
	cmIdle       = 0
	cmConnect    = 5
	cmDisconnect = 6
	cmListen     = 8
)
