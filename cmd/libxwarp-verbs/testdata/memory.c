/* Registered memory. */
#define _GNU_SOURCE
#include "ends.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
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

/* A stack is registered for local access only: Sends read from it, and receives and Reads write to it. */
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
	post_recv_to(&e, e.mr, buffer, 64); /* all have the same wr_id */
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
	post_recv_to(&e, mr, odd, 64); /* flushed */
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
	read_to(&e, mr, base + 512, r, 0); /* no completion */
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
	event(e.id->verbs, IBV_EVENT_QP_REQ_ERR, e.id->qp); /* the message was too long */
	read_to(&e, mr, base + 512, r, 0); /* flushed, with a completion */
	do
		wc = complete(e.id->send_cq);
	while (wc.wr_id != 9);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
	hang_up(&e);
}

enum { SILENT = 255 };

/* Unsignaled Reads use no entry of the completion queue. Their data is present when the next signaled Read
 * completes. */
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
		if (i == SILENT) { /* and one from shared memory */
			sge = (struct ibv_sge){.addr = (uintptr_t)buffer, .length = 64, .lkey = e.mr->lkey};
			wr.send_flags = IBV_SEND_SIGNALED;
		}
		for (int error; (error = ibv_post_send(e.id->qp, &wr, &bad));)
			CHECK(error == ENOMEM); /* the queue is temporarily full */
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

/* await_recv waits until the queue has an entry, without polling it. */
static void await_recv(struct end *e)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(ibv_get_cq_event(e->id->recv_cq_channel, &cq, &context) == 0);
	ibv_ack_cq_events(cq, 1);
}

/* Received data is present when its region or queue pair is destroyed, even before its completion is polled. */
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

/* touch increments pages that were touched before, and pages that were not. */
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

/* Most pages of a region are untouched when it is registered, and others are written to at that time: no write may
 * be lost, and the daemon must see the same data as the program. */
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

/* alone reports whether a child has a copy of the memory at p, and not the same pages. */
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

/* A program may move registered memory, as realloc does. The bytes must stay intact. */
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

/* Memory that a program maps where it moved a region away is new, and the region is unchanged. */
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

/* A program may unmap registered memory. Memory that it maps there next is new and untouched. */
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

/* reach registers n bytes for remote access and returns 0 or errno. Registration for local access must succeed. */
static int reach(struct ibv_pd *pd, char *p, size_t n, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, p, n, 0);

	CHECK(mr && ibv_dereg_mr(mr) == 0);
	if (!(mr = ibv_reg_mr(pd, p, n, access)))
		return errno;
	CHECK(ibv_dereg_mr(mr) == 0);
	return 0;
}

/* A program can register only memory that it can write to for writing, and only memory that it can read for reading. */
static void read_only(struct ibv_pd *pd)
{
	enum { READ = IBV_ACCESS_REMOTE_READ };
	static const char constant[PAGE] = "constant";
	char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED && mprotect(p + PAGE, PAGE, PROT_READ) == 0);
	CHECK(reach(pd, p, 2 * PAGE, BOTH) == EFAULT && reach(pd, p, 2 * PAGE, IBV_ACCESS_LOCAL_WRITE) == EFAULT);
	CHECK(reach(pd, p, 2 * PAGE, READ) == 0 && reach(pd, p, PAGE, BOTH) == 0);
	CHECK(mprotect(p + PAGE, PAGE, PROT_NONE) == 0 && !ibv_reg_mr(pd, p, 2 * PAGE, 0) && errno == EFAULT);
	CHECK(munmap(p, 2 * PAGE) == 0);
	CHECK(reach(pd, (char *)constant, PAGE, BOTH) == EFAULT && reach(pd, (char *)constant, PAGE, READ) == 0);
	CHECK(reach(pd, (char *)(uintptr_t)read_only, 16, BOTH) == EFAULT && strcmp(constant, "constant") == 0);
}

/* A mapped file can be registered for remote access if the daemon can map it: the file is on tmpfs or hugetlbfs, and
 * the program has it open or can open it by its name. */
