/* Memory that is registered. */
#define _GNU_SOURCE
#include "ends.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

static void post_recv_to(struct end *e, const struct ibv_mr *mr, void *to, uint32_t length)
{
	struct ibv_sge sge = {.addr = (uintptr_t)to, .length = length, .lkey = mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1}, *bad;

	CHECK(ibv_post_recv(e->id->qp, &wr, &bad) == 0);
}

static void send_from(struct end *e, const struct ibv_mr *mr, void *from, uint32_t length)
{
	struct ibv_sge sge = {.addr = (uintptr_t)from, .length = length, .lkey = mr->lkey};

	post_send(e, &(struct ibv_send_wr){.wr_id = 8, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED});
	struct ibv_wc wc = complete(e->id->send_cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 8 && wc.opcode == IBV_WC_SEND);
}

static void read_to(struct end *e, const struct ibv_mr *mr, void *to, struct remote r, unsigned flags)
{
	struct ibv_sge sge = {.addr = (uintptr_t)to, .length = 64, .lkey = mr->lkey};

	post_send(e, &(struct ibv_send_wr){.wr_id = 9, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		.send_flags = flags, .wr.rdma = {.remote_addr = r.addr, .rkey = r.rkey}});
}

static void hear_seven(struct end *e, uint32_t length)
{
	struct ibv_wc wc = complete(e->id->recv_cq);

	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 7 && wc.byte_len == length && wc.opcode == IBV_WC_RECV);
}

/* A stack is registered for this program alone: what is sent is taken from there, and what is received or read comes there. */
static void stack_server(struct rdma_cm_id *listener)
{
	char stack[2 * SIZE] = "", *odd = stack + 123;
	struct end e = {0};

	answer(&e, listener, NULL, NULL);
	register_buffer(&e, IBV_ACCESS_REMOTE_READ);
	CHECK(!ibv_reg_mr(e.id->pd, stack, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ) && errno == EOPNOTSUPP);
	struct ibv_mr *mr = ibv_reg_mr(e.id->pd, odd, SIZE, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr != NULL);
	memset(stack, '.', sizeof stack);
	post_recv_to(&e, mr, odd, 64);
	post_recv_to(&e, e.mr, buffer, 64); /* all have the same number */
	post_recv_to(&e, mr, odd + 64, SIZE - 64);
	strcpy(buffer + SIZE / 2, "read me");
	accept_it(&e);
	tell(&e);
	hear_seven(&e, 4);
	CHECK(memcmp(odd - 1, ".one", 5) == 0 && odd[4] == '.');
	hear_seven(&e, 4);
	CHECK(strcmp(buffer, "two") == 0 && odd[64] == '.');
	hear_seven(&e, 6);
	CHECK(strcmp(odd + 64, "three") == 0 && odd[64 + 6] == '.');
	post_recv_to(&e, mr, odd, 2); /* too short */
	post_recv_to(&e, mr, odd, 64); /* is flushed */
	send_from(&e, mr, odd + 64, 6);
	struct ibv_wc wc = complete(e.id->recv_cq);
	CHECK(wc.status == IBV_WC_LOC_LEN_ERR && wc.wr_id == 7);
	wc = complete(e.id->recv_cq);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 7 && memcmp(odd, "one", 4) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	hang_up(&e);
}

static void stack_client(const char *at)
{
	char stack[SIZE] = "one";
	struct end e = {0};

	quiet_sends = true;
	dial(&e, at, 1);
	struct ibv_mr *mr = ibv_reg_mr_iova(e.id->pd, stack, SIZE, 0x10000, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr != NULL);
	char *base = (char *)0x10000;
	struct remote r = hear(&e);
	read_to(&e, mr, base + 512, r, 0); /* nobody learns of it */
	send_from(&e, mr, base, 4);
	CHECK(strcmp(stack + 512, "read me") == 0);
	strcpy(stack, "two");
	send_from(&e, mr, base, 4);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(e.id->qp);
	ibv_wr_start(ex);
	ex->wr_id = 9;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_read(ex, r.rkey, r.addr);
	ibv_wr_set_sge(ex, mr->lkey, 0x10000 + 1024, 64);
	CHECK(ibv_wr_complete(ex) == 0);
	struct ibv_wc wc = complete(e.id->send_cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 9 && wc.opcode == IBV_WC_RDMA_READ && strcmp(stack + 1024, "read me") == 0);
	post_recv(&e, 1);
	strcpy(stack, "three");
	send_from(&e, mr, base, 6);
	received(&e);
	strcpy(stack, "four");
	struct ibv_sge sge = {.addr = (uintptr_t)base, .length = 5, .lkey = mr->lkey};
	post_send(&e, &(struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND});
	event(e.id->verbs, IBV_EVENT_QP_REQ_ERR, e.id->qp); /* it was too long */
	read_to(&e, mr, base + 512, r, 0); /* is flushed: of that one hears */
	do
		wc = complete(e.id->send_cq);
	while (wc.wr_id != 9);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
	hang_up(&e);
}

