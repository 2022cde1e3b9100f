/* elsewhere ADDRESS: a program in another network namespace than its daemon. There the index of the daemon's interface is
 * that of an unrelated interface, which has ADDRESS. */
#include "ends.h"

#include <inttypes.h>

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_gid_entry entry;
	struct rdma_cm_id *id;

	CHECK(argc == 2 && inet_pton(AF_INET, argv[1], &a.sin_addr) == 1 && list && list[0]);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context && ibv_query_gid_ex(context, 1, 0, &entry, 0) == 0);
	printf("guid %016" PRIx64 " index %d of GID %u\n", be64toh(ibv_get_device_guid(list[0])), ibv_get_device_index(list[0]),
	       entry.ndev_ifindex);
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&a) == -1 && errno == ENODEV);
	return 0;
}
