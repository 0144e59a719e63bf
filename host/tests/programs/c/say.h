/* What every program here uses to say what it saw: the call as it is written, then the outcome. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096

/* Where nothing is mapped. The first GiBs will not do: Linux draws a heap's place from the GiB above the program. */
#define HOLE ((char *)0x1000000000)

/* Prints a line at once, so that children of a fork do not print it again. */
static inline void say(const char *format, ...)
{
	char line[1024];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line - 1, format, args);
	va_end(args);
	if (n > (int)sizeof line - 2)
		n = sizeof line - 2;
	line[n++] = '\n';
	for (int done = 0; done < n;) {
		ssize_t put = write(1, line + done, n - done);
		if (put < 0) {
			if (errno == EINTR)
				continue;
			_exit(99);
		}
		done += put;
	}
}

static inline void say_result(const char *text, long result, int error)
{
	if (result == -1 && error)
		say("%s = -1 %s", text, strerrorname_np(error));
	else
		say("%s = %ld", text, result);
}

/* A call whose result is the same everywhere. */
#define TRY(call) do { errno = 0; long r_ = (long)(call); int e_ = errno; say_result(#call, r_, e_); } while (0)
/* A call whose result differs: only whether it succeeded. */
#define DO(call) do { errno = 0; long r_ = (long)(call); int e_ = errno; \
	if (r_ == -1) say_result(#call, r_, e_); else say("%s succeeds", #call); } while (0)
/* A statement that must hold everywhere. */
#define HOLDS(what) say("%s: %s", #what, (what) ? "yes" : "NO")

/* Ends the program where nothing else makes sense. */
#define MUST(call) ({ errno = 0; __typeof__(call) r_ = (call); \
	if ((long)r_ == -1) { say("%s fails: %s", #call, strerrorname_np(errno)); exit(98); } r_; })

/* A call under a limit of the sizes of files. The limit is lifted before the output, which may be a file, too. */
#define TRY_WITHIN(bytes, call) do { struct rlimit no_ = { RLIM_INFINITY, RLIM_INFINITY }, few_ = { (bytes), RLIM_INFINITY }; \
	MUST(setrlimit(RLIMIT_FSIZE, &few_)); errno = 0; long r_ = (long)(call); int e_ = errno; \
	MUST(setrlimit(RLIMIT_FSIZE, &no_)); say_result(#call, r_, e_); } while (0)

static inline void say_status(const char *who, int status)
{
	if (WIFEXITED(status))
		say("%s exited with %d", who, WEXITSTATUS(status));
	else if (WIFSIGNALED(status))
		say("%s was ended by signal %d", who, WTERMSIG(status));
	else if (WIFSTOPPED(status))
		say("%s was stopped by signal %d", who, WSTOPSIG(status));
	else if (WIFCONTINUED(status))
		say("%s goes on", who);
	else
		say("%s has status %#x", who, status);
}

/* Runs a function in a child and says how that ended. */
#define IN_CHILD(name, ...) do { pid_t p_ = MUST(fork()); if (p_ == 0) { __VA_ARGS__; _exit(0); } \
	int s_; MUST(waitpid(p_, &s_, 0)); say_status(name, s_); } while (0)

static inline void sleep_ms(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
	while (nanosleep(&t, &t) == -1 && errno == EINTR)
		;
}

static inline double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static inline uint64_t hash(const void *data, size_t bytes)
{
	uint64_t h = 14695981039346656037u;
	for (size_t i = 0; i < bytes; i++)
		h = (h ^ ((const unsigned char *)data)[i]) * 1099511628211u;
	return h;
}
