/* Access rights of a peer: memory windows, and the rights of a queue pair. */
#include "ends.h"

static void done(struct end *e, enum ibv_wc_opcode op)
{
	struct ibv_wc wc = complete(e->id->send_cq);

	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == op);
}

static struct ibv_mw_bind_info part(const struct end *e, unsigned access)
{
	return (struct ibv_mw_bind_info){.mr = e->mr, .addr = (uintptr_t)buffer + SIZE / 2, .length = 64, .mw_access_flags = access};
}

/* A window is bound, invalidated by the peer, bound again, and invalidated locally. A window of type 1 gets its own
 * keys. */
static void window_server(struct rdma_cm_id *listener)
{
	struct end e = {0};

	answer(&e, listener, NULL, NULL);
	register_buffer(&e, IBV_ACCESS_MW_BIND);
	for (uint64_t i = 1; i <= 2; i++)
		post_recv(&e, i);
	accept_it(&e);
	CHECK(!ibv_alloc_mw(e.id->pd, 3) && errno == EINVAL);
	struct ibv_mw *mw = ibv_alloc_mw(e.id->pd, IBV_MW_TYPE_2);
	CHECK(mw && ibv_bind_mw(e.id->qp, mw, NULL) == EINVAL);
	uint32_t key = ibv_inc_rkey(mw->rkey);
	post_send(&e, &(struct ibv_send_wr){.opcode = IBV_WR_BIND_MW,
		.bind_mw = {.mw = mw, .rkey = key, .bind_info = part(&e, IBV_ACCESS_REMOTE_WRITE)}});
	done(&e, IBV_WC_BIND_MW);
	CHECK(ibv_dereg_mr(e.mr) == EBUSY && ibv_dealloc_pd(e.id->pd) == EBUSY);
	tell_key(&e, key);
	struct ibv_wc wc = complete(e.id->recv_cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == key);
	CHECK(strcmp(buffer + SIZE / 2, "written") == 0);

	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(e.id->qp);
	struct ibv_mw_bind_info info = part(&e, IBV_ACCESS_REMOTE_WRITE);
	key = ibv_inc_rkey(key);
	ibv_wr_start(ex);
	ibv_wr_bind_mw(ex, mw, key, &info);
	CHECK(ibv_wr_complete(ex) == 0);
	done(&e, IBV_WC_BIND_MW);
	tell_key(&e, key);
	received(&e);
	CHECK(strcmp(buffer + SIZE / 2, "again") == 0);
	post_send(&e, &(struct ibv_send_wr){.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key});
	done(&e, IBV_WC_LOCAL_INV);

	struct ibv_mw *other = ibv_alloc_mw(e.id->pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED, .bind_info = part(&e, IBV_ACCESS_REMOTE_READ)};
	uint32_t before = other ? other->rkey : 0;
	CHECK(other && ibv_bind_mw(e.id->qp, other, &bind) == 0 && other->rkey != before);
	done(&e, IBV_WC_BIND_MW);
	tell_key(&e, other->rkey);
	event(e.id->verbs, IBV_EVENT_QP_ACCESS_ERR, e.id->qp);
	CHECK(strcmp(buffer + SIZE / 2, "again") == 0);
	CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dealloc_mw(other) == 0);
	hang_up(&e);
}

static void write_there(struct end *e, struct remote r, const char *text)
{
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = (uint32_t)strlen(text) + 1, .lkey = e->mr->lkey};

	strcpy(buffer, text);
	post_send(e, &(struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = {.remote_addr = r.addr, .rkey = r.rkey}});
}

static void read_there(struct end *e, struct remote r)
{
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = 8, .lkey = e->mr->lkey};

	post_send(e, &(struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		.wr.rdma = {.remote_addr = r.addr, .rkey = r.rkey}});
}

static void window_client(const char *at)
{
	struct end e = {0};

	dial(&e, at, 3);
	struct remote r = hear(&e);
	write_there(&e, r, "written");
	done(&e, IBV_WC_RDMA_WRITE);
	post_send(&e, &(struct ibv_send_wr){.opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = r.rkey});
	done(&e, IBV_WC_SEND);
	write_there(&e, hear(&e), "again");
	done(&e, IBV_WC_RDMA_WRITE);
	send_bytes(&e, "there");
	r = hear(&e);
	read_there(&e, r);
	done(&e, IBV_WC_RDMA_READ);
	CHECK(strcmp(buffer, "again") == 0);
	write_there(&e, r, "no");
	event(e.id->verbs, IBV_EVENT_QP_ACCESS_ERR, e.id->qp);
	hang_up(&e);
}

