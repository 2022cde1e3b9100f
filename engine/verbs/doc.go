// Package verbs defines the interface of every device: configurations, work requests, completions, errors, and the
// interfaces that the embedded engine (xdp.Open), kernel sockets (sockets.Open) and the client of a daemon
// (client.Open) implement. Programs for them differ in the constructor only. Terms are those of libibverbs and
// librdmacm. The package needs no privileges, netlink or eBPF.
//
//	Device --AllocPD--> PD --RegMR--> MR           memory that peers can access by its STag
//	       --CreateCQ-> CQ --Wait---> Completion   results of work requests
//	       --CreateQP-> QP --PostSend, PostRecv    work requests
//	       --Dial-----> QP                         connects it (RDMA_CM)
//	       --Listen---> Listener --Accept--> ConnRequest --Accept--> QP
//
// An Endpoint creates everything that one end of a connection needs, and closes it in the right order.
//
// A peer accesses a region by its RemoteMR, which programs send as private data of the connection or in a Send, as the
// exports of xwarpd do.
//
// # Errors
//
// An error begins with the name of the call, as "ibv_reg_mr: …". errors.Is matches the errors of this package, the
// syscall.Errno that the C call of the same name returns, net.ErrClosed, and context errors. errors.As finds a
// *ulpdu.Error if the connection ended with a Terminate. All this also holds for errors of a daemon.
package verbs
