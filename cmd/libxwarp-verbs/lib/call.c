/* Requests to the daemon, replies and events. */
#include "session.h"

#include <sys/socket.h>

#define MAX_BODY (64U << 20) /* maximum length of a reply in the protocol */

/* receive fills b and keeps the descriptors that arrive with it. */
static bool receive(int fd, uint8_t *b, size_t n, int *files, int *n_files)
{
	while (n > 0) {
		union {
			struct cmsghdr align;
			char room[CMSG_SPACE(sizeof(int) * XW_MAX_FILES)];
		} control;
		struct iovec v = {b, n};
		struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
		ssize_t got = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
			if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
				continue;
			size_t k = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
			for (size_t i = 0; i < k; i++) {
				int f;
				memcpy(&f, CMSG_DATA(c) + i * sizeof f, sizeof f);
				if (*n_files < (int)XW_MAX_FILES)
					files[(*n_files)++] = f;
				else
					close(f);
			}
		}
		b += got;
		n -= (size_t)got;
	}
	return true;
}

static bool transmit(int fd, const void *b, size_t n, int file)
{
	while (n > 0) {
		union {
			struct cmsghdr align;
			char room[CMSG_SPACE(sizeof(int))];
		} control = {0};
		struct iovec v = {(void *)(uintptr_t)b, n};
		struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
		if (file >= 0) {
			m.msg_control = &control;
			m.msg_controllen = sizeof control;
			struct cmsghdr *c = CMSG_FIRSTHDR(&m);
			c->cmsg_level = SOL_SOCKET;
			c->cmsg_type = SCM_RIGHTS;
			c->cmsg_len = CMSG_LEN(sizeof file);
			memcpy(CMSG_DATA(c), &file, sizeof file);
		}
		ssize_t sent = sendmsg(fd, &m, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return false;
		file = -1;
		b = (const char *)b + sent;
		n -= (size_t)sent;
	}
	return true;
}

/* error_of returns the errno of a failure: that of the daemon, or the one that matches its code. */
static int error_of(struct json failure)
{
	static const struct {
		const char *code;
		int error;
	} codes[] = {
		{"invalid", EINVAL}, {"version", EPROTONOSUPPORT}, {"unknown", ENODEV}, {"permission", EACCES},
		{"quota", ENOMEM}, {"busy", EBUSY}, {"closed", ECONNABORTED}, {"canceled", ECANCELED},
	};
	struct json code = json_get(failure, "code");
	uint32_t number;

	if (json_u32(failure, "errno", &number) && number > 0 && number < 4096)
		return (int)number;
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
		if (json_is(code, codes[i].code))
			return codes[i].error;
	return EIO;
}

void xw_call_explain(const struct call *c)
{
	char why[1024];

	if (json_text(json_get(c->failure, "text"), why, sizeof why) && xw_first_time(c->op))
		xw_warn("xwarpd refused %s: %s", c->op, why);
}

/* settle passes a reply to its call. The session must not be locked. */
static void settle(struct call *c, char *body, size_t n, int error)
{
	struct json reply = {body, n};

	c->body = body;
	if (error == 0) {
		c->failure = json_get(reply, "error");
		c->result = json_get(reply, "result");
		c->error = c->failure.n ? error_of(c->failure) : 0;
		if (c->error && xw_debug())
			xw_warn("xwarpd: %.*s", (int)c->failure.n, c->failure.p);
		else if (json_is(json_get(c->failure, "code"), "quota")) /* ENOMEM alone is not specific enough */
			xw_call_explain(c);
	} else {
		c->error = error;
	}
	c->done(c);
}

/* take_call removes a waiting call from the session, any one if id is 0. It returns NULL if there is none. */
static struct call *take_call(struct session *s, uint64_t id)
{
	struct call **p, *c;

	GUARD(&s->lock);
	for (p = &s->calls; (c = *p) && id && c->id != id; p = &c->next)
		;
	if (c)
		*p = c->next;
	return c;
}

/* incoming handles one frame. It passes the body to settle, or frees it. It returns false for an unexpected frame,
 * which ends the session. */
static bool incoming(struct session *s, uint8_t kind, char *body, size_t n, int *files, int n_files)
{
	struct json text = {body, n};
	const struct layer *above;
	struct call *c;
	uint64_t id;

	if (kind == XW_KIND_REPLY && json_number(json_get(text, "id"), &id) && (c = take_call(s, id))) {
		memcpy(c->files, files, sizeof c->files);
		c->n_files = n_files;
		settle(c, body, n, 0);
		return true;
	}
	for (int i = 0; i < n_files; i++)
		close(files[i]);
	if (kind == XW_KIND_REPLY && json_get(text, "error").n)
		xw_warn("xwarpd: %.*s", (int)json_get(text, "error").n, json_get(text, "error").p);
	for (int i = 0; kind == XW_KIND_EVENT && i < N_LAYERS; i++)
		if ((above = s->layers[i]))
			above->event(s, text);
	free(body);
	return kind == XW_KIND_EVENT;
}

/* end fails all waiting calls: the daemon is gone, or the last context was closed. */
static void end(struct session *s)
{
	const struct layer *above;
	struct call *c;
	bool orphaned = false;

	LOCKED(&s->lock) {
		for (int i = 0; i < N_LAYERS; i++)
			if ((above = s->layers[i]) && above->lost)
				above->lost(s);
		s->dead = true;
		int fd = s->fd;
		s->fd = -1; /* before close: a forked child closes s->fd, whose number may be reused */
		shutdown(fd, SHUT_RDWR); /* a running daemon then ends the session and the channels of its queues */
		close(fd); /* open contexts may keep the session for as long as the program runs */
		orphaned = s->refs > 1; /* otherwise the last context was closed */
	}
	while ((c = take_call(s, 0)))
		settle(c, NULL, 0, EIO);
	for (int i = 0; orphaned && i < N_LAYERS; i++)
		if ((above = s->layers[i]))
			above->orphaned(s);
}

void xw_read_frames(struct session *s)
{
	uint8_t h[XW_HEADER_LEN];

	for (;;) {
		int files[XW_MAX_FILES], n_files = 0;
		uint32_t n;
		char *body = NULL;
		bool good = receive(s->fd, h, sizeof h, files, &n_files);
		if (good) {
			n = (uint32_t)h[0] | (uint32_t)h[1] << 8 | (uint32_t)h[2] << 16 | (uint32_t)h[3] << 24;
			good = n <= MAX_BODY && (body = malloc(n + 1)) &&
			       receive(s->fd, (uint8_t *)body, n, files, &n_files) && n_files == h[5];
		}
		if (good) {
			body[n] = 0;
			if (incoming(s, h[4], body, n, files, n_files))
				continue;
			break;
		}
		free(body);
		for (int i = 0; i < n_files; i++)
			close(files[i]);
		break;
	}
	end(s);
}

/* transmit_call registers a call and sends its request. It returns errno. */
static int transmit_call(struct session *s, struct call *c, int fd, const char *format, va_list ap)
{
	char body[8192];
	int n, args;

	GUARD(&s->lock);
	if (s->dead)
		return EIO;
	c->id = ++s->last;
	n = snprintf(body + XW_HEADER_LEN, sizeof body - XW_HEADER_LEN, "{\"id\":%llu,\"op\":\"%s\",\"args\":",
		     (unsigned long long)c->id, c->op) + (int)XW_HEADER_LEN;
	args = vsnprintf(body + n, sizeof body - (size_t)n - 1, format, ap);
	if (args < 0 || (size_t)(n + args) + 2 > sizeof body)
		return EINVAL;
	n += args;
	body[n++] = '}';
	uint32_t length = (uint32_t)n - XW_HEADER_LEN;
	uint8_t h[XW_HEADER_LEN] = {(uint8_t)length, (uint8_t)(length >> 8), (uint8_t)(length >> 16), 0,
				    XW_KIND_REQUEST, fd >= 0};
	memcpy(body, h, sizeof h);
	if (!transmit(s->fd, body, (size_t)n, fd))
		return EIO;
	LINK(s->calls, c);
	return 0;
}

static void send_call(struct session *s, struct call *c, int fd, const char *op, const char *format, va_list ap)
{
	c->op = op;
	c->n_files = 0;
	c->body = NULL;
	c->result = c->failure = (struct json){0};
	int error = transmit_call(s, c, fd, format, ap);
	if (error)
		settle(c, NULL, 0, error);
}

void xw_begin(struct session *s, struct call *c, const char *op, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	send_call(s, c, -1, op, format, ap);
	va_end(ap);
}

static void wake(struct call *c) { sem_post(&c->ready); }

static int call_wait(struct session *s, struct call *c, int fd, const char *op, const char *format, va_list ap)
{
	c->done = wake;
	sem_init(&c->ready, 0, 0);
	send_call(s, c, fd, op, format, ap);
	while (sem_wait(&c->ready) != 0)
		;
	sem_destroy(&c->ready);
	return c->error;
}

int xw_call(struct session *s, struct call *c, int fd, const char *op, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	int error = call_wait(s, c, fd, op, format, ap);
	va_end(ap);
	return error;
}

int xw_take_file(struct call *c, int i)
{
	int fd = i < c->n_files ? c->files[i] : -1;

	if (i < c->n_files)
		c->files[i] = -1;
	return fd;
}

void xw_call_end(struct call *c)
{
	for (int i = 0; i < c->n_files; i++)
		if (c->files[i] >= 0)
			close(c->files[i]);
	c->n_files = 0;
	free(c->body);
	c->body = NULL;
}

int xw_ask(struct session *s, const char *op, const char *format, ...)
{
	REPLY(c);
	va_list ap;

	va_start(ap, format);
	int error = call_wait(s, &c, -1, op, format, ap);
	va_end(ap);
	return error;
}

int xw_destroy(struct session *s, const char *op, uint32_t handle)
{
	int error = xw_ask(s, op, "{\"handle\":%u}", handle);

	return s->dead ? 0 : error;
}

static void forget(struct call *c)
{
	xw_call_end(c);
	free(c);
}

void xw_send(struct session *s, const char *op, const char *format, ...)
{
	struct call *c = calloc(1, sizeof *c);
	va_list ap;

	if (!c)
		return;
	c->done = forget;
	va_start(ap, format);
	send_call(s, c, -1, op, format, ap);
	va_end(ap);
}

void xw_cancel(struct session *s, struct call *c) { xw_send(s, "cancel", "{\"id\":%llu}", (unsigned long long)c->id); }
