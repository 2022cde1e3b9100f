/* The lowest layer: errors, messages, JSON, and rings in shared memory. PROTOCOL.md in package control describes the
 * protocol. Layers from low to high: base.h, memory.h and session.h, objects.h, cm.h. A header includes only lower
 * ones. */
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
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "layout.h"

#define EXPORT __attribute__((visibility("default")))
/* NEWER defines a function that only newer headers of rdma-core declare. Its name in C differs, so that the types
 * cannot conflict. */
#define NEWER(type, name, params) EXPORT type newer_##name params __asm__(#name); type newer_##name params
#define container_of(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))

/* xw_fail sets errno and returns -1. xw_null sets errno and returns NULL. */
int xw_fail(int error);
void *xw_null(int error);
/* xw_refused prints once, to stderr, that something is not supported, and returns EOPNOTSUPP. */
int xw_refused(const char *what);
/* xw_refused_probe is xw_refused for what programs try although they can do without it. It prints when the program
 * exits, unless the program did without it: xw_did_without was called. With XWARP_DEBUG it prints at once. */
int xw_refused_probe(const char *what);
void xw_did_without(void);
bool xw_debug(void); /* XWARP_DEBUG is set, and not 0 */
bool xw_first_time(const char *what); /* returns true on the first call with this pointer, for the first 64 pointers */
void xw_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* UNCHECKED functions may run before the thread sanitizer is ready. */
#define UNCHECKED __attribute__((no_sanitize("thread")))

/* FIND defines found_NAME, the next definition of a function after the preloaded one. It is looked up when the
 * library is loaded, because dlsym waits for threads that load libraries, which a signal handler must not do. */
#define FIND(type, name, params)                                             \
	static type(*_Atomic found_##name) params;                           \
	UNCHECKED __attribute__((constructor)) static void find_##name(void) \
	{                                                                    \
		found_##name = (type(*) params)xw_next(#name);               \
	}

/* NEXT declares next, which is found_NAME, or returns failure with ENOSYS if there is no such function. It looks up
 * the function if needed: constructors of other libraries may run before that of FIND. */
#define NEXT(type, failure, name, params)                                    \
	if (!found_##name)                                                   \
		find_##name();                                               \
	type(*next) params = found_##name;                                   \
	if (!next) {                                                         \
		errno = ENOSYS;                                              \
		return failure;                                              \
	}

/* xw_next returns the next definition of a function. It returns NULL if dlsym calls it again, because its allocator
 * calls a preloaded function. */
void *xw_next(const char *name);

/* xw_mmap, xw_munmap, xw_mremap and xw_madvise are the system calls, for the library itself. Registration caches (UCX,
 * libfabric) replace the functions of libc to learn which memory the program unmaps. They must not see that the
 * library moves pages, and cannot deregister memory while it does so. A preloaded function calls the next one. */
UNCHECKED static inline void *xw_mmap(void *addr, size_t n, int prot, int flags, int fd, off_t at)
{
	return (void *)syscall(SYS_mmap, addr, n, prot, flags, fd, at);
}

UNCHECKED static inline int xw_munmap(void *addr, size_t n) { return (int)syscall(SYS_munmap, addr, n); }

static inline void *xw_mremap(void *addr, size_t n, size_t new_n, int flags, void *to)
{
	return (void *)syscall(SYS_mremap, addr, n, new_n, flags, to);
}

static inline int xw_madvise(void *addr, size_t n, int advice) { return (int)syscall(SYS_madvise, addr, n, advice); }

static inline pthread_mutex_t *xw_hold(pthread_mutex_t *m)
{
	pthread_mutex_lock(m);
	return m;
}

static inline void xw_release(pthread_mutex_t **m) { pthread_mutex_unlock(*m); }

/* GUARD holds a mutex until the end of the enclosing block, LOCKED during the statement or block that follows it. */
#define GUARD(mutex) GUARD_AT(mutex, __LINE__)
#define GUARD_AT(mutex, line) GUARD_AS(mutex, line)
#define GUARD_AS(mutex, line) pthread_mutex_t *held_##line __attribute__((cleanup(xw_release), unused)) = xw_hold(mutex)
#define LOCKED(mutex)                                                                                        \
	for (pthread_mutex_t *held __attribute__((cleanup(xw_release))) = xw_hold(mutex), *now = held; now;  \
	     now = NULL)

static inline void xw_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

/* FD declares a descriptor that is closed at the end of its block. */
#define FD __attribute__((cleanup(xw_close))) int

/* LINK adds an object to a list, UNLINK removes it and reports whether it was in the list. Objects have a member next. */
#define LINK(list, o) ((void)((o)->next = (list), (list) = (o)))
#define UNLINK(list, o)                                                    \
	({                                                                 \
		__typeof__(list) *at = &(list);                            \
		while (*at && *at != (o))                                  \
			at = &(*at)->next;                                 \
		bool there = *at;                                          \
		if (there)                                                 \
			*at = (o)->next;                                   \
		there;                                                     \
	})

/* xw_uncount takes one from an eventfd that counts the entries of a list, and reports whether it was above 0. With
 * wait, it waits until the count is above 0. */
bool xw_uncount(int fd, bool wait);

/* xw_socket is socket(2), even if librspreload.so replaces it by rsockets. */
int xw_socket(int family, int type);

/* JSON of replies: a value is a part of the text. A missing value has length 0. */
struct json {
	const char *p;
	size_t n;
};
struct json json_get(struct json object, const char *key);
bool json_next(struct json array, struct json *item); /* *item: empty, or the previous item */
bool json_number(struct json v, uint64_t *n);
bool json_u32(struct json object, const char *key, uint32_t *n); /* false: there is no such number, and *n is unchanged */
bool json_text(struct json v, char *to, size_t room);
bool json_is(struct json v, const char *word);
int json_base64(struct json v, uint8_t *to, int room); /* returns the number of bytes, or -1 if v is not base64 */
void xw_base64(const void *from, size_t n, char *to);  /* to: 4 * ((n + 2) / 3) + 1 bytes */
#define XW_BASE64_LEN(n) (4 * (((n) + 2) / 3) + 1)

/* Memory shared with the daemon. */
struct area {
	uint8_t *mem; /* NULL: not mapped */
	size_t len;
};

/* A ring in such memory. */
struct ring {
	uint8_t *mem; /* start of the ring in the area */
	uint32_t slots, size;
	uint32_t own; /* index of the next slot that this side writes or reads */
	bool receives;
	struct record *record; /* outstanding requests, see flush.c; may be NULL */
};

/* xw_map maps and populates a file of the daemon, and closes fd. xw_unmap accepts an area that is not mapped. */
bool xw_map(struct area *a, int fd);
void xw_unmap(struct area *a);
bool xw_ring_open(struct ring *r, const struct area *a, struct json geometry, size_t least); /* least: bytes of a slot */

static inline _Atomic uint32_t *xw_word(void *mem, size_t at)
{
	return (_Atomic uint32_t *)(void *)((uint8_t *)mem + at);
}

/* Integers in slots, which need not be aligned. */
static inline uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof v);
	return v;
}

static inline uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof v);
	return v;
}

static inline void put32(uint8_t *p, uint32_t v) { memcpy(p, &v, sizeof v); }
static inline void put64(uint8_t *p, uint64_t v) { memcpy(p, &v, sizeof v); }

static inline uint8_t *xw_slot(struct ring *r, uint32_t i)
{
	return r->mem + XW_RING_SLOTS + (size_t)(i & (r->slots - 1)) * r->size;
}
