/* Bounce memory: memory that cannot be moved (stacks, memory that is already shared) has a copy, which the daemon
 * maps. Data to send is copied there when the work request is posted. Data of receives, Reads and atomics is copied
 * back when their completion is polled. Writes of a peer would not be copied back, so such regions are local.
 *
 * A request with data to copy back is marked, and its wr_id is the number of a note until it completes. An
 * unsignaled request has no completion if it succeeds: its data is copied back with the next signaled request of its
 * queue pair, which is marked for that. When a region or queue pair is destroyed, data is copied back for the
 * completions that nobody has polled yet. */
#include "memory.h"

#include <sys/mman.h>

struct bounce {
	struct bounce *next;
	uint32_t lkey; /* 0: not registered yet */
	uint64_t iova;
	uint8_t *memory, *copy;
	size_t length;
	void *pages; /* mapping of copy */
	size_t room;
};

/* note is an outstanding work request. */
struct note {
	const void *owner; /* queue pair or shared receive queue; NULL: the note is free */
	uint64_t id, order;
	bool send;
	bool silent; /* not signaled */
	uint32_t n;
	struct ibv_sge list[XW_MAX_SGE];
};

/* MAX_NOTES is the maximum number of outstanding work requests with bounce memory, in all queues together. */
#define MAX_NOTES (1 << 16)

atomic_uint xw_bounces;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bounce *bounces;
static struct note *notes;
static uint32_t n_notes, next_note;
static uint64_t order;	/* order of the next note */
static uint32_t silent; /* number of silent notes */

int xw_bounce_make(void *addr, size_t length, bool write, struct bounce **out)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), slack = (uintptr_t)addr % page;
	struct bounce *b = length > SIZE_MAX - 2 * page ? NULL : calloc(1, sizeof *b);

	if (!b)
		return ENOMEM;
	*b = (struct bounce){.memory = addr, .length = length, .room = (slack + length + page - 1) / page * page};
	/* A page behind the end of a file would raise SIGBUS when it is copied. Devices have pages that cannot be populated. */
	if (xw_madvise((uint8_t *)addr - slack, b->room, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) != 0 &&
	    (errno == EFAULT || errno == EHWPOISON)) {
		free(b);
		return EFAULT;
	}
	b->pages = xw_mmap(NULL, b->room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->pages == MAP_FAILED) {
		free(b);
		return ENOMEM;
	}
	b->copy = (uint8_t *)b->pages + slack; /* atomics need the alignment that the program chose */
	*out = b;
	return 0;
}

void *xw_bounce_copy(const struct bounce *b) { return b->copy; }

void xw_bounce_use(struct bounce *b, uint32_t lkey, uint64_t iova)
{
	GUARD(&lock);
	if (b->lkey == 0) {
		LINK(bounces, b);
		atomic_fetch_add(&xw_bounces, 1);
	}
	b->lkey = lkey;
	b->iova = iova;
}

/* xw_bounce_free accepts NULL. It unmaps the pages of the copy. */
void xw_bounce_free(struct bounce *b)
{
	if (!b)
		return;
	LOCKED(&lock)
		if (UNLINK(bounces, b))
			atomic_fetch_sub(&xw_bounces, 1);
	xw_munmap(b->pages, b->room);
	free(b);
}

/* find returns the bounce memory of an SGE and the offset of the SGE in it. It returns NULL if there is none, or if
 * the SGE exceeds it, which the daemon also detects. */
static const struct bounce *find(const struct ibv_sge *sge, uint64_t *at)
{
	for (const struct bounce *b = bounces; b; b = b->next)
		if (b->lkey == sge->lkey) {
			*at = sge->addr - b->iova;
			return sge->addr >= b->iova && *at <= b->length && sge->length <= b->length - *at ? b : NULL;
		}
	return NULL;
}

/* take_note returns the number of a new note, or -1 if there are too many or memory is short. */
static int64_t take_note(const struct note *n)
{
	for (uint32_t i = 0; i < n_notes; i++, next_note++)
		if (!notes[next_note % n_notes].owner)
			break;
	if (n_notes == 0 || notes[next_note % n_notes].owner) {
		uint32_t more = n_notes ? 2 * n_notes : 64;
		struct note *all = more > MAX_NOTES ? NULL : realloc(notes, more * sizeof *all);
		if (!all)
			return -1;
		memset(all + n_notes, 0, (more - n_notes) * sizeof *all);
		next_note = n_notes;
		n_notes = more;
		notes = all;
	}
	notes[next_note % n_notes] = *n;
	notes[next_note % n_notes].order = order++;
	silent += n->silent;
	return next_note++ % n_notes;
}

static bool bounced(const struct note *n)
{
	uint64_t at;

	for (uint32_t i = 0; i < n->n; i++)
		if (find(&n->list[i], &at))
			return true;
	return false;
}

