/* forkbusy ADDRESS: a thread asks the daemon, which the test has stopped, for the device of an address, while another one
 * forks. The child must open the device itself when the daemon goes on. */
#include "ends.h"

#include <signal.h>
#include <sys/wait.h>

static struct sockaddr_in at = {.sin_family = AF_INET};

static void *bound(void *unused)
{
	struct rdma_cm_id *id;

	(void)unused;
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0 && rdma_bind_addr(id, (struct sockaddr *)&at) == 0);
	return NULL;
}

static void say(const char *word)
{
	puts(word);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	pthread_t thread;
	sigset_t set;
	int signal, status;

	CHECK(argc == 2 && inet_pton(AF_INET, argv[1], &at.sin_addr) == 1);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	struct ibv_device **list = ibv_get_device_list(NULL); /* opens a session, not the device */
	CHECK(list && list[0]);
	say("ready");
	CHECK(sigwait(&set, &signal) == 0 && pthread_create(&thread, NULL, bound, NULL) == 0);
	usleep(300 * 1000); /* until the thread waits for the daemon */
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(60);
		bound(NULL);
		_exit(0);
	}
	say("forked");
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	say("all is well");
	return 0;
}