enum { SILENT = 255 };

/* Reads that are not signaled take no room in the completion queue, and are there with the next one that is. */
static void silent_client(const char *at)
{
	char stack[SIZE] = "";
	struct end e = {0};

	quiet_sends = true;
	dial(&e, at, 1);
	struct ibv_mr *mr = ibv_reg_mr(e.id->pd, stack, SIZE, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr != NULL);
	struct remote r = hear(&e);
	for (int i = 0; i <= SILENT; i++) {
		struct ibv_sge sge = {.addr = (uintptr_t)stack + 64 * (size_t)(i % (SIZE / 64)), .length = 64, .lkey = mr->lkey};
		struct ibv_send_wr *bad, wr = {.wr_id = 9, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
			.wr.rdma = {.remote_addr = r.addr, .rkey = r.rkey}};
		if (i == SILENT) { /* and one from memory of the daemon's */
			sge = (struct ibv_sge){.addr = (uintptr_t)buffer, .length = 64, .lkey = e.mr->lkey};
			wr.send_flags = IBV_SEND_SIGNALED;
		}
		for (int error; (error = ibv_post_send(e.id->qp, &wr, &bad));)
			CHECK(error == ENOMEM); /* the queue is full for a moment */
	}
	struct ibv_wc wc = complete(e.id->send_cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 9 && wc.opcode == IBV_WC_RDMA_READ && strcmp(buffer, "read me") == 0);
	for (int i = 0; i < SIZE / 64; i++)
		CHECK(strcmp(stack + 64 * i, "read me") == 0);
	CHECK(ibv_poll_cq(e.id->send_cq, 1, &wc) == 0 && ibv_dereg_mr(mr) == 0);
	send_from(&e, e.mr, buffer, 4);
	hang_up(&e);
}

static void silent_server(struct rdma_cm_id *listener)
{
	struct end e = {0};

	answer(&e, listener, NULL, NULL);
	register_buffer(&e, IBV_ACCESS_REMOTE_READ);
	post_recv_to(&e, e.mr, buffer, 4);
	strcpy(buffer + SIZE / 2, "read me");
	accept_it(&e);
	tell(&e);
	hear_seven(&e, 4);
	hang_up(&e);
}

/* await_recv waits until something is in the queue, without looking. */
static void await_recv(struct end *e)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(ibv_get_cq_event(e->id->recv_cq_channel, &cq, &context) == 0);
	ibv_ack_cq_events(cq, 1);
}

/* What was received is there when its region or its queue pair ends, before anybody polls. */
static void early_client(const char *at)
{
	char stack[128] = "";
	struct end e = {0};

	dial(&e, at, 1);
	struct remote r = hear(&e);
	(void)r;
	for (int i = 0; i < 2; i++) {
		struct ibv_mr *mr = ibv_reg_mr(e.id->pd, stack + 64 * i, 64, IBV_ACCESS_LOCAL_WRITE);
		CHECK(mr != NULL && ibv_req_notify_cq(e.id->recv_cq, 0) == 0);
		post_recv_to(&e, mr, stack + 64 * i, 64);
		send_bytes(&e, "go");
		await_recv(&e);
		CHECK(stack[64 * i] == 0);
		if (i == 0) {
			CHECK(ibv_dereg_mr(mr) == 0);
			CHECK(strcmp(stack, "early") == 0);
			strcpy(stack, "mine");
			hear_seven(&e, 6);
			CHECK(strcmp(stack, "mine") == 0);
		} else {
			rdma_destroy_qp(e.id);
			CHECK(strcmp(stack + 64, "early") == 0 && ibv_dereg_mr(mr) == 0);
		}
	}
	CHECK(ibv_dereg_mr(e.mr) == 0);
	rdma_destroy_ep(e.id);
}

