/* remap: rank 0 sends memory that it maps, fills, sends and unmaps, several times at one address. The other ranks
 * receive into such memory, and compare. Run by mpirun. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum { ROUNDS = 20, SIZE = 4 << 20 };

int main(int argc, char **argv)
{
	void *at = (void *)0x600000000000;
	int rank, ranks, wrong = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int i = 1; i <= ROUNDS; i++) {
		unsigned char *p = mmap(at, SIZE, PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (p != at) {
			perror("mmap");
			MPI_Abort(MPI_COMM_WORLD, 2);
		}
		memset(p, rank ? 0xee : i, SIZE);
		if (rank)
			MPI_Recv(p, SIZE, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (int to = 1; !rank && to < ranks; to++)
			MPI_Send(p, SIZE, MPI_BYTE, to, 0, MPI_COMM_WORLD);
		size_t bad = 0;
		for (size_t k = 0; k < SIZE; k++)
			bad += p[k] != i;
		if (bad)
			printf("round %d: %zu of %d bytes are wrong\n", i, bad, SIZE);
		wrong += bad > 0;
		MPI_Barrier(MPI_COMM_WORLD);
		munmap(p, SIZE);
	}
	if (rank && !wrong)
		puts("all is well");
	MPI_Finalize();
	return wrong != 0;
}
