// Package verbs is the one contract of every device: configurations, work requests, completions, errors, and the
// interfaces that the embedded engine (xdp.Open), the kernel's sockets (sockets.Open) and a daemon's
// client (client.Open) implement. A program differs in the constructor alone. The words are those of libibverbs and
// librdmacm; nothing here needs a privilege, netlink or eBPF.
//
//	Device --AllocPD--> PD --RegMR--> MR           memory that peers may reach, by its STag
//	       --CreateCQ-> CQ --Wait---> Completion   ends of work requests
//	       --CreateQP-> QP --PostSend, PostRecv    work requests
//	       --Dial-----> QP                         connects it (RDMA_CM)
//	       --Listen---> Listener --Accept--> ConnRequest --Accept--> QP
//
// An Endpoint makes one end of a connection with all that it needs, and closes it in the right order.
//
// A peer reaches a region by what RemoteMR says about it, which programs send as private data of the connection or in
// a Send. The exports of xwarpd say it in the same form.
//
// # Errors
//
// Errors carry the name of the call, as "ibv_reg_mr: …". errors.Is finds the errors of this package in them, the
// numbers of package syscall that the call of the same name in C has, net.ErrClosed and the errors of contexts;
// errors.As finds a *ulpdu.Error where the connection ended with a Terminate. This holds for what a daemon says, too.
package verbs