static void early_server(struct rdma_cm_id *listener)
{
	struct end e = {0};

	answer(&e, listener, NULL, NULL);
	register_buffer(&e, 0);
	post_recv(&e, 1);
	post_recv(&e, 2);
	accept_it(&e);
	tell(&e);
	for (int i = 0; i < 2; i++) {
		received(&e);
		send_bytes(&e, "early");
	}
	hang_up(&e);
}

enum { PAGE = 4096, PAGES = 4096, ROUNDS = 4 };

static uint8_t *pages;
static volatile bool writing;

/* touch counts in pages that were touched before, and in those that were not. */
static void *touch(void *arg)
{
	uint64_t *counts = arg;

	for (uint64_t i = 1; writing; i++) {
		size_t page = i * 2654435761U % PAGES;
		*(uint64_t *)(void *)(pages + page * PAGE) += i;
		counts[page] += i;
	}
	return NULL;
}

/* Most pages of a region were never touched when it is registered, and others are written to meanwhile: no write is lost,
 * and the daemon sees what the program sees. */
static void holes_client(const char *at)
{
	struct end e = {0};
	pthread_t thread;

	dial(&e, at, 0);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t *counts = calloc(PAGES, sizeof *counts);
		pages = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(counts && pages != MAP_FAILED);
		for (size_t i = 0; i < PAGES; i += i % 1024 < 100 ? 1 : 924) /* runs of both kinds */
			counts[i] = *(uint64_t *)(void *)(pages + i * PAGE) = i;
		writing = true;
		CHECK(pthread_create(&thread, NULL, touch, counts) == 0);
		struct ibv_mr *mr = ibv_reg_mr(e.id->pd, pages, (size_t)PAGES * PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
		CHECK(mr != NULL);
		writing = false;
		pthread_join(thread, NULL);
		size_t last = PAGES;
		for (size_t i = 0; i < PAGES; i++) {
			CHECK(*(uint64_t *)(void *)(pages + i * PAGE) == counts[i]);
			if (counts[i])
				last = i;
		}
		*(uint64_t *)(void *)buffer = counts[last];
		send_from(&e, e.mr, buffer, 8);
		send_from(&e, mr, pages + last * PAGE, 8);
		CHECK(ibv_dereg_mr(mr) == 0);
		for (size_t i = 0; i < PAGES; i++)
			CHECK(*(uint64_t *)(void *)(pages + i * PAGE) == counts[i]);
		munmap(pages, (size_t)PAGES * PAGE);
		free(counts);
	}
	hang_up(&e);
}

static void holes_server(struct rdma_cm_id *listener)
{
	struct end e = {0};

	answer(&e, listener, NULL, NULL);
	register_buffer(&e, 0);
	for (int i = 0; i < 8; i++)
		post_recv_to(&e, e.mr, buffer + 8 * i, 8);
	accept_it(&e);
	for (int i = 0; i < 2 * ROUNDS; i++) {
		hear_seven(&e, 8);
		CHECK(i % 2 == 0 || memcmp(buffer + i % 8 * 8, buffer + (i - 1) % 8 * 8, 8) == 0);
		post_recv_to(&e, e.mr, buffer + i % 8 * 8, 8);
	}
	CHECK(complete(e.id->recv_cq).status == IBV_WC_WR_FLUSH_ERR);
	hang_up(&e);
}

enum { MOVED = 64 * PAGE };

