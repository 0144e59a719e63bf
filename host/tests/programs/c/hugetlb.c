/* The pool of huge pages, call by call and counter by counter. Runs as the only user of a guest's pool. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUGE (2UL << 20)
#define POOL "/proc/sys/vm/nr_hugepages"

static sigjmp_buf back;
static volatile int caught;

static void on_signal(int number)
{
	caught = number;
	siglongjmp(back, 1);
}

static const char *error(void)
{
	return errno ? strerrorname_np(errno) : "ok";
}

static void counters(const char *when)
{
	static const char *const names[] = {"HugePages_Total", "HugePages_Free", "HugePages_Rsvd", "HugePages_Surp"};
	char line[200];
	FILE *file = fopen("/proc/meminfo", "r");

	printf("%s:", when);
	while (file && fgets(line, sizeof line, file))
		for (int index = 0; index < 4; index++)
			if (!strncmp(line, names[index], strlen(names[index])))
				printf(" %s %ld", names[index] + 10, strtol(strchr(line, ':') + 1, NULL, 10));
	if (file)
		fclose(file);
	printf("\n");
	fflush(stdout);
}

static void write_knob(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY);

	errno = 0;
	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		printf("%s to %s: %s\n", value, path, error());
	close(fd);
}

/* The signal that an access gets; 0: none. */
static int touch(volatile char *at, int store)
{
	if (sigsetjmp(back, 1))
		return caught;
	if (store)
		*at = 1;
	else
		(void)*at;
	return 0;
}

static char *map(size_t bytes, int flags)
{
	errno = 0;
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_HUGETLB | flags, -1, 0);
}

