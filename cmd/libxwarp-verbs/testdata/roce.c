/* Programs with the access patterns of Mooncake and 3FS, and the behaviour of RoCE for a peer that rejects a request
 * or has no receive: PROGRAM TEST on one host, PROGRAM TEST ADDRESS on the other. They exchange GID and QPN over TCP
 * and connect by ibv_modify_qp. The tests self and two need no other program. */
#include "ends.h"

#include <sys/socket.h>

enum {
	SETUP = 18515, QPS = 16, CHAIN = 32, PIECE = 8192, SGES = 4, REGION = QPS * CHAIN * PIECE,
	INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
	      IBV_QP_MIN_RNR_TIMER,
	RTS = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
	ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
};

static struct ibv_context *c;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static char memory[REGION] __attribute__((aligned(4096)));
static struct ibv_mr *mr;
static int setup; /* the TCP connection with the peer */

/* told is the message that one end sends to the other. */
struct told {
	union ibv_gid gid;
	uint32_t qpn[QPS], rkey;
	uint64_t addr;
};

static struct told peer;

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list && list[0] && (c = ibv_open_device(list[0])) && (pd = ibv_alloc_pd(c)));
	CHECK((cq = ibv_create_cq(c, 4096, NULL, NULL, 0)) && (mr = ibv_reg_mr(pd, memory, sizeof memory, ACCESS)));
}

static void connect_setup(const char *at)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(SETUP)};
	int s = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	CHECK(s >= 0 && setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
	if (at) {
		CHECK(inet_pton(AF_INET, at, &a.sin_addr) == 1 && connect(s, (struct sockaddr *)&a, sizeof a) == 0);
		setup = s;
	} else {
		CHECK(bind(s, (struct sockaddr *)&a, sizeof a) == 0 && listen(s, 1) == 0);
		CHECK((setup = accept(s, NULL, NULL)) >= 0);
		close(s);
	}
}

static void meet(void)
{
	char b = 'x';

	CHECK(write(setup, &b, 1) == 1 && read(setup, &b, 1) == 1);
}

static struct ibv_qp *create_qp(uint32_t depth)
{
	struct ibv_qp_init_attr a = {.send_cq = cq, .recv_cq = cq, .cap = {depth, depth, SGES, 1, 64}, .qp_type = IBV_QPT_RC};
	struct ibv_qp *q = ibv_create_qp(pd, &a);

	CHECK(q);
	return q;
}

/* path holds the connection parameters of a queue pair. */
struct path {
	uint8_t rnr_timer, rnr_retry;
	int access;
};

static void move(struct ibv_qp *q, struct path p, union ibv_gid gid, uint32_t qpn)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)p.access};

	CHECK(ibv_modify_qp(q, &a, INIT) == 0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qpn, .max_dest_rd_atomic = 16,
		.min_rnr_timer = p.rnr_timer, .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 16}}};
	CHECK(ibv_modify_qp(q, &a, RTR) == 0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = p.rnr_retry, .max_rd_atomic = 16};
	CHECK(ibv_modify_qp(q, &a, RTS) == 0);
}

/* exchange sends the parameters of n queue pairs to the peer and receives those of the peer. */
static void exchange(struct ibv_qp **q, int n)
{
	struct told own = {.rkey = mr->rkey, .addr = (uintptr_t)memory};

	CHECK(ibv_query_gid(c, 1, 0, &own.gid) == 0);
	for (int i = 0; i < n; i++)
		own.qpn[i] = q[i]->qp_num;
	CHECK(write(setup, &own, sizeof own) == sizeof own && recv(setup, &peer, sizeof peer, MSG_WAITALL) == sizeof peer);
}

static void post(struct ibv_qp *q, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	CHECK(ibv_post_send(q, wr, &bad) == 0);
}