static void files(struct ibv_pd *pd)
{
	enum { READ = IBV_ACCESS_REMOTE_READ };
	int fd = memfd_create("mine", 0);

	CHECK(fd >= 0 && ftruncate(fd, 2 * PAGE) == 0);
	char *p = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED && reach(pd, p + 1, 2 * PAGE - 1, BOTH) == 0);
	CHECK(!ibv_reg_mr(pd, p + PAGE, 2 * PAGE, BOTH) && errno == EFAULT); /* beyond its end */
	CHECK(mprotect(p, PAGE, PROT_READ) == 0);
	CHECK(reach(pd, p, 2 * PAGE, BOTH) == EFAULT && reach(pd, p, 2 * PAGE, READ) == 0);
	CHECK(close(fd) == 0 && reach(pd, p, PAGE, READ) == EOPNOTSUPP);
	CHECK(munmap(p, 3 * PAGE) == 0);

	CHECK((fd = shm_open("/xwarp-test", O_RDWR | O_CREAT, 0600)) >= 0 && ftruncate(fd, PAGE) == 0);
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED && close(fd) == 0 && reach(pd, p, PAGE, BOTH) == 0);
	CHECK(shm_unlink("/xwarp-test") == 0 && reach(pd, p, PAGE, BOTH) == EOPNOTSUPP);
	CHECK((fd = shm_open("/xwarp-test", O_RDWR | O_CREAT, 0600)) >= 0 && ftruncate(fd, PAGE) == 0);
	CHECK(reach(pd, p, PAGE, BOTH) == EOPNOTSUPP); /* the name refers to another file */
	CHECK(shm_unlink("/xwarp-test") == 0 && munmap(p, PAGE) == 0 && close(fd) == 0);

	CHECK((fd = open("/proc/self/exe", O_RDONLY)) >= 0);
	CHECK((p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0)) != MAP_FAILED && close(fd) == 0);
	CHECK(reach(pd, p, PAGE, READ) == EOPNOTSUPP && munmap(p, PAGE) == 0);
	int id = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0600);
	CHECK(id >= 0 && (p = shmat(id, NULL, 0)) != MAP_FAILED && shmctl(id, IPC_RMID, NULL) == 0);
	CHECK(reach(pd, p, PAGE, BOTH) == EOPNOTSUPP && shmdt(p) == 0);
}

/* Memory shared by two processes. */
enum kind { ANONYMOUS, MEMFD, SHM, HUGE_ANONYMOUS, HUGE_MEMFD };

static char *shared_memory(enum kind kind, size_t n, int *fd)
{
	int flags = MAP_SHARED | (*fd >= 0 ? 0 : MAP_ANONYMOUS);

	if (kind == HUGE_ANONYMOUS)
		flags |= MAP_HUGETLB;
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, flags, *fd, 0);
	CHECK(p != MAP_FAILED);
	if (kind == SHM) { /* the name is sufficient */
		CHECK(close(*fd) == 0);
		*fd = -1;
	}
	return p;
}

static int shared_file(enum kind kind)
{
	return kind == MEMFD ? memfd_create("shared", 0) : kind == HUGE_MEMFD ? memfd_create("shared", MFD_HUGETLB) :
	       kind == SHM ? shm_open("/xwarp-test", O_RDWR | O_CREAT, 0600) : -1;
}

/* other starts a process that shares the memory, waits until the peer has written to it, and writes a reply. It maps
 * the memory itself if that has a name or a descriptor. */
static pid_t other(enum kind kind, char *p, size_t n, int fd, size_t at)
{
	pid_t child = fork();

	CHECK(child >= 0);
	if (child)
		return child;
	if (kind == SHM)
		fd = shared_file(kind);
	if (fd >= 0)
		p = shared_memory(kind, n, &fd);
	while (strcmp(p + at, "written") != 0)
		usleep(100);
	strcpy(p + at + 64, "read me");
	_exit(0);
}

/* meet_in lets the server write to memory of another process, and read the reply. */
static void meet_in(struct end *e, enum kind kind, size_t n)
{
	enum { AT = PAGE + 8 };
	int fd = shared_file(kind), status;

	CHECK(fd < 0 || ftruncate(fd, (off_t)n) == 0);
	char *p = shared_memory(kind, n, &fd);
	pid_t early = other(kind, p, n, fd, AT);
	struct ibv_mr *mr = ibv_reg_mr(e->id->pd, p + 8, 2 * PAGE, BOTH);
	CHECK(mr && alone(buffer));
	struct remote r = {(uintptr_t)p + AT, mr->rkey};
	post_recv(e, 1);
	memcpy(buffer, &r, sizeof r);
	send_from(e, e->mr, buffer, sizeof r);
	received(e);
	CHECK(waitpid(early, &status, 0) == early && status == 0 && strcmp(p + AT + 64, "read me") == 0);
	CHECK(!alone(p) && ibv_dereg_mr(mr) == 0 && !alone(p));
	CHECK(munmap(p, n) == 0 && (fd < 0 || close(fd) == 0));
	if (kind == SHM)
		CHECK(shm_unlink("/xwarp-test") == 0);
}

/* meet_nowhere lets the server read and write a region that the program has unmapped, and that stays until it is
 * deregistered. */
static void meet_nowhere(struct end *e)
{
	char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = p != MAP_FAILED ? ibv_reg_mr(e->id->pd, p, PAGE, BOTH) : NULL;

	CHECK(mr);
	strcpy(p + 64, "read me");
	CHECK(munmap(p, PAGE) == 0);
	struct remote r = {(uintptr_t)p, mr->rkey};
	post_recv(e, 1);
	memcpy(buffer, &r, sizeof r);
	send_from(e, e->mr, buffer, sizeof r);
	received(e);
	CHECK(ibv_dereg_mr(mr) == 0);
}

/* meet_there is the server for meet_in and meet_nowhere. */
static void meet_there(struct end *e)
{
	struct remote r = hear(e);
	struct ibv_sge sge = {.addr = (uintptr_t)strcpy(buffer, "written"), .length = 8, .lkey = e->mr->lkey};

	post_recv(e, 1);
	post_send(e, &(struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = {.remote_addr = r.addr, .rkey = r.rkey}});
	CHECK(complete(e->id->send_cq).status == IBV_WC_SUCCESS);
	r.addr += 64;
	*(buffer + 128) = 0;
	for (char *answer = buffer + 128; strcmp(answer, "read me") != 0;) {
		read_to(e, e->mr, answer, r, 0);
		CHECK(complete(e->id->send_cq).status == IBV_WC_SUCCESS);
	}
	send_bytes(e, "done");
}