/* alone says whether a child has a copy of what is at p, and not the same pages. */
static bool alone(char *p)
{
	char before = *p;
	pid_t child = fork();
	int status;

	CHECK(child >= 0);
	if (child == 0) {
		*p = before + 1;
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return *p == before;
}

/* A program may move what it has registered, as realloc does: the bytes stay its own. */
static void moved_client(const char *at)
{
	struct end e = {0};

	dial(&e, at, 0);
	for (int regions = 1; regions <= 2; regions++) {
		char *from = mmap(NULL, MOVED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		char *to = mmap(NULL, 2 * MOVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(from != MAP_FAILED && to != MAP_FAILED);
		for (int i = 0; i < MOVED; i++)
			from[i] = (char)(i / PAGE + 1);
		struct ibv_mr *mr[2];
		for (int i = 0; i < regions; i++)
			CHECK((mr[i] = ibv_reg_mr(e.id->pd, from + i * PAGE, MOVED - i * PAGE, IBV_ACCESS_LOCAL_WRITE)) != NULL);
		CHECK(mremap(from, MOVED, 2 * MOVED, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
		CHECK(alone(to) && alone(to + MOVED - 1));
		for (int i = 0; i < regions; i++)
			CHECK(ibv_dereg_mr(mr[i]) == 0);
		for (int i = 0; i < MOVED; i++)
			CHECK(to[i] == (char)(i / PAGE + 1));
		CHECK(alone(to) && alone(to + MOVED - 1));
		munmap(to, 2 * MOVED);
	}
	hang_up(&e);
}

/* What a program maps where a region was that it moved is new memory, and the region stays what it was. */
static void fresh_client(const char *at)
{
	struct end e = {0};

	dial(&e, at, 0);
	char *from = mmap(NULL, MOVED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *to = mmap(NULL, MOVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(from != MAP_FAILED && to != MAP_FAILED);
	memset(from, 'o', MOVED);
	struct ibv_mr *old = ibv_reg_mr(e.id->pd, from, MOVED, IBV_ACCESS_LOCAL_WRITE);
	CHECK(old && mremap(from, MOVED, MOVED, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	CHECK(mmap(from, MOVED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == from);
	memset(from, 'n', MOVED);
	CHECK(!ibv_reg_mr(e.id->pd, from, MOVED, IBV_ACCESS_REMOTE_READ) && errno == EOPNOTSUPP);
	struct ibv_mr *new = ibv_reg_mr(e.id->pd, from, MOVED, IBV_ACCESS_LOCAL_WRITE);
	CHECK(new && *from == 'n' && *to == 'o');
	*from = 'N';
	*to = 'O';
	send_from(&e, new, from, 2);
	send_from(&e, old, from, 2);
	CHECK(ibv_dereg_mr(old) == 0 && ibv_dereg_mr(new) == 0);
	for (int i = 1; i < MOVED; i++)
		CHECK(from[i] == 'n' && to[i] == 'o');
	CHECK(*from == 'N' && *to == 'O' && alone(from) && alone(to));
	CHECK((new = ibv_reg_mr(e.id->pd, from, MOVED, IBV_ACCESS_REMOTE_READ)) && ibv_dereg_mr(new) == 0);
	hang_up(&e);
}

static void fresh_server(struct rdma_cm_id *listener)
{
	struct end e = {0};

	answer(&e, listener, NULL, NULL);
	register_buffer(&e, 0);
	post_recv_to(&e, e.mr, buffer, 2);
	post_recv_to(&e, e.mr, buffer + 2, 2);
	accept_it(&e);
	hear_seven(&e, 2);
	hear_seven(&e, 2);
	CHECK(memcmp(buffer, "NnOo", 4) == 0);
	hang_up(&e);
}

/* A program may unmap what it has registered: what it maps there next is new, and untouched. */
static void again_client(const char *at)
{
	enum { LENGTH = 256 * PAGE };
	struct end e = {0};
	struct ibv_mr *mr[2];
	char *p = NULL;

	dial(&e, at, 0);
	for (int last = 0; last < 2; last++) {
		for (int i = 0; i < 2; i++) {
			char *q = mmap(p, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			CHECK(q != MAP_FAILED && (!p || p == q));
			p = q;
			if (i == 0)
				memset(p, 'x', LENGTH);
			CHECK((mr[i] = ibv_reg_mr(e.id->pd, p, LENGTH, IBV_ACCESS_LOCAL_WRITE)) != NULL);
			for (int k = 0; i == 1 && k < LENGTH; k++)
				CHECK(p[k] == 0);
			if (i == 0)
				munmap(p, LENGTH);
		}
		memset(p, 'y', LENGTH);
		CHECK(ibv_dereg_mr(mr[last]) == 0 && ibv_dereg_mr(mr[!last]) == 0);
		for (int k = 0; k < LENGTH; k++)
			CHECK(p[k] == 'y');
		munmap(p, LENGTH);
	}
	hang_up(&e);
}

static void moved_server(struct rdma_cm_id *listener)
{
	struct end e = {0};

	answer(&e, listener, NULL, NULL);
	register_buffer(&e, 0);
	post_recv(&e, 1);
	accept_it(&e);
	CHECK(complete(e.id->recv_cq).status == IBV_WC_WR_FLUSH_ERR);
	hang_up(&e);
}

static int descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

enum { BOTH = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

/* A memfd is the daemon's and the program's alike where it cannot become shorter, and is open. */
static void memfds(struct ibv_pd *pd)
{
	struct ibv_mr *mr;
	int fd = memfd_create("mine", MFD_ALLOW_SEALING);

	CHECK(fd >= 0 && ftruncate(fd, 2 * PAGE) == 0);
	char *p = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	CHECK(!ibv_reg_mr(pd, p, PAGE, BOTH) && errno == EOPNOTSUPP);
	CHECK((mr = ibv_reg_mr(pd, p, PAGE, IBV_ACCESS_LOCAL_WRITE)) && ibv_dereg_mr(mr) == 0);
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	CHECK((mr = ibv_reg_mr(pd, p + 1, 2 * PAGE - 1, BOTH)) && ibv_dereg_mr(mr) == 0);
	CHECK(!ibv_reg_mr(pd, p + PAGE, 2 * PAGE, BOTH) && errno == EFAULT); /* behind its end */
	CHECK(mprotect(p, PAGE, PROT_READ) == 0);
	CHECK(!ibv_reg_mr(pd, p, 2 * PAGE, BOTH) && errno == EFAULT);
	CHECK((mr = ibv_reg_mr(pd, p, 2 * PAGE, IBV_ACCESS_REMOTE_READ)) && ibv_dereg_mr(mr) == 0);
	CHECK(mprotect(p, PAGE, PROT_READ | PROT_WRITE) == 0 && close(fd) == 0);
	CHECK(!ibv_reg_mr(pd, p, PAGE, BOTH) && errno == EOPNOTSUPP);
	CHECK(munmap(p, 3 * PAGE) == 0);
}

/* Anonymous memory that is shared with children stays so, and peers reach it. */
static void shared_client(const char *at)
{
	struct end e = {0};
	int before, status;

	dial(&e, at, 1);
	memfds(e.id->pd);
	before = descriptors();
	char *lower = mmap(NULL, MOVED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char *p = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED && lower != MAP_FAILED && mprotect(p, PAGE, PROT_READ) == 0); /* two mappings */
	pid_t early = fork();
	CHECK(early >= 0);
	if (early == 0) {
		while (strcmp(p + PAGE + 8, "written") != 0)
			usleep(100);
		strcpy(p + PAGE + 72, "read me");
		_exit(0);
	}
	CHECK(mprotect(p, PAGE, PROT_READ | PROT_WRITE) == 0);
	struct ibv_mr *mr = ibv_reg_mr(e.id->pd, p + 8, 2 * PAGE, BOTH);
	CHECK(mr && alone(buffer));
	struct remote r = {(uintptr_t)p + PAGE + 8, mr->rkey};
	memcpy(buffer, &r, sizeof r);
	send_from(&e, e.mr, buffer, sizeof r);
	CHECK(complete(e.id->recv_cq).status == IBV_WC_WR_FLUSH_ERR);
	CHECK(waitpid(early, &status, 0) == early && status == 0 && strcmp(p + PAGE + 72, "read me") == 0);
	CHECK(!alone(p) && ibv_dereg_mr(mr) == 0 && !alone(p));
	CHECK(munmap(p, PAGE) == 0 && descriptors() == before + 2);
	CHECK(munmap(p + PAGE, 2 * PAGE) == 0 && descriptors() == before + 1);
	CHECK(munmap(lower, MOVED) == 0 && descriptors() == before);
	hang_up(&e);
}

static void shared_server(struct rdma_cm_id *listener)
{
	struct end e = {0};

	answer(&e, listener, NULL, NULL);
	register_buffer(&e, 0);
	post_recv(&e, 1);
	accept_it(&e);
	struct remote r = hear(&e);
	struct ibv_sge sge = {.addr = (uintptr_t)strcpy(buffer, "written"), .length = 8, .lkey = e.mr->lkey};
	post_send(&e, &(struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = {.remote_addr = r.addr, .rkey = r.rkey}});
	CHECK(complete(e.id->send_cq).status == IBV_WC_SUCCESS);
	r.addr += 64;
	for (char *answer = buffer + 64; strcmp(answer, "read me") != 0;) {
		read_to(&e, e.mr, answer, r, 0);
		CHECK(complete(e.id->send_cq).status == IBV_WC_SUCCESS);
	}
	hang_up(&e);
}

static const struct test tests[] = {
	{"shared", shared_server, shared_client},
	{"stack", stack_server, stack_client},
	{"silent", silent_server, silent_client},
	{"early", early_server, early_client},
	{"holes", holes_server, holes_client},
	{"moved", moved_server, moved_client},
	{"again", moved_server, again_client},
	{"fresh", fresh_server, fresh_client},
	{0},
};

int main(int argc, char **argv) { return run(tests, argc, argv); }