static void post_receives(struct ibv_qp *q, uint64_t from, uint64_t to)
{
	for (; from < to; from++) {
		struct ibv_sge sge = {(uintptr_t)memory + from * 64, 64, mr->lkey};
		struct ibv_recv_wr *bad, wr = {.wr_id = from, .sg_list = &sge, .num_sge = 1};
		CHECK(ibv_post_recv(q, &wr, &bad) == 0);
	}
}

static void expect(uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = complete(cq);

	if (wc.wr_id != id || wc.status != status)
		fprintf(stderr, "request %d: %s, instead of request %d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status), (int)id,
			ibv_wc_status_str(status));
	CHECK(wc.wr_id == id && wc.status == status);
}

/* chain posts CHAIN signaled Writes or Reads of SGES pieces as one list, as Mooncake and 3FS do. */
static void chain(struct ibv_qp *q, enum ibv_wr_opcode op, int part)
{
	struct ibv_sge sge[CHAIN][SGES];
	struct ibv_send_wr wr[CHAIN];

	for (int i = 0; i < CHAIN; i++) {
		uint64_t at = ((uint64_t)part * CHAIN + (uint64_t)i) * PIECE;
		for (int k = 0; k < SGES; k++)
			sge[i][k] = (struct ibv_sge){(uintptr_t)memory + at + (uint64_t)(k * PIECE / SGES), PIECE / SGES, mr->lkey};
		wr[i] = (struct ibv_send_wr){.wr_id = (uint64_t)i, .sg_list = sge[i], .num_sge = SGES, .opcode = op,
			.send_flags = IBV_SEND_SIGNALED, .next = i + 1 < CHAIN ? &wr[i + 1] : NULL,
			.wr.rdma = {.remote_addr = peer.addr + at, .rkey = peer.rkey}};
	}
	post(q, wr);
}

static void fill(int seed)
{
	for (int i = 0; i < REGION; i++)
		memory[i] = (char)(i / PIECE + i + seed);
}

static bool filled(int seed)
{
	for (int i = 0; i < REGION; i++)
		if (memory[i] != (char)(i / PIECE + i + seed))
			return false;
	return true;
}

/* Mooncake: sixteen queue pairs, chains of signaled Writes and Reads, no receives. A TCP message reports completion,
 * and the peer then reads its memory immediately. */
