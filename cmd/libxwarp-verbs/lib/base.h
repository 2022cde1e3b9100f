/* The lowest layer: errors, messages, JSON, rings in shared memory. PROTOCOL.md of package control says what the daemon
 * expects. Layers from low to high: base.h, memory.h and session.h, objects.h, cm.h. A header includes lower ones only. */
#pragma once
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "layout.h"

#define EXPORT __attribute__((visibility("default")))
#define container_of(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))

/* fail sets errno and returns -1, null sets errno and returns NULL. */
int xw_fail(int error);
void *xw_null(int error);
/* xw_refused says once, on stderr, that something is not offered, and returns EOPNOTSUPP. */
int xw_refused(const char *what);
bool xw_first_time(const char *what); /* says whether it was not called with this pointer before */
void xw_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* FIND defines found_NAME, the function that is called where the library is not preloaded, and finds it when the library is
 * loaded: dlsym waits for other threads that load libraries, which a handler of signals must not. */
#define FIND(type, name, params)                                             \
	static type(*_Atomic found_##name) params;                           \
	__attribute__((constructor)) static void find_##name(void)           \
	{                                                                    \
		found_##name = (type(*) params)dlsym(RTLD_NEXT, #name);      \
	}

/* NEXT declares next, which is found_NAME. Constructors of other libraries may come before those here. */
#define NEXT(type, name, params)                                             \
	if (!found_##name)                                                   \
		find_##name();                                               \
	type(*next) params = found_##name

/* xw_socket is socket(2), also where librspreload.so has that make rsockets. */
int xw_socket(int family, int type);

/* JSON of replies: a value is a piece of the text. What is not there has no length. */
struct json {
	const char *p;
	size_t n;
};
struct json json_get(struct json object, const char *key);
bool json_next(struct json array, struct json *item); /* *item: the one before, or empty */
bool json_number(struct json v, uint64_t *n);
bool json_text(struct json v, char *to, size_t room);
bool json_is(struct json v, const char *word);
int json_base64(struct json v, uint8_t *to, int room); /* bytes; -1: it is none */
void xw_base64(const void *from, size_t n, char *to);  /* to: 4 * ((n + 2) / 3) + 1 bytes */
#define XW_BASE64_LEN(n) (4 * (((n) + 2) / 3) + 1)

/* A ring in shared memory. */
struct ring {
	uint8_t *mem; /* of the ring, in the mapping */
	uint32_t slots, size;
	uint32_t own; /* this side's index */
	bool receives;
	struct record *record; /* of requests that are under way, see flush.c; NULL: there is none */
};

void *xw_map(int fd, size_t n); /* maps and populates shared memory of the daemon's, closes fd */
bool xw_ring_open(struct ring *r, void *mem, size_t n, struct json geometry);
size_t xw_ring_end(struct json geometry); /* where it ends in its memory; 0: it cannot be */

static inline _Atomic uint32_t *xw_word(void *mem, size_t at)
{
	return (_Atomic uint32_t *)(void *)((uint8_t *)mem + at);
}

static inline uint8_t *xw_slot(struct ring *r, uint32_t i)
{
	return r->mem + XW_RING_SLOTS + (size_t)(i & (r->slots - 1)) * r->size;
}