/* mark creates a note for the request in a slot, whose flags are at *flags. It returns 0 or errno. */
static int mark(uint8_t *slot, uint8_t *flags, const struct note *n)
{
	int64_t number = take_note(n);

	if (number < 0)
		return ENOMEM;
	put64(slot + XW_SLOT_ID, (uint64_t)number);
	*flags |= XW_WR_MARKED;
	return 0;
}

/* read_list reads the SGEs of a slot. If the daemon changed them in the meantime, only the daemon is affected. */
static void read_list(struct note *n, const uint8_t *slot, uint8_t pieces, const uint8_t *list)
{
	n->id = get64(slot + XW_SLOT_ID);
	n->n = pieces < XW_MAX_SGE ? pieces : XW_MAX_SGE;
	for (uint32_t i = 0; i < n->n; i++, list += XW_SGE_SIZE)
		n->list[i] = (struct ibv_sge){get64(list + XW_SGE_TO), get32(list + XW_SGE_LEN), get32(list)};
}

int xw_bounce_send(const void *owner, uint8_t *slot)
{
	struct note n = {.owner = owner, .send = true, .silent = !(slot[XW_SEND_FLAGS] & XW_WR_SIGNALED)};
	uint8_t op = slot[XW_SEND_OP];
	uint64_t at;

	read_list(&n, slot, slot[XW_SEND_PIECES], slot + XW_SEND_HEAD);
	GUARD(&lock);
	bool fetches = (op == XW_OP_READ || op == XW_OP_FETCH_ADD || op == XW_OP_CMP_SWAP) && bounced(&n);
	for (uint32_t i = 0; i < n.n && !fetches; i++) {
		const struct bounce *b = find(&n.list[i], &at);
		if (b)
			memcpy(b->copy + at, b->memory + at, n.list[i].length);
	}
	if (!fetches)
		n.n = 0; /* no data to copy back */
	return fetches || (silent && !n.silent) ? mark(slot, slot + XW_SEND_FLAGS, &n) : 0;
}

int xw_bounce_recv(const void *owner, uint8_t *slot)
{
	struct note n = {.owner = owner};

	read_list(&n, slot, slot[XW_RECV_PIECES], slot + XW_RECV_HEAD);
	GUARD(&lock);
	return bounced(&n) ? mark(slot, slot + XW_RECV_FLAGS, &n) : 0;
}

/* bring_back copies the first bytes of a request's data to the memory of the program. */
static void bring_back(const struct note *n, uint64_t bytes)
{
	uint64_t at;

	for (uint32_t i = 0; i < n->n && bytes > 0; i++) {
		uint64_t k = n->list[i].length < bytes ? n->list[i].length : bytes;
		const struct bounce *b = find(&n->list[i], &at);
		if (b)
			memcpy(b->memory + at, b->copy + at, k);
		bytes -= k;
	}
}

static void drop(struct note *n)
{
	silent -= n->silent;
	n->owner = NULL;
}

/* land copies back the data of a completed request, and of the unsignaled requests before it. */
static void land(struct note *n, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS)
		return;
	for (uint32_t i = 0; i < n_notes && n->send && silent; i++)
		if (notes[i].owner == n->owner && notes[i].silent && notes[i].order < n->order) {
			bring_back(&notes[i], UINT64_MAX);
			drop(&notes[i]);
		}
	if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM) /* byte_len of that opcode is the length of the Write */
		bring_back(n, wc->byte_len);
	n->n = 0;
}

/* note_of returns the note of a marked completion, or NULL if the completion is invalid. */
static struct note *note_of(const struct ibv_wc *wc)
{
	return wc->wr_id < n_notes && notes[wc->wr_id].owner ? &notes[wc->wr_id] : NULL;
}

void xw_bounce_land(const struct ibv_wc *wc)
{
	GUARD(&lock);
	struct note *n = note_of(wc);
	if (n)
		land(n, wc);
}

void xw_bounce_done(struct ibv_wc *wc)
{
	GUARD(&lock);
	struct note *n = note_of(wc);
	if (n) {
		land(n, wc);
		wc->wr_id = n->id;
		drop(n);
	}
}

void xw_bounce_forget(const void *owner)
{
	GUARD(&lock);
	for (uint32_t i = 0; i < n_notes; i++)
		if (notes[i].owner == owner)
			drop(&notes[i]);
}

/* xw_bounce_forked leaves all bounce memory to the parent. */
void xw_bounce_forked(void)
{
	pthread_mutex_init(&lock, NULL); /* its holder does not exist in the child */
	bounces = NULL;
	atomic_store(&xw_bounces, 0);
	silent = 0;
	if (n_notes)
		memset(notes, 0, n_notes * sizeof *notes);
}
