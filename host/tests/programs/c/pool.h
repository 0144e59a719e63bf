/* What programs about the pool of huge pages have in common. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE (2UL << 20)
#define POOL "/proc/sys/vm/nr_hugepages"
#define OVERCOMMIT "/proc/sys/vm/nr_overcommit_hugepages"

/* A call's result: its error, or what it gave. */
#define RESULT(what, call)                                                                                             \
	do {                                                                                                           \
		errno = 0;                                                                                             \
		long result = (long)(call);                                                                            \
		if (result == -1)                                                                                      \
			printf("%s: %s\n", what, strerrorname_np(errno));                                              \
		else                                                                                                   \
			printf("%s: %ld\n", what, result);                                                             \
	} while (0)

/* The same where what it gave differs from run to run. */
#define WORKS(what, call)                                                                                              \
	do {                                                                                                           \
		errno = 0;                                                                                             \
		long result = (long)(call);                                                                            \
		printf("%s: %s\n", what, result == -1 ? strerrorname_np(errno) : "ok");                                \
	} while (0)

static sigjmp_buf back;
static volatile int caught, touching;

/* A signal that was not expected ends the program: the place to go back to is gone. */
static inline void on_signal(int number)
{
	if (!touching) {
		static const char said[] = "a signal where none was expected\n";
		write(2, said, sizeof said - 1);
		_exit(97);
	}
	caught = number;
	siglongjmp(back, 1);
}

static inline void catch_signals(void)
{
	signal(SIGBUS, on_signal);
	signal(SIGSEGV, on_signal);
	setvbuf(stdout, NULL, _IOLBF, 0);
}

/* A counter of /proc/vmstat; -1: there is none of this name. */
static inline long vmstat(const char *name)
{
	char line[128];
	long value = -1;
	size_t length = strlen(name);
	FILE *file = fopen("/proc/vmstat", "r");

	while (file && fgets(line, sizeof line, file))
		if (!strncmp(line, name, length) && line[length] == ' ')
			value = atol(line + length);
	if (file)
		fclose(file);
	return value;
}

/* The signal that an access gets; 0: none. */
static inline int touch(volatile char *at, int store)
{
	if (sigsetjmp(back, 1)) {
		touching = 0;
		return caught;
	}
	touching = 1;
	if (store)
		*at = *at + 1;
	else
		(void)*at;
	touching = 0;
	return 0;
}

static inline long meminfo(const char *name)
{
	char line[128];
	long value = -1;
	FILE *file = fopen("/proc/meminfo", "r");

	while (file && fgets(line, sizeof line, file))
		if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ':')
			sscanf(line + strlen(name) + 1, "%ld", &value);
	if (file)
		fclose(file);
	return value;
}

static inline void counters(const char *when)
{
	printf("%s: Total %ld Free %ld Rsvd %ld Surp %ld\n", when, meminfo("HugePages_Total"), meminfo("HugePages_Free"),
	       meminfo("HugePages_Rsvd"), meminfo("HugePages_Surp"));
}

static inline void write_knob(const char *path, long value)
{
	char text[32];
	int length = snprintf(text, sizeof text, "%ld", value);
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, length) != length)
		perror(path);
	close(fd);
}

static inline char *map_pool(size_t bytes, int flags)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_HUGETLB | flags, -1, 0);
}
