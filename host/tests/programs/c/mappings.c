/* Random changes of a few hundred pages against a model of what each must show: anonymous, private
   and shared pages of a file, rights, moves, holes, forks. Arguments: SEED [STEPS]. */
#include "say.h"
#include <setjmp.h>

#define PAGES 768
#define FILE_PAGES 64
/* The byte of a page that is looked at. */
#define AT 5

enum kind { NOTHING, ANONYMOUS, PRIVATE, SHARED };

struct page {
	enum kind kind;
	int rights;
	/* Private: the program has its own copy, which shows `value`. */
	int own;
	unsigned char value;
	int file_page;
};

static struct page model[PAGES];
static unsigned char file_model[FILE_PAGES];
static int file;
static char *base;
static unsigned long state, seed, step;
static sigjmp_buf refused;

static unsigned random_below(unsigned bound)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 20) % bound;
}

static void on_fault(int signal)
{
	(void)signal;
	siglongjmp(refused, 1);
}

static void fail(const char *what, int page)
{
	struct page *p = &model[page];
	say("seed %lu, step %lu: %s: page %d, kind %d, rights %d, own %d, value %d, file page %d", seed, step, what,
	    page, p->kind, p->rights, p->own, p->value, p->file_page);
	_exit(1);
}

static int load(int page, unsigned char *value)
{
	if (sigsetjmp(refused, 1))
		return 0;
	*value = *(volatile unsigned char *)(base + page * PAGE + AT);
	return 1;
}

static int store(int page, unsigned char value)
{
	if (sigsetjmp(refused, 1))
		return 0;
	*(volatile unsigned char *)(base + page * PAGE + AT) = value;
	return 1;
}

static void check(int page)
{
	struct page *p = &model[page];
	unsigned char value;
	int loads = load(page, &value);
	int may = p->kind != NOTHING && p->rights != PROT_NONE;
	if (loads != may)
		fail(loads ? "can be read" : "cannot be read", page);
	unsigned char expected = p->kind == ANONYMOUS || p->own ? p->value : file_model[p->file_page];
	if (loads && value != expected)
		fail("shows something else", page);
}

static void change(int page)
{
	struct page *p = &model[page];
	unsigned char value = random_below(255) + 1;
	int stores = store(page, value);
	int may = p->kind != NOTHING && p->rights & PROT_WRITE;
	if (stores != may)
		fail(stores ? "can be written" : "cannot be written", page);
	if (!stores)
		return;
	if (p->kind == SHARED) {
		file_model[p->file_page] = value;
	} else {
		p->value = value;
		p->own = 1;
	}
}

static int has_hole(int first, int pages)
{
	for (int i = first; i < first + pages; i++)
		if (model[i].kind == NOTHING)
			return 1;
	return 0;
}

static void map_anonymous(int first, int pages, int rights)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | (random_below(4) ? 0 : MAP_POPULATE);
	if (mmap(base + first * PAGE, pages * PAGE, rights, flags, -1, 0) == MAP_FAILED)
		fail("mmap", first);
	for (int i = first; i < first + pages; i++)
		model[i] = (struct page){ .kind = ANONYMOUS, .rights = rights, .own = 1 };
}

