/* NETLINK_RDMA, with which iproute2's rdma queries the kernel for devices. A socket of that protocol is replaced by
 * one of NETLINK_USERSOCK, on which the kernel does not listen. Messages to the kernel on it go to the daemon as
 * requests; another socket of the same protocol delivers the replies. All other operations on the socket are the
 * kernel's. */
#undef _FORTIFY_SOURCE
#include "objects.h"

#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define MAX_ASK 2048	  /* maximum bytes of a request */
#define MAX_DATAGRAM 8192 /* maximum bytes of a reply */

struct answer {
	struct call call;
	struct session *s;
	int from;
	struct sockaddr_nl to;
	struct nlmsghdr request;
};

/* answered sends the reply, on the session's reader. It may wait until the program has received earlier messages. */
static void answered(struct call *c)
{
	struct answer *a = c->owner;
	struct json item = {0}, list = json_get(c->result, "datagrams");
	uint8_t b[MAX_DATAGRAM];

	while (c->error == 0 && json_next(list, &item)) {
		int n = json_base64(item, b, sizeof b);
		if (n > 0 && sendto(a->from, b, (size_t)n, 0, (struct sockaddr *)&a->to, sizeof a->to) < 0)
			break; /* the program has closed its socket */
	}
	if (c->error) {
		struct {
			struct nlmsghdr h;
			struct nlmsgerr e;
		} m = {
			.h = {.nlmsg_len = sizeof m, .nlmsg_type = NLMSG_ERROR, .nlmsg_seq = a->request.nlmsg_seq,
			      .nlmsg_pid = a->request.nlmsg_pid},
			.e = {.error = -c->error, .msg = a->request},
		};
		sendto(a->from, &m, sizeof m, 0, (struct sockaddr *)&a->to, sizeof a->to);
	}
	close(a->from);
	xw_call_end(c);
	xw_session_put(a->s);
	free(a);
}

/* ask sends a request of fd to the daemon. It returns 0 or errno. */
static int ask(int fd, const void *request, size_t n)
{
	uint8_t b[MAX_ASK];
	char text[XW_BASE64_LEN(MAX_ASK)];
	struct answer *a;
	socklen_t size = sizeof a->to;
	int error = 0;

	if (n < sizeof a->request || n > sizeof b)
		return EMSGSIZE;
	if (!(a = calloc(1, sizeof *a)))
		return ENOMEM;
	a->to.nl_family = AF_NETLINK;
	bind(fd, (struct sockaddr *)&a->to, sizeof a->to); /* autobind, unless it has an address */
	if (getsockname(fd, (struct sockaddr *)&a->to, &size) != 0 ||
	    (a->from = (int)syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_USERSOCK)) < 0)
		error = errno;
	else if (!(a->s = xw_session_open("", &error)))
		close(a->from);
	if (error) {
		free(a);
		return error;
	}
	memcpy(b, request, n);
	memcpy(&a->request, b, sizeof a->request);
	a->request.nlmsg_pid = a->to.nl_pid; /* reply to the sender, as the kernel does */
	memcpy(b, &a->request, sizeof a->request);
	xw_base64(b, n, text);
	a->call.owner = a;
	a->call.done = answered;
	xw_begin(a->s, &a->call, "netlink", "{\"request\":\"%s\",\"style\":\"%s\"}", text, xw_roce() ? "roce" : "iwarp");
	return 0;
}

/* replaced is a bit set of the descriptors of sockets that replace NETLINK_RDMA sockets, so that writes to other
 * descriptors cost little. The bit of a closed descriptor stays set, even if another file gets its number. */
enum { DESCRIPTORS = 4096 };
static _Atomic uint32_t replaced[DESCRIPTORS / 32];

/* asks reports whether fd is a socket of NETLINK_USERSOCK, and a message on it to the address to is for the kernel.
 * A message without an address (to is NULL) is for the kernel (netlink(7)), unless the socket is connected to
 * another address. */
static bool asks(int fd, const struct sockaddr *to, socklen_t n)
{
	struct sockaddr_nl peer = {0};
	int protocol = -1;
	socklen_t size = sizeof protocol, peer_size = sizeof peer;

	if (!to) {
		if (fd < 0 || fd >= DESCRIPTORS ||
		    !(atomic_load_explicit(&replaced[fd / 32], memory_order_relaxed) & 1U << fd % 32))
			return false;
		int before = errno;
		bool kernel = getpeername(fd, (struct sockaddr *)&peer, &peer_size) == 0;
		errno = before;
		if (!kernel)
			return false;
		to = (const struct sockaddr *)&peer;
		n = peer_size;
	}
	return n >= sizeof(struct sockaddr_nl) && to->sa_family == AF_NETLINK &&
	       ((const struct sockaddr_nl *)(const void *)to)->nl_pid == 0 &&
	       ((const struct sockaddr_nl *)(const void *)to)->nl_groups == 0 &&
	       getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == NETLINK_USERSOCK;
}

static ssize_t ask_bytes(int fd, const void *b, size_t n)
{
	int error = ask(fd, b, n);

	return error ? xw_fail(error) : (ssize_t)n;
}

static ssize_t ask_pieces(int fd, const struct iovec *v, size_t pieces)
{
	uint8_t b[MAX_ASK];
	size_t n = 0;

	for (; pieces > 0; pieces--, v++) {
		if (v->iov_len > sizeof b - n)
			return xw_fail(EMSGSIZE);
		memcpy(b + n, v->iov_base, v->iov_len);
		n += v->iov_len;
	}
	return ask_bytes(fd, b, n);
}

/* SENDS defines a function that sends messages for the kernel to the daemon instead. */
#define SENDS(name, params, args, to, to_len, asked)         \
	FIND(ssize_t, name, params)                           \
	EXPORT ssize_t name params                            \
	{                                                     \
		NEXT(ssize_t, -1, name, params);              \
		return asks(fd, to, to_len) ? asked : next args; \
	}

SENDS(sendto, (int fd, const void *b, size_t n, int flags, const struct sockaddr *to, socklen_t to_len),
      (fd, b, n, flags, to, to_len), to, to_len, ask_bytes(fd, b, n))
SENDS(sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags), m->msg_name, m->msg_namelen,
      ask_pieces(fd, m->msg_iov, m->msg_iovlen))
SENDS(send, (int fd, const void *b, size_t n, int flags), (fd, b, n, flags), NULL, 0, ask_bytes(fd, b, n))
SENDS(write, (int fd, const void *b, size_t n), (fd, b, n), NULL, 0, ask_bytes(fd, b, n))
SENDS(writev, (int fd, const struct iovec *v, int pieces), (fd, v, pieces), NULL, 0, ask_pieces(fd, v, (size_t)pieces))

FIND(int, socket, (int, int, int))

EXPORT int socket(int family, int type, int protocol)
{
	NEXT(int, -1, socket, (int, int, int));
	bool rdma = family == AF_NETLINK && protocol == NETLINK_RDMA;
	int fd = next(family, type, rdma ? NETLINK_USERSOCK : protocol);

	if (rdma && fd >= 0 && fd < DESCRIPTORS)
		atomic_fetch_or(&replaced[fd / 32], 1U << fd % 32);
	return fd;
}
