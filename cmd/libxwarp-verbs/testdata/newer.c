/* newer: functions that the headers of older rdma-core do not declare, and functions of a future version
 * (tomorrow.c). Arguments are the versions and names of all functions that libxwarp-verbs.so has. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>

#include "ends.h"

#define TOMORROW(library) library "_1.99"

static void *function(const char *version, const char *name)
{
	void *f = dlvsym(RTLD_DEFAULT, name, version);

	if (!f) {
		fprintf(stderr, "no %s of version %s\n", name, version);
		exit(1);
	}
	return f;
}

/* CALL calls a function whose arguments are pointers and integers. */
#define CALL(result, version, name, ...) ((result (*)())function(version, name))(__VA_ARGS__)
#define FAILS(result, value, version, name, ...)                                     \
	do {                                                                         \
		errno = 0;                                                           \
		CHECK(CALL(result, version, name, __VA_ARGS__) == (value));          \
		CHECK(!#value[0] || (intptr_t)(value) == EOPNOTSUPP || errno == EOPNOTSUPP); \
	} while (0)

static void today(struct ibv_context *c, struct ibv_pd *pd, struct rdma_cm_id *id)
{
	static const char *const counter[] = {"ibv_destroy_comp_cntr", "ibv_set_comp_cntr", "ibv_set_err_comp_cntr",
		"ibv_inc_comp_cntr", "ibv_inc_err_comp_cntr", "ibv_read_comp_cntr", "ibv_read_err_comp_cntr",
		"ibv_qp_attach_comp_cntr", "_ibv_query_comp_cntr_caps"};
	uint64_t speed = 0;

	FAILS(void *, NULL, "IBVERBS_1.15", "ibv_alloc_dmah", c, NULL);
	FAILS(int, EOPNOTSUPP, "IBVERBS_1.15", "ibv_dealloc_dmah", &c);
	FAILS(int, -1, "IBVERBS_1.16", "ibv_dm_export_dmabuf_fd", &c);
	FAILS(void *, NULL, "IBVERBS_1.18", "ibv_create_comp_cntr", c, NULL);
	for (size_t i = 0; i < sizeof counter / sizeof *counter; i++)
		FAILS(int, EOPNOTSUPP, "IBVERBS_1.18", counter[i], &c, NULL, NULL);
	FAILS(int, -1, "RDMACM_1.4", "rdma_resolve_addrinfo", id, "192.0.2.1", "7174", NULL);
	FAILS(int, -1, "RDMACM_1.4", "rdma_query_addrinfo", id, NULL);
	FAILS(int, -1, "RDMACM_1.4", "rdma_write_cm_event", id, 17, 0, (uint64_t)7);
	CHECK(CALL(int, "IBVERBS_1.16", "ibv_query_port_speed", c, 1, &speed) == 0 && speed == 100);
	CHECK(CALL(int, "IBVERBS_1.16", "ibv_query_port_speed", c, 2, &speed) == EINVAL);

	void *buf = NULL;
	char *p = CALL(void *, "IBVERBS_1.17", "ibv_alloc_buf", pd, (size_t)10000, &buf);
	CHECK(p && buf && (uintptr_t)p % 4096 == 0);
	memset(p, 7, 10000);
	struct ibv_mr *mr = CALL(struct ibv_mr *, "IBVERBS_1.17", "ibv_reg_buf_mr", pd, buf, p + 5000, (size_t)5000,
				 IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && mr->addr == p + 5000 && mr->length == 5000 && ibv_dereg_mr(mr) == 0);
	CHECK(!CALL(struct ibv_mr *, "IBVERBS_1.17", "ibv_reg_buf_mr", pd, buf, p + 5000, (size_t)5001, 0) && errno == EINVAL);
	FAILS(int, -1, "IBVERBS_1.18", "ibv_export_buf_dmabuf_fd", buf);
	struct {
		size_t length;
		int access;
		uint64_t comp_mask, iova;
		void *addr;
		int fd;
		uint64_t fd_offset;
		void *dmah, *buf;
	} a = {.length = 4096, .access = IBV_ACCESS_LOCAL_WRITE, .addr = p, .comp_mask = 2};
	CHECK((mr = CALL(struct ibv_mr *, "IBVERBS_1.15", "ibv_reg_mr_ex", pd, &a)) && mr->addr == p && ibv_dereg_mr(mr) == 0);
	a.comp_mask |= 32; /* buf is set */
	a.buf = buf;
	CHECK((mr = CALL(struct ibv_mr *, "IBVERBS_1.15", "ibv_reg_mr_ex", pd, &a)) && ibv_dereg_mr(mr) == 0);
	a.comp_mask = 2 | 16; /* a DMA handle */
	FAILS(void *, NULL, "IBVERBS_1.15", "ibv_reg_mr_ex", pd, &a);
	CALL(void, "IBVERBS_1.17", "ibv_free_buf", buf);
}

static void tomorrow(struct ibv_context *c, struct ibv_pd *pd, struct rdma_cm_id *id)
{
	FAILS(int, EOPNOTSUPP, TOMORROW("IBVERBS"), "ibv_query_tomorrow", c);
	FAILS(int, EOPNOTSUPP, TOMORROW("IBVERBS"), "ibv_modify_tomorrow", c);
	FAILS(void *, NULL, TOMORROW("IBVERBS"), "ibv_reg_tomorrow", pd);
	void *object = CALL(void *, TOMORROW("IBVERBS"), "ibv_alloc_tomorrow", c);
	if (object) /* libibverbs jumps to the operation */
		FAILS(int, EOPNOTSUPP, TOMORROW("IBVERBS"), "ibv_dealloc_tomorrow", object);
	CHECK(CALL(int, TOMORROW("IBVERBS"), "ibv_write_tomorrow", c) == -1);
	CHECK(CALL(int, TOMORROW("RDMACM"), "rdma_write_tomorrow", id) == -1);
	struct pollfd fds[] = {{.fd = c->async_fd, .events = POLLIN}, {.fd = id->channel->fd, .events = POLLIN}};
	CHECK(poll(fds, 2, 0) == 0);
}

int main(int argc, char **argv)
{
	Dl_info ours, at;
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	CHECK(dladdr(function("IBVERBS_1.1", "ibv_get_device_list"), &ours) && argc % 2 == 1 && argc > 100);
	for (int i = 1; i < argc; i += 2) {
		CHECK(dladdr(function(argv[i], argv[i + 1]), &at));
		if (strcmp(at.dli_fname, ours.dli_fname) != 0) {
			fprintf(stderr, "%s of version %s is that of %s\n", argv[i + 1], argv[i], at.dli_fname);
			exit(1);
		}
	}
	struct ibv_context *c = ibv_open_device(list[0]);
	struct ibv_pd *pd = c ? ibv_alloc_pd(c) : NULL;
	CHECK(pd && channel && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	today(c, pd, id);
	tomorrow(c, pd, id);
	/* The identifier is unharmed. */
	struct sockaddr_in nowhere = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(1)};
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&nowhere, 1000) == 0 && rdma_get_cm_event(channel, &e) == 0);
	CHECK(rdma_ack_cm_event(e) == 0 && rdma_destroy_id(id) == 0);
	CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0 && rdma_get_cm_event(channel, &e) == -1 && errno == EAGAIN);
	rdma_destroy_event_channel(channel);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(c) == 0);
	puts("all is well");
	return 0;
}