/* Anonymous memory shared with children stays shared, and its descriptor is closed with it. */
static void shared_client(const char *at)
{
	struct end e = {0};

	dial(&e, at, 0);
	read_only(e.id->pd);
	files(e.id->pd);
	int before = descriptors();
	char *lower = mmap(NULL, MOVED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char *p = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED && lower != MAP_FAILED && mprotect(p, PAGE, PROT_READ) == 0); /* two mappings */
	CHECK(reach(e.id->pd, p + PAGE, PAGE, BOTH) == 0 && reach(e.id->pd, p, 2 * PAGE, BOTH) == EFAULT);
	CHECK(munmap(p, PAGE) == 0 && descriptors() == before + 2);
	CHECK(munmap(p + PAGE, 2 * PAGE) == 0 && descriptors() == before + 1);
	CHECK(munmap(lower, MOVED) == 0 && descriptors() == before);
	for (enum kind kind = ANONYMOUS; kind <= SHM; kind++)
		meet_in(&e, kind, 4 * PAGE);
	CHECK(descriptors() == before);
	meet_nowhere(&e);
	hang_up(&e);
}

static void shared_server(struct rdma_cm_id *listener)
{
	struct end e = {0};

	answer(&e, listener, NULL, NULL);
	register_buffer(&e, 0);
	post_recv(&e, 1);
	accept_it(&e);
	for (enum kind kind = ANONYMOUS; kind <= SHM; kind++)
		meet_there(&e);
	meet_there(&e);
	hang_up(&e);
}

/* Shared huge pages are registered in place, also parts of one. Private ones are moved as a whole. */
static void huge_client(const char *at)
{
	enum { HUGE = 2 << 20 };
	struct end e = {0};

	dial(&e, at, 0);
	meet_in(&e, HUGE_ANONYMOUS, HUGE);
	meet_in(&e, HUGE_MEMFD, HUGE);
	char *p = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	CHECK(p != MAP_FAILED);
	memset(p, 'x', HUGE);
	struct ibv_mr *mr = ibv_reg_mr(e.id->pd, p + PAGE, PAGE, BOTH);
	CHECK(mr && alone(p) && ibv_dereg_mr(mr) == 0 && alone(p));
	for (int i = 0; i < HUGE; i++)
		CHECK(p[i] == 'x');
	CHECK(munmap(p, HUGE) == 0);
	hang_up(&e);
}

static void huge_server(struct rdma_cm_id *listener)
{
	struct end e = {0};

	answer(&e, listener, NULL, NULL);
	register_buffer(&e, 0);
	post_recv(&e, 1);
	accept_it(&e);
	meet_there(&e);
	meet_there(&e);
	hang_up(&e);
}

/* Memory that another process truncates during Writes of the peer ends their connection. The next connection works. */
static void cut_client(const char *at)
{
	struct end e = {0};
	int fd = memfd_create("cut", 0);

	CHECK(fd >= 0 && ftruncate(fd, MOVED) == 0);
	char *p = mmap(NULL, MOVED, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	dial(&e, at, 1);
	struct ibv_mr *mr = ibv_reg_mr(e.id->pd, p, MOVED, BOTH);
	CHECK(mr);
	struct remote r = {(uintptr_t)p, mr->rkey};
	memcpy(buffer, &r, sizeof r);
	send_from(&e, e.mr, buffer, sizeof r);
	while (!*(volatile char *)p)
		usleep(100);
	CHECK(ftruncate(fd, 0) == 0);
	CHECK(complete(e.id->recv_cq).status == IBV_WC_WR_FLUSH_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
	hang_up(&e);
	e = (struct end){0};
	dial(&e, at, 0);
	meet_in(&e, MEMFD, 4 * PAGE);
	hang_up(&e);
}

static void cut_server(struct rdma_cm_id *listener)
{
	struct end e = {0};

	answer(&e, listener, NULL, NULL);
	register_buffer(&e, 0);
	post_recv(&e, 1);
	accept_it(&e);
	struct remote r = hear(&e);
	memset(buffer, 1, sizeof buffer);
	do {
		struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = SIZE, .lkey = e.mr->lkey};
		post_send(&e, &(struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
			.wr.rdma = {.remote_addr = r.addr, .rkey = r.rkey}});
	} while (complete(e.id->send_cq).status == IBV_WC_SUCCESS);
	hang_up(&e);
	e = (struct end){0};
	answer(&e, listener, NULL, NULL);
	register_buffer(&e, 0);
	post_recv(&e, 1);
	accept_it(&e);
	meet_there(&e);
	hang_up(&e);
}

static const struct test tests[] = {
	{"shared", shared_server, shared_client},
	{"huge", huge_server, huge_client},
	{"cut", cut_server, cut_client},
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