static void transfer(bool client)
{
	struct ibv_qp *q[QPS];
	const struct path p = {12, 7, ACCESS};

	for (int i = 0; i < QPS; i++)
		q[i] = create_qp(2 * CHAIN);
	exchange(q, QPS);
	for (int i = 0; i < QPS; i++)
		move(q[i], p, peer.gid, peer.qpn[i]);
	meet();
	for (int round = 0; round < 20; round++) {
		if (client) {
			fill(round);
			for (int i = 0; i < QPS; i++)
				chain(q[i], IBV_WR_RDMA_WRITE, i);
			for (int i = 0; i < QPS * CHAIN; i++)
				CHECK(complete(cq).status == IBV_WC_SUCCESS);
		}
		meet(); /* a Write completes when it is placed */
		CHECK(client || filled(round));
		if (!client)
			fill(round + 100);
		meet();
		if (client) {
			for (int i = 0; i < QPS; i++)
				chain(q[i], IBV_WR_RDMA_READ, i);
			for (int i = 0; i < QPS * CHAIN; i++)
				CHECK(complete(cq).status == IBV_WC_SUCCESS);
			CHECK(filled(round + 100));
		}
		meet();
	}
	/* To disconnect, move the queue pairs to ERR; then continue with new ones. */
	for (int i = 0; i < QPS; i++) {
		CHECK(ibv_modify_qp(q[i], &(struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, IBV_QP_STATE) == 0);
		CHECK(ibv_destroy_qp(q[i]) == 0);
	}
}

/* Mooncake, to its own adapter: a queue pair connected to itself. */
static void self(bool client)
{
	union ibv_gid gid;
	struct ibv_wc wc;

	(void)client;
	CHECK(ibv_query_gid(c, 1, 0, &gid) == 0);
	for (int life = 0; life < 3; life++) {
		struct ibv_qp *q = create_qp(2 * CHAIN);
		struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS};
		CHECK(ibv_modify_qp(q, &a, INIT) == 0);
		post_receives(q, 0, 2); /* before it is connected */
		move(q, (struct path){12, 7, ACCESS}, gid, q->qp_num);
		peer.addr = (uintptr_t)memory + REGION / 2;
		peer.rkey = mr->rkey;
		fill(life);
		chain(q, IBV_WR_RDMA_WRITE, 1);
		for (uint64_t i = 0; i < CHAIN; i++)
			expect(i, IBV_WC_SUCCESS);
		CHECK(memcmp(memory + CHAIN * PIECE, memory + REGION / 2 + CHAIN * PIECE, CHAIN * PIECE) == 0);
		chain(q, IBV_WR_RDMA_READ, 2);
		for (uint64_t i = 0; i < CHAIN; i++)
			expect(i, IBV_WC_SUCCESS);
		CHECK(memcmp(memory + 2 * CHAIN * PIECE, memory + REGION / 2 + 2 * CHAIN * PIECE, CHAIN * PIECE) == 0);
		strcpy(memory + 4096, "to myself");
		struct ibv_sge sge = {(uintptr_t)memory + 4096, 10, mr->lkey};
		struct ibv_send_wr wr = {.wr_id = 50, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
		post(q, &wr);
		for (int i = 0; i < 2; i++) {
			wc = complete(cq);
			CHECK(wc.status == IBV_WC_SUCCESS && wc.qp_num == q->qp_num);
			CHECK(wc.wr_id == 50 || (wc.wr_id == 0 && wc.byte_len == 10 && strcmp(memory, "to myself") == 0));
		}
		peer.rkey++; /* no region: the Write fails; later requests and the receive are flushed */
		wr = (struct ibv_send_wr){.wr_id = 60, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
			.wr.rdma = {.remote_addr = peer.addr, .rkey = peer.rkey}};
		post(q, &wr);
		wr.wr_id = 61;
		post(q, &wr);
		for (int sends = 0, receives = 0; sends + receives < 3;) {
			wc = complete(cq);
			CHECK(wc.status == (sends == 0 && wc.wr_id != 1 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR));
			CHECK(wc.wr_id == 1 || wc.wr_id == 60 + (uint64_t)sends);
			wc.wr_id == 1 ? receives++ : sends++;
		}
		CHECK(ibv_destroy_qp(q) == 0);
	}
}

/* rust-ibverbs: two queue pairs of one process, connected to each other, send and write in both directions. */
static void two(bool client)
{
	union ibv_gid gid;
	struct ibv_qp *q[2] = {create_qp(2 * CHAIN), create_qp(2 * CHAIN)};

	(void)client;
	CHECK(ibv_query_gid(c, 1, 0, &gid) == 0);
	for (int i = 0; i < 2; i++)
		move(q[i], (struct path){12, 7, ACCESS}, gid, q[!i]->qp_num);
	peer.addr = (uintptr_t)memory + REGION / 2;
	peer.rkey = mr->rkey;
	for (int i = 0; i < 2; i++) {
		struct ibv_qp *to = q[!i];
		struct ibv_sge sge = {(uintptr_t)memory + 4096, 8, mr->lkey};
		fill(i);
		chain(q[i], IBV_WR_RDMA_WRITE, 1);
		for (uint64_t k = 0; k < CHAIN; k++)
			expect(k, IBV_WC_SUCCESS);
		CHECK(memcmp(memory + CHAIN * PIECE, memory + REGION / 2 + CHAIN * PIECE, CHAIN * PIECE) == 0);
		post_receives(to, 1, 2);
		strcpy(memory + 4096, i ? "answer" : "hello");
		post(q[i], &(struct ibv_send_wr){.wr_id = 50, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED});
		for (int k = 0; k < 2; k++) {
			struct ibv_wc wc = complete(cq);
			bool sent = wc.wr_id == 50;
			CHECK(wc.status == IBV_WC_SUCCESS && wc.qp_num == (sent ? q[i] : to)->qp_num);
			CHECK(sent || (wc.wr_id == 1 && strcmp(memory + 64, memory + 4096) == 0));
		}
	}
	for (int i = 0; i < 2; i++)
		CHECK(ibv_destroy_qp(q[i]) == 0);
}

/* 3FS: the first message is a Send with immediate data and without payload, as are credits. Chains are unsignaled
 * except the last request, and rnr_retry is 0. */
static void messages(bool client)
{
	struct ibv_qp *q = create_qp(64);
	struct ibv_sge none = {0}, sge = {(uintptr_t)memory + 8192, 1000, mr->lkey};
	struct ibv_send_wr credit = {.wr_id = 1, .sg_list = &none, .opcode = IBV_WR_SEND_WITH_IMM, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_wc wc;

	exchange(&q, 1);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS};
	CHECK(ibv_modify_qp(q, &a, INIT) == 0);
	post_receives(q, 10, 74);
	move(q, (struct path){1, 0, ACCESS}, peer.gid, peer.qpn[0]);
	meet();
	for (uint64_t round = 0; round < 200; round++) {
		uint64_t own = 0, theirs = 0;
		credit.imm_data = htobe32((uint32_t)round);
		if (client) {
			struct ibv_send_wr wr[8];
			for (int i = 0; i < 8; i++)
				wr[i] = (struct ibv_send_wr){.wr_id = (uint64_t)i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
					.next = i < 7 ? &wr[i + 1] : NULL,
					.wr.rdma = {.remote_addr = peer.addr + 16384, .rkey = peer.rkey}};
			wr[7].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
			wr[7].imm_data = htobe32(77);
			wr[6].num_sge = 0; /* empty, like a keep-alive */
			wr[6].wr.rdma.rkey = 0;
			wr[7].send_flags = IBV_SEND_SIGNALED;
			memset(memory + 8192, (int)round, 1000);
			post(q, wr);
		}
		post(q, &credit);
		for (uint64_t want = client ? 2 : 1; own < want || theirs < 3 - want;) {
			wc = complete(cq);
			CHECK(wc.status == IBV_WC_SUCCESS);
			if (wc.wr_id < 10) {
				CHECK(client && own == 0 ? wc.wr_id == 7 && wc.opcode == IBV_WC_RDMA_WRITE : wc.wr_id == 1 && wc.opcode == IBV_WC_SEND);
				own++;
				continue;
			}
			CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
			if (!client && theirs == 0) {
				CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 1000 && be32toh(wc.imm_data) == 77);
				CHECK(memory[16384] == (char)round && memory[16384 + 999] == (char)round);
			} else {
				CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == 0 && be32toh(wc.imm_data) == round);
			}
			theirs++;
			post_receives(q, wc.wr_id, wc.wr_id + 1);
		}
		meet();
	}
	CHECK(ibv_destroy_qp(q) == 0);
}

