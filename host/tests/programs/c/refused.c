/* What a change of memory leaves behind that is refused, and what limits and locks are asked for. */
#include "say.h"
#include <setjmp.h>
#include <sys/resource.h>

#define MIB (1ul << 20)
#define BOTH (PROT_READ | PROT_WRITE)
#define ANYWHERE (MAP_PRIVATE | MAP_ANONYMOUS)

static sigjmp_buf refused;

static void on_fault(int signal)
{
	(void)signal;
	siglongjmp(refused, 1);
}

static int shows(char *at, char value)
{
	if (sigsetjmp(refused, 1))
		return -1;
	return *(volatile char *)at == value;
}

static int stores(char *at)
{
	if (sigsetjmp(refused, 1))
		return 0;
	*(volatile char *)at = 1;
	return 1;
}

/* A line of /proc/self/status, in kB. */
static long status(const char *name)
{
	static char text[8192];
	int file = MUST(open("/proc/self/status", O_RDONLY));
	text[MUST(read(file, text, sizeof text - 1))] = 0;
	close(file);
	char *line = strstr(text, name);
	return line ? atol(line + strlen(name) + 1) : -1;
}

static void limit(int what, unsigned long bytes)
{
	struct rlimit old;
	MUST(getrlimit(what, &old));
	old.rlim_cur = bytes;
	MUST(setrlimit(what, &old));
}

static void a_place_that_is_to_be_replaced(void)
{
	char *at = MUST(mmap(0, MIB, BOTH, ANYWHERE, -1, 0));
	char *from = MUST(mmap(0, MIB, BOTH, ANYWHERE, -1, 0));
	at[0] = 7;
	from[0] = 8;
	limit(RLIMIT_AS, (unsigned long)status("VmSize:") * 1024 + MIB);
	HOLDS(mmap(at, 64 * MIB, BOTH, ANYWHERE | MAP_FIXED, -1, 0) == MAP_FAILED && errno == ENOMEM);
	HOLDS(shows(at, 7) == 1);
	HOLDS(mremap(from, MIB, 64 * MIB, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
	HOLDS(shows(from, 8) == 1);
	/* What is replaced makes room for what replaces it. */
	HOLDS(mmap(at, MIB, BOTH, ANYWHERE | MAP_FIXED, -1, 0) == at);
	HOLDS(shows(at, 0) == 1);
	limit(RLIMIT_AS, RLIM_INFINITY);
	long before = status("VmPTE:");
	limit(RLIMIT_AS, (unsigned long)status("VmSize:") * 1024);
	for (unsigned long i = 0; i < 300; i++)
		if (mremap(from, MIB, 2 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, (char *)0x200000000000ul + (i << 30)) !=
		    MAP_FAILED)
			say("mremap %lu beyond the limit succeeds", i);
	limit(RLIMIT_AS, RLIM_INFINITY);
	HOLDS(status("VmPTE:") <= before + 8);
}

static void data(void)
{
	char *none = MUST(mmap(0, 16 * MIB, PROT_READ, ANYWHERE, -1, 0));
	char *some = MUST(mmap(0, MIB, BOTH, ANYWHERE, -1, 0));
	limit(RLIMIT_DATA, (unsigned long)status("VmData:") * 1024 + 2 * MIB);
	TRY(mprotect(none, 16 * MIB, BOTH));
	TRY(mprotect(none, MIB, BOTH));
	HOLDS(mremap(some, MIB, 16 * MIB, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
	limit(RLIMIT_DATA, RLIM_INFINITY);
	TRY(mprotect(none, 16 * MIB, BOTH));
}

static void locked(void)
{
	char *at = MUST(mmap(0, 4 * PAGE, BOTH, ANYWHERE, -1, 0));
	at[0] = 5;
	TRY(mlock(at, 4 * PAGE));
	TRY(madvise(at, PAGE, MADV_DONTNEED));
	IN_CHILD("a child", {
		say("VmLck in the child: %ld", status("VmLck:"));
		TRY(madvise(at, PAGE, MADV_DONTNEED));
	});
	HOLDS(status("VmLck:") == 16);
	HOLDS(at[0] == 5);
	TRY(madvise(at, PAGE, MADV_DONTNEED_LOCKED));
	HOLDS(at[0] == 0);
	TRY(munlock(at, 4 * PAGE));
}

static void freed_lazily(void)
{
	int file = MUST(memfd_create("file", 0));
	MUST(ftruncate(file, PAGE));
	char *shared = MUST(mmap(0, PAGE, BOTH, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	char *of_file = MUST(mmap(0, PAGE, BOTH, MAP_SHARED, file, 0));
	char *copy = MUST(mmap(0, PAGE, BOTH, MAP_PRIVATE, file, 0));
	copy[0] = 3;
	TRY(madvise(shared, PAGE, MADV_FREE));
	TRY(madvise(of_file, PAGE, MADV_FREE));
	TRY(madvise(copy, PAGE, MADV_FREE));
	HOLDS(copy[0] == 3);
}

static void stacks(void)
{
	char *top = (char *)0x120000000000ul;
	int growing = ANYWHERE | MAP_GROWSDOWN | MAP_FIXED;
	HOLDS(mmap(top, PAGE, BOTH, growing, -1, 0) == top);
	/* Next to what cannot be touched it grows as far as that. */
	HOLDS(mmap(top - 3 * PAGE, PAGE, PROT_NONE, ANYWHERE | MAP_FIXED, -1, 0) == top - 3 * PAGE);
	HOLDS(stores(top - 2 * PAGE));
	/* And next to another stack. */
	char *above = top + 8 * PAGE;
	HOLDS(mmap(above, PAGE, BOTH, growing, -1, 0) == above);
	HOLDS(stores(above - PAGE));
	/* Whatever is mapped without a place is not put right below. */
	char *lone = (char *)0x130000000000ul;
	HOLDS(mmap(lone, PAGE, BOTH, growing, -1, 0) == lone);
	char *hinted = mmap(0, PAGE, BOTH, ANYWHERE, -1, 0);
	HOLDS(hinted + PAGE > lone || hinted + PAGE <= lone - MIB);
}

static void without_reserve(void)
{
	/* More than there is, on most machines: none of it is counted. */
	char *much = mmap(0, 1ul << 42, PROT_NONE, ANYWHERE | MAP_NORESERVE, -1, 0);
	HOLDS(much != MAP_FAILED);
	TRY(mprotect(much, 1ul << 42, BOTH));
	HOLDS(stores(much));
}

int main(void)
{
	struct sigaction action = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };
	sigaction(SIGSEGV, &action, 0);
	sigaction(SIGBUS, &action, 0);
	a_place_that_is_to_be_replaced();
	data();
	locked();
	freed_lazily();
	stacks();
	without_reserve();
	return 0;
}