static void map_file(int first, int pages, int rights)
{
	if (pages > FILE_PAGES)
		pages = FILE_PAGES;
	int from = random_below(FILE_PAGES - pages + 1), shared = random_below(2);
	int flags = (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED;
	if (mmap(base + first * PAGE, pages * PAGE, rights, flags, file, from * PAGE) == MAP_FAILED)
		fail("mmap of the file", first);
	for (int i = 0; i < pages; i++)
		model[first + i] =
			(struct page){ .kind = shared ? SHARED : PRIVATE, .rights = rights, .file_page = from + i };
}

static void unmap(int first, int pages)
{
	if (munmap(base + first * PAGE, pages * PAGE))
		fail("munmap", first);
	for (int i = first; i < first + pages; i++)
		model[i] = (struct page){ .kind = NOTHING };
}

static void protect(int first, int pages, int rights)
{
	if (has_hole(first, pages))
		return;
	if (mprotect(base + first * PAGE, pages * PAGE, rights))
		fail("mprotect", first);
	for (int i = first; i < first + pages; i++)
		model[i].rights = rights;
}

static void drop(int first, int pages)
{
	int failed = madvise(base + first * PAGE, pages * PAGE, MADV_DONTNEED) != 0;
	if (failed != has_hole(first, pages))
		fail("madvise", first);
	for (int i = first; i < first + pages; i++) {
		if (model[i].kind == ANONYMOUS)
			model[i].value = 0;
		if (model[i].kind == PRIVATE)
			model[i].own = 0;
	}
}

/* Moves what was mapped by one call, as far as the model can tell; others may be refused. */
static void move(int first, int pages, int to)
{
	struct page *p = &model[first];
	if (abs(to - first) < pages || p->kind == NOTHING)
		return;
	for (int i = 1; i < pages; i++) {
		struct page *q = &model[first + i];
		if (q->kind != p->kind || q->rights != p->rights ||
		    (p->kind != ANONYMOUS && q->file_page != p->file_page + i))
			return;
	}
	void *moved = mremap(base + first * PAGE, pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
			     base + to * PAGE);
	if (moved == MAP_FAILED) {
		if (p->kind == ANONYMOUS && errno != EFAULT)
			fail("mremap", first);
		/* The target may be unmapped already, or not. */
		for (int i = to; i < to + pages; i++) {
			unsigned char value;
			if (model[i].kind != NOTHING && model[i].rights != PROT_NONE && !load(i, &value))
				model[i] = (struct page){ .kind = NOTHING };
		}
		return;
	}
	for (int i = 0; i < pages; i++) {
		model[to + i] = model[first + i];
		model[first + i] = (struct page){ .kind = NOTHING };
	}
}

static void use_file(void)
{
	int page = random_below(FILE_PAGES);
	unsigned char value = random_below(255) + 1;
	if (random_below(2)) {
		if (pwrite(file, &value, 1, page * PAGE + AT) != 1)
			fail("pwrite", 0);
		file_model[page] = value;
	} else if (pread(file, &value, 1, page * PAGE + AT) != 1 || value != file_model[page]) {
		fail("pread", 0);
	}
}

static void punch(void)
{
	int first = random_below(FILE_PAGES), pages = 1 + random_below(FILE_PAGES - first);
	if (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first * PAGE, pages * PAGE))
		fail("fallocate", 0);
	memset(file_model + first, 0, pages);
}

/* A child sees what its parent sees, and changes private pages for itself alone. */
static void try_child(void)
{
	pid_t child = MUST(fork());
	if (child == 0) {
		for (int i = 0; i < PAGES; i++)
			check(i);
		for (int i = 0; i < 60; i++) {
			int page = random_below(PAGES);
			if (model[page].kind != SHARED)
				change(page);
			check(page);
		}
		_exit(0);
	}
	int status;
	MUST(waitpid(child, &status, 0));
	if (status)
		fail("a child failed", 0);
}

static void use(int first, int pages)
{
	for (int i = 0; i < 20; i++) {
		int page = random_below(PAGES);
		if (random_below(2))
			change(page);
		check(page);
	}
	for (int i = first; i < first + pages && i < first + 16; i++) {
		change(i);
		check(i);
	}
}

static void one_step(void)
{
	static const int rights[] = { PROT_NONE, PROT_READ, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE,
				      PROT_READ | PROT_WRITE };
	int pages = random_below(4) ? 1 + random_below(8) : 1 + random_below(PAGES / 2);
	int first = random_below(PAGES - pages + 1);
	int right = rights[random_below(6)];
	switch (random_below(14)) {
	case 0:
	case 1:
		return map_anonymous(first, pages, right);
	case 2:
	case 3:
		return map_file(first, pages, right);
	case 4:
		return unmap(first, pages);
	case 5:
	case 6:
		return protect(first, pages, right);
	case 7:
		return drop(first, pages);
	case 8:
		pages = 1 + random_below(PAGES / 4);
		first = random_below(PAGES - pages + 1);
		return move(first, pages, random_below(PAGES - pages + 1));
	case 9:
		return use_file();
	case 10:
		return random_below(4) ? use_file() : punch();
	case 11:
		return random_below(8) ? use(first, pages) : try_child();
	default:
		return use(first, pages);
	}
}

int main(int argc, char **argv)
{
	seed = argc > 1 ? strtoul(argv[1], NULL, 0) : 1;
	unsigned long steps = argc > 2 ? strtoul(argv[2], NULL, 0) : 8000;
	state = seed * 0x9e3779b97f4a7c15ul + 1;
	struct sigaction action = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	char name[] = "/tmp/mappingsXXXXXX";
	file = MUST(mkstemp(name));
	MUST(unlink(name));
	MUST(ftruncate(file, FILE_PAGES * PAGE));
	/* Across a boundary of 2 MiB, with room that nothing else is mapped into. */
	char *room = MUST(mmap(NULL, 4 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
	base = (char *)(((uintptr_t)room + (2 << 20) - 1) & ~((2ul << 20) - 1));
	MUST(munmap(base, PAGES * PAGE));
	for (step = 0; step < steps; step++) {
		one_step();
		if (step % 512 == 0)
			for (int i = 0; i < PAGES; i++)
				check(i);
	}
	for (int i = 0; i < PAGES; i++)
		check(i);
	say("seed %lu: %lu steps", seed, steps);
	return 0;
}
