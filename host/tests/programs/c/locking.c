/* mlockall and mlock2: when pages come, and what is counted. */
#include "say.h"

#define MIB (1l << 20)

static long status(const char *name)
{
	char line[128];
	long value = -1;
	FILE *file = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof line, file))
		if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ':')
			value = atol(line + strlen(name) + 1);
	fclose(file);
	return value;
}

static char *map(long bytes, int flags)
{
	return MUST(mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0));
}

/* Pages of a mapping that are in memory. */
static long there(char *start, long bytes)
{
	unsigned char in[1024];
	long count = 0;
	MUST(mincore(start, bytes, in));
	for (long page = 0; page < bytes / PAGE; page++)
		count += in[page] & 1;
	return count;
}

int main(void)
{
	char *at = map(3 * MIB, 0);
	TRY(mlockall(0));
	TRY(mlockall(8));
	TRY(mlockall(MCL_ONFAULT));
	TRY(mlockall(-1));
	HOLDS(status("VmLck") == 0);
	TRY(mlock2(at, MIB, MLOCK_ONFAULT));
	HOLDS(there(at, 3 * MIB) == 0);
	HOLDS(status("VmLck") == 1024);
	TRY(mlock2(at, MIB, 2));
	TRY(madvise(at, PAGE, MADV_DONTNEED));
	at[0] = 1;
	HOLDS(there(at, MIB) >= 1);
	TRY(munlock(at, MIB));
	HOLDS(status("VmLck") == 0);

	char *before = map(MIB, 0);
	TRY(mlockall(MCL_CURRENT));
	HOLDS(there(before, MIB) == 256);
	long locked = status("VmLck");
	HOLDS(locked > 4096);
	char *after = map(MIB, 0);
	HOLDS(there(after, MIB) == 0);
	HOLDS(status("VmLck") == locked);
	TRY(mlockall(MCL_FUTURE));
	char *later = map(MIB, 0);
	HOLDS(there(later, MIB) == 256);
	HOLDS(there(after, MIB) == 0);
	HOLDS(status("VmLck") == locked + 1024);
	char *heap = sbrk(0);
	MUST(sbrk(MIB));
	heap = (char *)(((uintptr_t)heap + PAGE - 1) & -PAGE);
	HOLDS(there(heap, MIB - PAGE) == 255);
	IN_CHILD("a child", {
		HOLDS(status("VmLck") == 0);
		char *its = map(MIB, 0);
		HOLDS(there(its, MIB) == 0);
	});
	TRY(mlockall(MCL_FUTURE | MCL_ONFAULT));
	char *lazy = map(MIB, 0);
	HOLDS(there(lazy, MIB) == 0);
	TRY(madvise(lazy, PAGE, MADV_DONTNEED));
	TRY(munlockall());
	HOLDS(status("VmLck") == 0);
	HOLDS(there(map(MIB, 0), MIB) == 0);
	TRY(mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT));
	HOLDS(there(after, MIB) == 0);
	HOLDS(there(map(MIB, 0), MIB) == 0);
}
