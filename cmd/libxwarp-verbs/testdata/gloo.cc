/* gloo adds up vectors with other processes, by two of Gloo's algorithms over its transport ibverbs, and compares
 * every sum: gloo DIRECTORY RANK SIZE. The processes find each other in DIRECTORY. Algorithms live until the end:
 * Gloo fails if one is destroyed while its last message is in flight. */
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

#include <unistd.h>

#include <cstdio>

template <class Sum>
static bool add(std::shared_ptr<gloo::Context> c, size_t n)
{
	auto v = new std::vector<float>(n);
	for (size_t i = 0; i < n; i++)
		(*v)[i] = float(i % 1000) + float(c->rank);
	(new Sum(c, {v->data()}, int(n)))->run();
	for (size_t i = 0; i < n; i++)
		if ((*v)[i] != float(i % 1000) * float(c->size) + float(c->size * (c->size - 1) / 2))
			return false;
	return true;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	gloo::rendezvous::FileStore store(argv[1]);
	auto c = std::make_shared<gloo::rendezvous::Context>(atoi(argv[2]), atoi(argv[3]));
	auto device = gloo::transport::ibverbs::CreateDevice({"", 1, 0});
	c->connectFullMesh(store, device);
	for (size_t n : {1, 1000, 300000})
		for (int again = 0; again < 3; again++)
			if (!add<gloo::AllreduceRingChunked<float>>(c, n) || !add<gloo::AllreduceHalvingDoubling<float>>(c, n)) {
				printf("a sum of %zu is wrong\n", n);
				return 1;
			}
	puts("all is well");
	fflush(stdout);
	sleep(1); /* others may still use this process' memory */
	_exit(0);
}
