/* The connection to the daemon: one per device, shared by its contexts. */
#include "session.h"

#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static struct session *sessions; /* open sessions, for fork */
static pthread_mutex_t sessions_lock = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local bool quiet;

void xw_session_quiet(void) { quiet = true; }

/* xw_sessions_forked closes the parent's sessions in a child, whose descriptors would otherwise keep them open after
 * the parent exits. */
void xw_sessions_forked(void)
{
	pthread_mutex_init(&sessions_lock, NULL);
	for (struct session *s = sessions; s; s = s->next) {
		pthread_mutex_init(&s->lock, NULL); /* its holder does not exist in the child */
		s->dead = true;
		if (s->fd >= 0)
			close(s->fd);
	}
	sessions = NULL;
}

/* warn_refused says why the daemon's socket refused a program, and the next step. */
static void warn_refused(const char *path, int error)
{
	struct stat st;
	struct group *g = NULL;

	if (error != EACCES) {
		xw_warn("%s: %s (is xwarpd running?)", path, strerror(error));
		return;
	}
	if (stat(path, &st) == 0 && st.st_gid != 0)
		g = getgrgid(st.st_gid);
	if (g)
		xw_warn("%s: %s (join its group: sudo usermod -aG %s USER, then log in again)", path, strerror(error),
			g->gr_name);
	else
		xw_warn("%s: %s (only root may use it; daemon.socket_group admits a group)", path, strerror(error));
}

static int dial(void)
{
	const char *path = secure_getenv("XWARP_SOCKET");
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd;

	if (!path || !*path)
		path = XW_DEFAULT_PATH;
	if (strlen(path) >= sizeof to.sun_path)
		return xw_fail(ENAMETOOLONG);
	strcpy(to.sun_path, path);
	fd = xw_socket(AF_UNIX, SOCK_STREAM);
	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
		int error = errno;
		if (!quiet)
			warn_refused(path, error);
		close(fd);
		return xw_fail(error);
	}
	return fd;
}

static void parse_link(struct json v, struct link *l)
{
	uint8_t *m = l->mac;
	char mac[18] = "";

	json_text(json_get(v, "name"), l->name, sizeof l->name);
	json_text(json_get(v, "interface"), l->interface, sizeof l->interface);
	l->kernel = json_is(json_get(v, "transport"), "kernel");
	json_u32(v, "ifindex", &l->ifindex);
	json_text(json_get(v, "netns"), l->netns, sizeof l->netns);
	json_text(json_get(v, "mac"), mac, sizeof mac);
	if (sscanf(mac, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", m, m + 1, m + 2, m + 3, m + 4, m + 5) != 6)
		memset(m, 0, sizeof l->mac);
	if (!json_u32(v, "mtu", &l->mtu) || l->mtu >= 1 << 16)
		l->mtu = 1500;
}

bool xw_is_here(const struct link *l)
{
	char here[sizeof l->netns] = "";

	return readlink("/proc/thread-self/ns/net", here, sizeof here - 1) > 0 && strcmp(here, l->netns) == 0;
}

/* plain copies the characters that need no escape in JSON. */
static void plain(char *to, size_t room, const char *from)
{
	for (; *from && room > 1; from++, room--)
		*to++ = *from >= ' ' && *from < 0x7f && *from != '"' && *from != '\\' ? *from : '?';
	*to = 0;
}

/* limit_or returns a limit of the user, up to what the library supports, or absent if the daemon reports none. */
static uint64_t limit_or(struct json limits, const char *key, uint64_t absent, uint64_t usable)
{
	uint64_t n;

	return !json_number(json_get(limits, key), &n) ? absent : n < usable ? n : usable;
}

static struct user_limits parse_limits(struct json l)
{
	return (struct user_limits){
		.memory = limit_or(l, "memory", XW_MAX_REGION, XW_MAX_REGION) & ~(uint64_t)(sysconf(_SC_PAGESIZE) - 1),
		.pds = (int)limit_or(l, "pds", 256, INT_MAX), .mrs = (int)limit_or(l, "mrs", 4096, INT_MAX),
		.cqs = (int)limit_or(l, "cqs", 1024, INT_MAX), .srqs = (int)limit_or(l, "srqs", 256, INT_MAX),
		.qps = (int)limit_or(l, "qps", 1024, XW_MAX_QPS),
		.completions = (int)limit_or(l, "completions", XW_MAX_CQ_DEPTH, XW_MAX_CQ_DEPTH),
		.work_requests = (int)limit_or(l, "work_requests", XW_MAX_DEPTH, XW_MAX_DEPTH),
	};
}

static int hello(struct session *s, const char *device)
{
	struct json item = {0}, list;
	REPLY(c);
	char program[32];

	plain(program, sizeof program, program_invocation_short_name);
	int error = xw_call(s, &c, -1, "hello", "{\"version\":%llu,\"device\":\"%s\",\"program\":\"%s\"}", XW_VERSION,
			    device, program);

	if ((error == EPROTONOSUPPORT || error == EINVAL) && (!quiet || xw_first_time(__func__)))
		xw_warn("xwarpd refused the connection: %.*s", (int)c.failure.n, c.failure.p);
	if (error)
		return error;
	if (c.n_files != 2 || !xw_map(&s->bell, xw_take_file(&c, 0)) || s->bell.len < XW_DOORBELL_LEN)
		return EPROTO;
	s->ring = xw_take_file(&c, 1);
	parse_link(json_get(c.result, "device"), &s->link);
	s->limits = parse_limits(json_get(c.result, "limits"));
	list = json_get(c.result, "devices");
	while (json_next(list, &item)) {
		struct link *l = realloc(s->links, sizeof *l * (size_t)(s->n_links + 1));
		if (!l)
			break;
		s->links = l;
		memset(&l[s->n_links], 0, sizeof *l);
		parse_link(item, &l[s->n_links++]);
	}
	return 0;
}

/* read_frames owns a reference. */
static void *read_frames(void *session)
{
	xw_read_frames(session);
	xw_session_put(session);
	return NULL;
}

struct session *xw_session_open(const char *device, int *error)
{
	struct session *s = calloc(1, sizeof *s);
	sigset_t all, before;

	if (!s) {
		*error = ENOMEM;
		return NULL;
	}
	s->ring = -1;
	s->refs = 2; /* one of the caller, one of the reader */
	pthread_mutex_init(&s->lock, NULL);
	s->fd = dial();
	if (s->fd < 0) {
		*error = errno;
		free(s);
		return NULL;
	}
	LOCKED(&sessions_lock)
		LINK(sessions, s);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are handled by threads of the program */
	*error = pthread_create(&s->reader, NULL, read_frames, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (*error) {
		s->refs = 1;
		xw_session_put(s);
		return NULL;
	}
	pthread_detach(s->reader);
	*error = hello(s, device);
	if (*error) {
		xw_session_put(s);
		return NULL;
	}
	return s;
}

struct session *xw_session_get(struct session *s)
{
	LOCKED(&s->lock)
		s->refs++;
	return s;
}

/* xw_session_put drops a reference. The reader has the last one, and exits when no other is left. */
void xw_session_put(struct session *s)
{
	LOCKED(&s->lock) {
		int left = --s->refs;
		if (left == 1 && !s->dead)
			shutdown(s->fd, SHUT_RDWR);
		if (left > 0)
			return;
	}
	LOCKED(&sessions_lock)
		UNLINK(sessions, s);
	if (s->fd >= 0)
		close(s->fd);
	if (s->ring >= 0)
		close(s->ring);
	xw_unmap(&s->bell);
	free(s->links);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
