// engines 3fs|nccl: the calls that DeepSeek 3FS and NCCL make first, in their order, with a queue pair that is
// connected to itself. Both read files below ibdev_path or /sys/class/infiniband.
#include <arpa/inet.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <infiniband/verbs.h>
#include <limits.h>
#include <string>
#include <thread>
#include <unistd.h>

#include "check.h"

static const int size = 1 << 20;
static char *memory;

// typeOf reads the type of a GID as 3FS does, by a path.
static std::string typeOf(const std::string &device, int index)
{
	std::ifstream file(device + "/ports/1/gid_attrs/types/" + std::to_string(index));
	std::string type;

	CHECK(std::getline(file, type));
	return type;
}

// firstGID returns the index of the first RoCE v2 GID that is neither zero nor link-local.
static int firstGID(ibv_context *c, const std::string &device, ibv_gid *gid)
{
	for (int i = 0; i < 32; i++) {
		CHECK(ibv_query_gid(c, 1, i, gid) == 0);
		auto a = reinterpret_cast<in6_addr *>(gid->raw);
		if (!IN6_IS_ADDR_UNSPECIFIED(a) && !IN6_IS_ADDR_LINKLOCAL(a) && typeOf(device, i).rfind("RoCE v2", 0) == 0)
			return i;
	}
	return -1;
}