static void private_memory(void)
{
	int status, result;
	char *at = map(4 * HUGE, MAP_PRIVATE);

	printf("private: %s, aligned: %d\n", error(), (unsigned long)at % HUGE == 0);
	counters("mapped");
	printf("zero: %d\n", at[123] == 0 && at[3 * HUGE] == 0);
	counters("two read");
	memset(at, 0x5a, 4 * HUGE);
	counters("all written");

	pid_t child = fork();
	if (child == 0) {
		int same = at[HUGE] == 0x5a;

		at[HUGE] = 1;
		printf("in the child: %d %d\n", same, at[HUGE]);
		counters("copied by the child");
		_exit(0);
	}
	waitpid(child, &status, 0);
	printf("the child: %x, the parent sees %x\n", status, at[HUGE]);
	counters("after the child");

	errno = 0, result = munmap(at + 4096, HUGE);
	printf("unmap askew: %d %s\n", result, error());
	errno = 0, result = munmap(at, 4096);
	printf("unmap a part: %d %s\n", result, error());
	errno = 0, result = mprotect(at + HUGE, 4096, PROT_READ);
	printf("protect a part: %d %s\n", result, error());
	errno = 0, result = mprotect(at + HUGE, HUGE, PROT_READ);
	printf("protect one: %d %s, a store gets %d\n", result, error(), touch(at + HUGE, 1));
	errno = 0, result = madvise(at + HUGE, HUGE, MADV_DONTNEED);
	printf("not needed: %d %s\n", result, error());
	counters("not needed");
	errno = 0, result = munmap(at + HUGE, HUGE);
	printf("unmap one: %d %s, a load gets %d\n", result, error(), touch(at + HUGE, 0));
	counters("one unmapped");

	errno = 0;
	char *moved = mremap(at + 2 * HUGE, 2 * HUGE, 2 * HUGE, MREMAP_MAYMOVE);
	printf("remap as it is: %d %s\n", moved == at + 2 * HUGE, error());
	errno = 0, moved = mremap(at + 2 * HUGE, 2 * HUGE, 3 * HUGE, MREMAP_MAYMOVE);
	printf("remap larger: %d %s\n", moved == MAP_FAILED, error());
	errno = 0, moved = mremap(at + 2 * HUGE, 2 * HUGE, HUGE, 0);
	printf("remap smaller: %d %s\n", moved == at + 2 * HUGE, error());
	counters("smaller");
	char *room = mmap(NULL, 8 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *target = (char *)(((unsigned long)room + HUGE - 1) & ~(HUGE - 1));
	errno = 0, moved = mremap(at + 2 * HUGE, HUGE, HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, target);
	printf("remap elsewhere: %d %s, it holds %x\n", moved == target, error(), moved == target ? target[99] : 0);
	munmap(target, HUGE);
	munmap(at, 4 * HUGE);
	counters("all unmapped");
}

static void shared_memory(void)
{
	int status;
	char *at = map(3 * HUGE, MAP_SHARED);

	printf("shared: %s\n", error());
	counters("mapped");
	at[0] = 1;
	pid_t child = fork();
	if (child == 0) {
		at[HUGE] = 2;
		_exit(0);
	}
	waitpid(child, &status, 0);
	printf("the parent sees %d\n", at[HUGE]);
	counters("two written");
	munmap(at, 3 * HUGE);
	counters("unmapped");
}

static void beyond_the_pool(void)
{
	char *at = map(9 * HUGE, MAP_PRIVATE);

	printf("nine of eight: %s\n", error());
	at = map(9 * HUGE, MAP_PRIVATE | MAP_NORESERVE);
	printf("without a promise: %s\n", error());
	for (int page = 0; page < 9; page++) {
		int number = touch(at + page * HUGE, 1);

		if (number) {
			printf("page %d gets signal %d\n", page, number);
			break;
		}
	}
	counters("the pool is empty");
	munmap(at, 9 * HUGE);
	counters("unmapped");
}

/* Who was promised a page keeps it when the pool is empty: the child that shares it gives it up. */
static void a_child_gives_way(void)
{
	int go[2], status;
	char byte;
	char *at = map(HUGE, MAP_PRIVATE), *rest = map(7 * HUGE, MAP_PRIVATE);

	at[0] = 'p';
	memset(rest, 1, 7 * HUGE);
	counters("all taken");
	int loaded[2];
	if (pipe(go) || pipe(loaded))
		return;
	pid_t child = fork();
	if (child == 0) {
		printf("the child loads %c\n", at[0]);
		fflush(stdout);
		write(loaded[1], "", 1);
		read(go[0], &byte, 1);
		printf("then a load gets %d, of another page %d\n", touch(at, 0), touch(rest, 0));
		fflush(stdout);
		_exit(0);
	}
	read(loaded[0], &byte, 1);
	close(loaded[0]);
	close(loaded[1]);
	printf("the parent's store gets %d\n", touch(at, 1));
	printf("it loads %d\n", at[0]);
	fflush(stdout);
	write(go[1], "", 1);
	waitpid(child, &status, 0);
	printf("the child: %x\n", status);
	close(go[0]);
	close(go[1]);
	munmap(at, HUGE);
	munmap(rest, 7 * HUGE);
	counters("unmapped");
}

static void odd_arguments(void)
{
	int result;
	char *at = map(HUGE + 4096, MAP_PRIVATE);

	printf("odd length: %s\n", error());
	counters("mapped");
	errno = 0, result = munmap(at, HUGE + 4096);
	printf("unmap odd: %d %s\n", result, error());
	errno = 0, result = munmap(at, 2 * HUGE);
	printf("unmap even: %d %s\n", result, error());
	at = map(HUGE, MAP_PRIVATE | 21 << 26);
	printf("2 MiB by its number: %s\n", error());
	munmap(at, HUGE);
	map(HUGE, MAP_PRIVATE | 22 << 26);
	printf("4 MiB: %s\n", error());
	errno = 0;
	mmap((void *)0x1000001000, HUGE, PROT_READ, MAP_ANONYMOUS | MAP_HUGETLB | MAP_PRIVATE | MAP_FIXED, -1, 0);
	printf("a fixed odd place: %s\n", error());
	errno = 0;
	at = mmap((void *)0x1000001000, HUGE, PROT_READ, MAP_ANONYMOUS | MAP_HUGETLB | MAP_PRIVATE, -1, 0);
	printf("a wish for an odd place: %s %p\n", error(), at);
	munmap(at, HUGE);
	int fd = open("/proc/self/exe", O_RDONLY);
	errno = 0;
	mmap(NULL, HUGE, PROT_READ, MAP_HUGETLB | MAP_PRIVATE, fd, 0);
	printf("an ordinary file: %s\n", error());
	close(fd);
	write_knob(POOL, "x");
	write_knob(POOL, "-1");
	write_knob("/proc/sys/vm/nr_overcommit_hugepages", "y");
}

static void surplus(void)
{
	write_knob("/proc/sys/vm/nr_overcommit_hugepages", "4");
	char *at = map(10 * HUGE, MAP_PRIVATE);
	printf("ten of eight and four: %s\n", error());
	counters("mapped");
	memset(at, 1, 10 * HUGE);
	counters("written");
	munmap(at, 10 * HUGE);
	counters("unmapped");
	map(13 * HUGE, MAP_PRIVATE);
	printf("thirteen: %s\n", error());
	at = map(6 * HUGE, MAP_PRIVATE);
	memset(at, 3, 6 * HUGE);
	write_knob(POOL, "2");
	counters("smaller than what is used");
	munmap(at, 3 * HUGE);
	counters("half unmapped");
	munmap(at + 3 * HUGE, 3 * HUGE);
	counters("unmapped");
}

int main(void)
{
	signal(SIGBUS, on_signal);
	signal(SIGSEGV, on_signal);
	counters("at first");
	write_knob(POOL, "8");
	counters("eight");
	private_memory();
	shared_memory();
	beyond_the_pool();
	a_child_gives_way();
	odd_arguments();
	surplus();
	write_knob(POOL, "0");
	counters("in the end");
	return 0;
}