/* The peer rejects the third of four Writes. It must be identified although the Writes differ only in the address. */
static void denied(bool client)
{
	for (int imm = 0; imm < 2; imm++) {
		struct ibv_qp *q = create_qp(16);
		exchange(&q, 1);
		move(q, (struct path){12, 7, ACCESS}, peer.gid, peer.qpn[0]);
		meet();
		if (client) {
			struct ibv_sge sge = {(uintptr_t)memory, 8, mr->lkey};
			for (uint64_t i = 0; i < 4; i++)
				post(q, &(struct ibv_send_wr){.wr_id = i, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
					.opcode = i == 2 && imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
					.wr.rdma = {.remote_addr = peer.addr + (i == 2 ? REGION : 0), .rkey = peer.rkey}});
			expect(0, IBV_WC_SUCCESS);
			expect(1, IBV_WC_SUCCESS);
			expect(2, IBV_WC_REM_ACCESS_ERR);
			expect(3, IBV_WC_WR_FLUSH_ERR);
			CHECK(ibv_poll_cq(cq, 1, &(struct ibv_wc){0}) == 0);
		} else {
			event(c, IBV_EVENT_QP_ACCESS_ERR, q);
		}
		meet();
		CHECK(ibv_destroy_qp(q) == 0);
	}
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* A Send without a receive fails after rnr_retry times the peer's min_rnr_timer, here 3 x 163.84 ms. Earlier
 * requests complete, a Read Response and the peer's own Send overtake it, and later requests are flushed. With
 * rnr_retry 7 it waits. */
static void notready(bool client)
{
	for (int retry = 0; retry < 9; retry += retry == 0 ? 3 : 4) {
		struct ibv_qp *q = create_qp(16);
		struct ibv_sge sge = {(uintptr_t)memory + 4096, 8, mr->lkey};
		exchange(&q, 1);
		move(q, (struct path){28, (uint8_t)retry, ACCESS}, peer.gid, peer.qpn[0]);
		if (client)
			post_receives(q, 9, 10);
		meet();
		if (!client) {
			if (retry == 7) {
				usleep(700000);
				post_receives(q, 5, 6);
				expect(5, IBV_WC_SUCCESS);
			}
			meet();
			CHECK(ibv_destroy_qp(q) == 0);
			continue;
		}
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED, .opcode = IBV_WR_RDMA_WRITE,
			.wr.rdma = {.remote_addr = peer.addr + 8192, .rkey = peer.rkey}};
		uint64_t start = now_ms();
		post(q, &wr);
		wr.wr_id = 1;
		wr.opcode = IBV_WR_SEND;
		post(q, &wr);
		wr.wr_id = 2;
		wr.opcode = IBV_WR_RDMA_WRITE;
		post(q, &wr);
		expect(0, IBV_WC_SUCCESS);
		expect(1, retry == 7 ? IBV_WC_SUCCESS : IBV_WC_RNR_RETRY_EXC_ERR);
		uint64_t waited = now_ms() - start;
		CHECK(retry != 3 || waited >= 491);
		CHECK(retry != 7 || waited >= 600);
		expect(2, retry == 7 ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
		if (retry != 7)
			expect(9, IBV_WC_WR_FLUSH_ERR);
		meet();
		CHECK(ibv_destroy_qp(q) == 0);
	}
}

/* Both ends have a message that waits for a receive of the other end, which is posted only after an own completion:
 * delivery reports must overtake a waiting message. */
static void crossed(bool client)
{
	struct ibv_qp *q = create_qp(16);
	struct ibv_sge sge = {(uintptr_t)memory + 4096, 8, mr->lkey};

	exchange(&q, 1);
	move(q, (struct path){12, 7, ACCESS}, peer.gid, peer.qpn[0]);
	if (!client)
		post_receives(q, 5, 6);
	meet();
	if (!client) /* waits at the client */
		post(q, &(struct ibv_send_wr){.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND});
	usleep(100000);
	meet();
	if (client) {
		post(q, &(struct ibv_send_wr){.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED});
		expect(2, IBV_WC_SUCCESS);
		post_receives(q, 5, 6);
	}
	expect(5, IBV_WC_SUCCESS);
	meet();
	CHECK(ibv_destroy_qp(q) == 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(bool client);
	} tests[] = {{"transfer", transfer}, {"messages", messages}, {"denied", denied}, {"notready", notready}, {"crossed", crossed},
		     {"self", self}, {"two", two}};

	CHECK(argc == 2 || argc == 3);
	open_device();
	for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
		if (strcmp(tests[i].name, argv[1]) == 0) {
			if (tests[i].run != self && tests[i].run != two)
				connect_setup(argc == 3 ? argv[2] : NULL);
			tests[i].run(argc == 3);
			puts("all is well");
			return 0;
		}
	return 2;
}