static void connectSelf(ibv_qp *q, int index, const ibv_gid &gid, ibv_mtu mtu, uint8_t reads)
{
	ibv_qp_attr a = {};
	a.qp_state = IBV_QPS_INIT;
	a.port_num = 1;
	a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	CHECK(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	ibv_ece ece = {};
	int error = ibv_query_ece(q, &ece); // NCCL works without ECE
	CHECK(error == 0 || error == EOPNOTSUPP);
	a = {};
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = mtu;
	a.dest_qp_num = q->qp_num;
	a.max_dest_rd_atomic = reads;
	a.min_rnr_timer = 12;
	a.ah_attr.is_global = 1;
	a.ah_attr.port_num = 1;
	a.ah_attr.grh.dgid = gid;
	a.ah_attr.grh.sgid_index = (uint8_t)index;
	a.ah_attr.grh.hop_limit = 255;
	CHECK(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	a = {};
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 20;
	a.retry_cnt = a.rnr_retry = 7;
	a.max_rd_atomic = reads;
	CHECK(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					   IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void post(ibv_qp *q, ibv_mr *mr, ibv_wr_opcode op, uint64_t from, uint64_t to)
{
	ibv_sge sge = {(uintptr_t)memory + from, 65536, mr->lkey};
	ibv_send_wr w = {}, *bad;

	w.wr_id = op;
	w.sg_list = &sge;
	w.num_sge = 1;
	w.opcode = op;
	w.send_flags = IBV_SEND_SIGNALED;
	w.imm_data = htonl(42);
	w.wr.rdma.remote_addr = (uintptr_t)memory + to;
	w.wr.rdma.rkey = mr->rkey;
	CHECK(ibv_post_send(q, &w, &bad) == 0);
}

static void complete(ibv_cq *cq, int n)
{
	ibv_wc wc;

	for (int got; n > 0; n -= got) {
		CHECK((got = ibv_poll_cq(cq, 1, &wc)) >= 0);
		CHECK(got == 0 || wc.status == IBV_WC_SUCCESS);
	}
}

// exchange writes and reads back.
static void exchange(ibv_qp *q, ibv_cq *cq, ibv_mr *mr)
{
	ibv_recv_wr r = {}, *bad; // NCCL's receives have no memory

	memset(memory, 'x', 65536);
	CHECK(ibv_post_recv(q, &r, &bad) == 0);
	post(q, mr, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 65536);
	complete(cq, 2);
	post(q, mr, IBV_WR_RDMA_READ, 131072, 65536);
	complete(cq, 1);
	CHECK(memcmp(memory, memory + 65536, 65536) == 0 && memcmp(memory, memory + 131072, 65536) == 0);
}

static ibv_qp *queuePair(ibv_pd *pd, ibv_cq *cq)
{
	ibv_qp_init_attr a = {};

	a.send_cq = a.recv_cq = cq;
	a.qp_type = IBV_QPT_RC;
	a.cap = {64, 64, 1, 1, 0};
	ibv_qp *q = ibv_create_qp(pd, &a);
	CHECK(q);
	return q;
}

static void run3FS()
{
	int n;
	ibv_device **list = ibv_get_device_list(&n);
	ibv_device_attr attr;
	ibv_port_attr port;
	ibv_gid gid;

	CHECK(list && n > 0);
	ibv_context *c = ibv_open_device(list[0]);
	CHECK(c);
	ibv_pd *pd = ibv_alloc_pd(c);
	CHECK(pd && ibv_query_device(c, &attr) == 0 && attr.phys_port_cnt == 1);
	CHECK(fcntl(c->async_fd, F_SETFL, fcntl(c->async_fd, F_GETFL) | O_NONBLOCK) == 0);
	CHECK(ibv_query_port(c, 1, &port) == 0 && port.link_layer == IBV_LINK_LAYER_ETHERNET && port.state == IBV_PORT_ACTIVE);
	int index = firstGID(c, c->device->ibdev_path, &gid);
	CHECK(index >= 0 && std::string(c->device->dev_path) == c->device->ibdev_path);
	ibv_free_device_list(list);
	ibv_comp_channel *channel = ibv_create_comp_channel(c);
	ibv_cq *cq = ibv_create_cq(c, 256, nullptr, channel, 0);
	CHECK(channel && cq);
	ibv_mr *mr = ibv_reg_mr(pd, memory, size,
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING);
	CHECK(mr);
	ibv_qp *q = queuePair(pd, cq);
	connectSelf(q, index, gid, port.active_mtu, 16);
	exchange(q, cq, mr);
	CHECK(ibv_destroy_qp(q) == 0 && ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
}

static void runNCCL()
{
	int n;
	ibv_device_attr attr;
	ibv_port_attr port;
	ibv_gid gid;

	CHECK(ibv_fork_init() == 0);
	ibv_device **list = ibv_get_device_list(&n);
	CHECK(list && n > 0);
	ibv_context *c = ibv_open_device(list[0]);
	CHECK(c && ibv_query_device(c, &attr) == 0 && attr.sys_image_guid != 0);
	CHECK(ibv_query_port(c, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE && port.active_speed != 0);
	std::string device = std::string("/sys/class/infiniband/") + list[0]->name;
	char real[PATH_MAX]; // NCCL takes the PCI address from it, if it is there
	CHECK(realpath((device + "/device").c_str(), real) == nullptr || strncmp(real, "/sys/devices/", 13) == 0);
	std::thread([c] {
		ibv_async_event e;
		while (ibv_get_async_event(c, &e) == 0)
			ibv_ack_async_event(&e);
	}).detach();
	ibv_free_device_list(list);
	ibv_pd *pd = ibv_alloc_pd(c);
	CHECK(pd && ibv_reg_dmabuf_mr(pd, 0, 0, 0, -1, 0) == nullptr && (errno == EOPNOTSUPP || errno == EPROTONOSUPPORT));
	ibv_cq *cq = ibv_create_cq(c, 2 * 256, nullptr, nullptr, 0);
	CHECK(cq);
	ibv_qp *q = queuePair(pd, cq);
	ibv_mr *mr = ibv_reg_mr_iova2(pd, memory, size, (uintptr_t)memory,
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING);
	CHECK(mr);
	int index = firstGID(c, device, &gid);
	CHECK(index >= 0);
	connectSelf(q, index, gid, port.active_mtu, 1);
	exchange(q, cq, mr);
	CHECK(ibv_destroy_qp(q) == 0 && ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2 && (memory = static_cast<char *>(aligned_alloc(4096, size))));
	argv[1][0] == '3' ? run3FS() : runNCCL();
	puts("all is well");
}
