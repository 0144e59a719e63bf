/* Address spaces: brk, mmap, munmap, mremap, mprotect, madvise and what they refuse. */
#include "say.h"

static char *map(size_t pages)
{
	char *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		say("no memory"), exit(1);
	return p;
}

static void fill(char *p, size_t pages)
{
	for (size_t i = 0; i < pages; i++)
		p[i * PAGE] = i + 1;
}

static int intact(char *p, size_t pages)
{
	for (size_t i = 0; i < pages; i++)
		if (p[i * PAGE] != (char)(i + 1))
			return 0;
	return 1;
}

static void breaks(void)
{
	char *start = sbrk(0);
	HOLDS(sbrk(10 * PAGE) == start);
	memset(start, 7, 10 * PAGE);
	HOLDS(sbrk(-5 * PAGE) == start + 10 * PAGE);
	IN_CHILD("above the break", *(volatile char *)(start + 8 * PAGE) = 1);
	HOLDS(sbrk(5 * PAGE) == start + 5 * PAGE);
	say("below %d, above %d", start[4 * PAGE], start[6 * PAGE]);
	HOLDS((char *)syscall(SYS_brk, 0) == start + 10 * PAGE);
	HOLDS((char *)syscall(SYS_brk, 8) == start + 10 * PAGE);
	HOLDS((char *)syscall(SYS_brk, ~0ul) == start + 10 * PAGE);
	HOLDS(sbrk(1l << 46) == (void *)-1 && errno == ENOMEM);
}

static void protections(void)
{
	char *p = map(10);
	fill(p, 10);
	TRY(mprotect(p + 2 * PAGE, 3 * PAGE, PROT_READ));
	TRY(mprotect(p + 4 * PAGE, 2 * PAGE, PROT_NONE));
	for (int i = 0; i < 10; i++) {
		int q[2];
		pipe(q);
		int readable = write(q[1], p + i * PAGE, 1) == 1;
		if (!readable)
			write(q[1], "x", 1);
		char *into = p + i * PAGE + 1;
		int writable = read(q[0], into, 1) == 1;
		say("page %d: %s %s", i, readable ? "readable" : "not readable", writable ? "writable" : "not writable");
		close(q[0]);
		close(q[1]);
	}
	TRY(mprotect(p, 10 * PAGE, PROT_READ | PROT_WRITE));
	HOLDS(intact(p, 10));
	munmap(p + 3 * PAGE, PAGE);
	TRY(mprotect(p, 10 * PAGE, PROT_READ));
	TRY(mprotect(p + 1, PAGE, PROT_READ));
	TRY(mprotect(p, 0, PROT_READ));
	TRY(mprotect(p, PAGE, 0x1000));
	TRY(mprotect((void *)0xffff800000000000, PAGE, PROT_READ));
	/* after a fork, rights that come back do not undo the copy */
	p = map(1);
	p[0] = 1;
	IN_CHILD("child", { mprotect(p, PAGE, PROT_READ); mprotect(p, PAGE, PROT_READ | PROT_WRITE); p[0] = 9; });
	say("parent has %d", p[0]);
}

