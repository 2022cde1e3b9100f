/* Memory that the daemon can map: pages of the program, memfds and copies. */
#pragma once
#include "base.h"

/* A share keeps the pages of a range of the program in the arena. */
int xw_arena(void); /* memfd of the arena: the offset of a byte is its address */
struct share;
/* xw_share moves a range to the arena. EFAULT: the program itself cannot read it, or cannot write to it; EOPNOTSUPP:
 * it cannot be moved. */
int xw_share(void *addr, size_t length, bool write, struct share **out);
void xw_unshare(struct share *s);
/* xw_file_of opens the file that is mapped at addr and returns the offset of addr in it. EOPNOTSUPP: the range is
 * not one shared file; EBADF: the daemon cannot map the file, or it cannot be opened; EFAULT: the program itself cannot
 * read the range, or with write, cannot write to it, or the file is shorter. */
int xw_file_of(void *addr, size_t length, bool write, int *file, uint64_t *offset);

/* xw_find_file duplicates a descriptor of this process for a file that the daemon can map, or opens the file by its
 * name. It returns -1 on failure. */
int xw_find_file(dev_t device, ino_t inode, const char *path);

bool xw_mapped(dev_t device, ino_t inode); /* reports whether a file is mapped; true if that is unknown */

/* Bounce memory, see bounce.c. */
struct bounce;
extern atomic_uint xw_bounces; /* number of bounces */
/* xw_bounce_make fails with EFAULT if a page cannot be read, or with write, written to. */
int xw_bounce_make(void *addr, size_t length, bool write, struct bounce **out);
void *xw_bounce_copy(const struct bounce *b);
void xw_bounce_use(struct bounce *b, uint32_t lkey, uint64_t iova);
void xw_bounce_free(struct bounce *b);
/* xw_bounce_send and xw_bounce_recv process a slot before it is published. They return errno. */
int xw_bounce_send(const void *owner, uint8_t *slot);
int xw_bounce_recv(const void *owner, uint8_t *slot);
/* xw_bounce_done copies back the data of a marked completion that is polled, xw_bounce_land that of one that will be
 * polled later. */
void xw_bounce_done(struct ibv_wc *wc);
void xw_bounce_land(const struct ibv_wc *wc);
void xw_bounce_forget(const void *owner); /* for a queue that is destroyed */
void xw_bounce_forked(void);

static inline bool xw_any_bounce(void) { return atomic_load_explicit(&xw_bounces, memory_order_relaxed) != 0; }

/* For fork: between freeze, which reports whether pages are shared, and thaw, no page is moved. xw_memory_copy makes
 * all pages private in a child. */
bool xw_memory_freeze(void);
void xw_memory_thaw(void);
void xw_memory_copy(void);
