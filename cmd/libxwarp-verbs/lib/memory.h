/* Memory that the daemon can map: the pages of the program, memfds, copies. */
#pragma once
#include "base.h"

/* Memory that the daemon can map. A share keeps the pages of a range of the program moved into the arena. */
int xw_arena(void); /* the memfd of the arena: a byte's offset is its address */
struct share;
/* xw_share moves a range. EFAULT: the program itself may not read it, or write there; EOPNOTSUPP: it cannot be moved. */
int xw_share(void *addr, size_t length, bool write, struct share **out);
void xw_unshare(struct share *s);
/* xw_file_of opens the file that is mapped at addr, and finds the offset there. EOPNOTSUPP: it is not one shared file, EBADF: it
 * is none that the daemon can map, or cannot be opened, EFAULT: the program itself may not write there, or the file is shorter. */
int xw_file_of(void *addr, size_t length, bool write, int *file, uint64_t *offset);

/* xw_find_file duplicates a descriptor of this process of a file that the daemon can map, or opens that by its name; -1: it
 * could not. */
int xw_find_file(dev_t device, ino_t inode, const char *path);

bool xw_mapped(dev_t device, ino_t inode); /* says whether a file is, or that there is no saying */

/* Bounce memory, see bounce.c. */
struct bounce;
extern atomic_uint xw_bounces; /* how many there are */
int xw_bounce_make(void *addr, size_t length, struct bounce **out);
void *xw_bounce_copy(const struct bounce *b);
void xw_bounce_use(struct bounce *b, uint32_t lkey, uint64_t iova);
void xw_bounce_free(struct bounce *b);
/* xw_bounce_send and xw_bounce_recv look at a slot before it is published; the answer is errno. */
int xw_bounce_send(const void *owner, uint8_t *slot);
int xw_bounce_recv(const void *owner, uint8_t *slot);
/* xw_bounce_done is for a completion that is marked; xw_bounce_land for one that will be polled later. */
void xw_bounce_done(struct ibv_wc *wc);
void xw_bounce_land(const struct ibv_wc *wc);
void xw_bounce_forget(const void *owner); /* a queue that is destroyed */
void xw_bounce_forked(void);

static inline bool xw_any_bounce(void) { return atomic_load_explicit(&xw_bounces, memory_order_relaxed) != 0; }

/* Of fork: no page is moved from freeze, which says whether any are, to thaw. xw_memory_copy makes all private in a child. */
bool xw_memory_freeze(void);
void xw_memory_thaw(void);
void xw_memory_copy(void);