static void remaps(void)
{
	char *p = map(10), *q;
	fill(p, 10);
	q = mremap(p, 10 * PAGE, 5 * PAGE, 0);
	HOLDS(q == p && intact(p, 5));
	IN_CHILD("cut off", *(volatile char *)(p + 7 * PAGE) = 1);
	q = mremap(p, 5 * PAGE, 10 * PAGE, MREMAP_MAYMOVE);
	HOLDS(q != MAP_FAILED && intact(q, 5) && q[7 * PAGE] == 0);
	p = q;
	char *wall = mmap(p + 10 * PAGE, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	HOLDS(wall == p + 10 * PAGE);
	HOLDS(mremap(p, 10 * PAGE, 20 * PAGE, 0) == MAP_FAILED && errno == ENOMEM);
	q = mremap(p, 10 * PAGE, 1000 * PAGE, MREMAP_MAYMOVE);
	HOLDS(q != MAP_FAILED && q != p && intact(q, 5));
	IN_CHILD("moved away", (void)*(volatile char *)p);
	char *target = map(3);
	HOLDS(mremap(q, 3 * PAGE, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target && intact(target, 3));
	IN_CHILD("moved part", (void)*(volatile char *)q);
	HOLDS(q[3 * PAGE] == 4);
	HOLDS(mremap(q, PAGE, PAGE, MREMAP_FIXED, target) == MAP_FAILED && errno == EINVAL);
	HOLDS(mremap(target + 1, PAGE, PAGE, 0) == MAP_FAILED && errno == EINVAL);
	HOLDS(mremap(target, PAGE, 0, 0) == MAP_FAILED && errno == EINVAL);
	HOLDS(mremap((void *)0x1000, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
	HOLDS(mremap(target, PAGE, PAGE, 0x40) == MAP_FAILED && errno == EINVAL);
	/* large blocks of the C library move by it */
	char *m = malloc(1 << 20);
	m[1000000] = 42;
	for (size_t n = 2; n <= 64; n *= 2)
		m = realloc(m, n << 20);
	say("%d", m[1000000]);
	free(m);
}

static void advice(void)
{
	char *p = map(16);
	fill(p, 16);
	TRY(madvise(p + 4 * PAGE, 4 * PAGE, MADV_DONTNEED));
	say("%d %d %d %d", p[3 * PAGE], p[4 * PAGE], p[7 * PAGE], p[8 * PAGE]);
	TRY(madvise(p, 16 * PAGE, MADV_WILLNEED));
	TRY(madvise(p, 16 * PAGE, MADV_SEQUENTIAL));
	TRY(madvise(p, 16 * PAGE, MADV_RANDOM));
	TRY(madvise(p, 16 * PAGE, MADV_NORMAL));
	TRY(madvise(p + 1, PAGE, MADV_DONTNEED));
	TRY(madvise(p, PAGE, 9999));
	TRY(madvise(p, 0, MADV_DONTNEED));
	munmap(p + 8 * PAGE, PAGE);
	TRY(madvise(p, 16 * PAGE, MADV_DONTNEED));
	say("%d %d", p[0], p[15 * PAGE]);
	/* what a child must not have */
	TRY(madvise(p, PAGE, MADV_DONTFORK));
	IN_CHILD("not forked", (void)*(volatile char *)p);
	p[PAGE] = 5;
	TRY(madvise(p + PAGE, PAGE, MADV_WIPEONFORK));
	IN_CHILD("wiped", _exit(p[PAGE]));
	say("%d", p[PAGE]);
	/* lazily freed memory is one or the other until it is written again */
	p[2 * PAGE] = 6;
	TRY(madvise(p + 2 * PAGE, PAGE, MADV_FREE));
	HOLDS(p[2 * PAGE] == 6 || p[2 * PAGE] == 0);
	p[2 * PAGE] = 7;
	say("%d", p[2 * PAGE]);
	TRY(mlock(p, PAGE));
	TRY(munlock(p, PAGE));
	TRY(mlockall(MCL_CURRENT));
	TRY(munlockall());
	unsigned char core[4];
	char *r = map(4);
	r[PAGE] = 1;
	TRY(mincore(r, 4 * PAGE, core));
	say("%d %d", core[0] & 1, core[1] & 1);
	TRY(mincore(r + 1, PAGE, core));
}

static void placement(void)
{
	char *p = map(10);
	TRY(munmap(p + 2 * PAGE, 3 * PAGE));
	TRY(munmap(p + 2 * PAGE, 3 * PAGE));
	p[0] = p[9 * PAGE] = 1;
	IN_CHILD("hole", (void)*(volatile char *)(p + 3 * PAGE));
	char *q = mmap(p + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	HOLDS(q == p + 2 * PAGE && *q == 0);
	*q = 3;
	HOLDS(mmap(q, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST);
	HOLDS(mmap(q, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == q && *q == 0);
	HOLDS(mmap(p + 3 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == p + 3 * PAGE);
	HOLDS(mmap((void *)0x7ffffffff000, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED && errno == ENOMEM);
	HOLDS(mmap((void *)0xffff800000000000, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED && errno == ENOMEM);
	HOLDS(mmap(NULL, ~0ul, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
	TRY(munmap((void *)0xffff800000000000, PAGE));
	TRY(munmap(p + 1, PAGE));
	TRY(munmap(p, 0));
	/* far more than there is, hardly touched */
	char *huge = mmap(NULL, 1ul << 40, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	HOLDS(huge != MAP_FAILED);
	for (size_t i = 0; i < 64; i++)
		huge[i << 34] = i;
	int same = 1;
	for (size_t i = 0; i < 64; i++)
		same &= huge[i << 34] == (char)i;
	HOLDS(same);
	TRY(munmap(huge, 1ul << 40));
	/* many areas */
	char *strip = map(4000);
	for (int i = 0; i < 4000; i += 2)
		if (mprotect(strip + i * PAGE, PAGE, PROT_READ))
			say("%d: %s", i, strerrorname_np(errno));
	for (int i = 1; i < 4000; i += 2)
		strip[i * PAGE] = i;
	int sum = 0;
	for (int i = 0; i < 4000; i++)
		sum += (unsigned char)strip[i * PAGE];
	say("sum %d", sum);
	TRY(munmap(strip, 4000 * PAGE));
	/* zero pages that are only read */
	char *zeros = map(10000);
	long total = 0;
	for (int i = 0; i < 10000; i++)
		total += zeros[i * PAGE];
	say("zeros sum to %ld", total);
	zeros[5000 * PAGE] = 1;
	say("%d %d", zeros[5000 * PAGE], zeros[5001 * PAGE]);
	/* the stack grows */
	volatile char deep[4 << 20];
	for (int i = sizeof deep - 1; i >= 0; i -= PAGE)
		deep[i] = 1;
	say("stack %d", deep[sizeof deep - 1]);
}

int main(void)
{
	breaks();
	protections();
	remaps();
	advice();
	placement();
	/* blocks of the C library, with what they hold checked */
	void *blocks[500] = { 0 };
	uint32_t x = 5, wrong = 0;
	for (int i = 0; i < 20000; i++) {
		x = x * 1664525 + 1013904223;
		unsigned slot = x >> 16 & 511;
		if (slot >= 500)
			continue;
		unsigned char *b = blocks[slot];
		if (b) {
			size_t n = *(size_t *)b;
			for (size_t k = sizeof n; k < n; k += 97)
				wrong += b[k] != (unsigned char)slot;
			free(b);
			blocks[slot] = NULL;
		} else {
			size_t n = 16 + (x >> 3) % ((x & 7) == 0 ? 300000 : 2000);
			b = blocks[slot] = malloc(n);
			memset(b, slot, n);
			*(size_t *)b = n;
		}
	}
	say("%u wrong bytes", wrong);
	return 0;
}