/* An invalid binding ends the connection. */
static void unbound_server(struct rdma_cm_id *listener)
{
	struct end e = {0};

	answer(&e, listener, NULL, NULL);
	register_buffer(&e, 0);
	accept_it(&e);
	struct ibv_mw *mw = ibv_alloc_mw(e.id->pd, IBV_MW_TYPE_2);
	CHECK(mw);
	post_send(&e, &(struct ibv_send_wr){.wr_id = 1, .opcode = IBV_WR_BIND_MW,
		.bind_mw = {.mw = mw, .rkey = mw->rkey, .bind_info = part(&e, IBV_ACCESS_REMOTE_WRITE)}});
	struct ibv_wc wc = complete(e.id->send_cq);
	CHECK(wc.status == IBV_WC_MW_BIND_ERR && wc.wr_id == 1);
	event(e.id->verbs, IBV_EVENT_QP_FATAL, e.id->qp);
	CHECK(ibv_dealloc_mw(mw) == 0);
	hang_up(&e);
}

static void unbound_client(const char *at)
{
	struct end e = {0};

	dial(&e, at, 1);
	CHECK(complete(e.id->recv_cq).status == IBV_WC_WR_FLUSH_ERR);
	event(e.id->verbs, IBV_EVENT_QP_FATAL, e.id->qp);
	hang_up(&e);
}

/* A queue pair grants its peer fewer rights than the region. */
static void less_server(struct rdma_cm_id *listener)
{
	struct ibv_qp_attr a = {.qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	struct end e = {0};

	answer(&e, listener, NULL, NULL);
	register_buffer(&e, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	CHECK(ibv_modify_qp(e.id->qp, &a, IBV_QP_ACCESS_FLAGS) == 0);
	post_recv(&e, 1);
	accept_it(&e);
	tell(&e);
	received(&e);
	CHECK(strcmp(buffer + SIZE / 2, "written") == 0);
	a.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	CHECK(ibv_modify_qp(e.id->qp, &a, IBV_QP_ACCESS_FLAGS) == 0);
	tell(&e);
	event(e.id->verbs, IBV_EVENT_QP_ACCESS_ERR, e.id->qp);
	CHECK(strcmp(buffer + SIZE / 2, "written") == 0);
	hang_up(&e);
}

static void less_client(const char *at)
{
	struct end e = {0};

	dial(&e, at, 2);
	write_there(&e, hear(&e), "written");
	done(&e, IBV_WC_RDMA_WRITE);
	send_bytes(&e, "there");
	struct remote r = hear(&e);
	read_there(&e, r);
	done(&e, IBV_WC_RDMA_READ);
	write_there(&e, r, "no");
	event(e.id->verbs, IBV_EVENT_QP_ACCESS_ERR, e.id->qp);
	hang_up(&e);
}

/* When a program can see the end of a connection, its requests have been flushed, and the region is exclusively its
 * own again: after an access violation of the peer, at both ends, and after a disconnect. */
static void flushed(struct end *e)
{
	for (int i = 1; i <= 3; i++) {
		struct ibv_wc wc;
		CHECK(ibv_poll_cq(e->id->recv_cq, 1, &wc) == 1 && wc.status == IBV_WC_WR_FLUSH_ERR);
	}
}

static void ended_server(struct rdma_cm_id *listener)
{
	for (int round = 0; round < 8; round++) {
		struct end e = {0};
		answer(&e, listener, NULL, NULL);
		register_buffer(&e, 0);
		for (uint64_t i = 1; i <= 3; i++)
			post_recv(&e, i);
		accept_it(&e);
		tell(&e);
		if (round % 2) {
			event(e.id->verbs, IBV_EVENT_QP_ACCESS_ERR, e.id->qp);
			flushed(&e);
		} else {
			for (int i = 1; i <= 3; i++) /* a completion may be visible before the next one */
				CHECK(complete(e.id->recv_cq).status == IBV_WC_WR_FLUSH_ERR);
		}
		hang_up(&e);
	}
}

static void ended_client(const char *at)
{
	for (int round = 0; round < 8; round++) {
		struct end e = {0};
		dial(&e, at, 4);
		struct remote r = hear(&e);
		if (round % 2) {
			write_there(&e, r, "no");
			event(e.id->verbs, IBV_EVENT_QP_ACCESS_ERR, e.id->qp);
		} else {
			CHECK(rdma_disconnect(e.id) == 0);
		}
		flushed(&e);
		hang_up(&e);
	}
}

static const struct test tests[] = {
	{"ended", ended_server, ended_client},
	{"window", window_server, window_client},
	{"unbound", unbound_server, unbound_client},
	{"less", less_server, less_client},
	{0},
};

int main(int argc, char **argv) { return run(tests, argc, argv); }
