/* How many arguments a program can have, by the limit of its stack, to the byte. */
#include "say.h"
#include <sys/resource.h>

static char self[4096], script[] = "./script";

/* As the new program: all of its strings, or a few words about them. */
static int role(int argc, char **argv, char **env)
{
	unsigned long bytes = 0;
	uint64_t sum = 0;
	int envc = 0;
	for (int i = 0; i < argc; i++)
		bytes += strlen(argv[i]) + 1, sum += hash(argv[i], strlen(argv[i])) * (i + 1);
	for (; env[envc]; envc++)
		bytes += strlen(env[envc]) + 1, sum += hash(env[envc], strlen(env[envc])) * (envc + 7);
	/* They lie one after the other. */
	for (int i = 1; i < argc; i++)
		if (argv[i] != argv[i - 1] + strlen(argv[i - 1]) + 1)
			_exit(50);
	return (bytes * 31 + sum * 7 + argc * 3 + envc) % 40;
}

/* Runs `path` with `n` arguments of `length` and `en` strings of `elength`; what came of it. */
static int attempt(const char *path, rlim_t limit, long n, long length, long en, long elength)
{
	static char a[140000], b[140000];
	pid_t pid = MUST(fork());
	if (pid == 0) {
		char **argv = malloc((n + 1) * sizeof *argv), **env = malloc((en + 1) * sizeof *env);
		memset(a, 'a', length), memset(b, 'b', elength);
		a[length] = b[elength] = 0;
		for (long i = 0; i < n; i++)
			argv[i] = a;
		for (long i = 0; i < en; i++)
			env[i] = b;
		argv[n] = env[en] = NULL;
		struct rlimit stack = { limit, RLIM_INFINITY };
		MUST(setrlimit(RLIMIT_STACK, &stack));
		execve(path, argv, env);
		_exit(errno == E2BIG ? 101 : errno == ENOMEM ? 102 : errno == EFAULT ? 103 : 104);
	}
	int status;
	MUST(waitpid(pid, &status, 0));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* The room that Linux gives to `n` arguments besides the path. */
static long room(rlim_t limit, long strings)
{
	long all = limit / 4 > 6 << 20 ? 6 << 20 : limit / 4 < 128 << 10 ? 128 << 10 : limit / 4;
	return all - 8 * strings;
}

static void edge(rlim_t limit, long length, long en, long elength)
{
	/* The path counts too, so the program is called by a name that is the same everywhere. */
	const char *path = "./self";
	long left = room(limit, en) - (strlen(path) + 1) - en * (elength + 1);
	long n = left / (length + 9);
	say("limit %ld, %ld strings of %ld, %ld of %ld: %d, one more: %d", (long)limit, n, length, en, elength,
	    attempt(path, limit, n, length, en, elength), attempt(path, limit, n + 1, length, en, elength));
}

static void edges(void)
{
	static const rlim_t limits[] = { RLIM_INFINITY, 23 << 20, 8 << 20, 300 << 10 };
	static const long lengths[] = { 0, 4095, 131071 };
	for (int i = 0; i < sizeof limits / sizeof *limits; i++)
		for (int k = 0; k < sizeof lengths / sizeof *lengths; k++) {
			edge(limits[i], lengths[k], 0, 0);
			if (k == 1)
				edge(limits[i], lengths[k], 5, 1000);
		}
	/* To the byte: the last argument fills what is left. */
	for (int more = -1; more <= 1; more++) {
		long left = room(8 << 20, 101) - 7 - 100 * 20000;
		say("%d more: %d", more, attempt("./self", 8 << 20, 1, left + more - 1, 100, 19999));
	}
	say("one string of 131071: %d, of 131072: %d", attempt("./self", 8 << 20, 1, 131071, 0, 0), attempt("./self", 8 << 20, 1, 131072, 0, 0));
	say("in the environment: %d, %d", attempt("./self", 8 << 20, 1, 1, 1, 131071), attempt("./self", 8 << 20, 1, 1, 1, 131072));
	say("four MiB: %d, eight: %d", attempt("./self", RLIM_INFINITY, 64, 65535, 0, 0), attempt("./self", RLIM_INFINITY, 128, 65535, 0, 0));
	say("by a script: %d, %d", attempt(script, RLIM_INFINITY, 40, 131000, 0, 0), attempt(script, RLIM_INFINITY, 48, 131000, 0, 0));
	/* The strings do not fit on a small stack. */
	say("small stack: %d, %d", attempt("./self", 64 << 10, 2, 10000, 0, 0), attempt("./self", 64 << 10, 10, 10000, 0, 0));
	say("and a smaller one: %d", attempt("./self", 8 << 10, 1, 20000, 0, 0));
	say("no arguments: %d", attempt("./self", 8 << 20, 0, 0, 0, 0));
}

static void bad(void)
{
	char *page = MUST((char *)mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	MUST(munmap(page + 2 * PAGE, PAGE));
	char **end = (char **)(page + 2 * PAGE), *none[] = { NULL };
	end[-1] = "x";
	TRY(execve("./self", end - 1, none));
	TRY(execve("./self", none, end - 1));
	TRY(execve("./self", end, none));
	TRY(execve("./self", (char **)((char *)end - 3), none));
	end[-1] = page + 2 * PAGE - 1;
	end[-2] = end[-1];
	memset(page, 'x', PAGE);
	TRY(execve("./self", (char *[]){ page + 2 * PAGE, NULL }, none));
	/* A string without an end. */
	memset(page, 'x', 2 * PAGE);
	TRY(execve("./self", (char *[]){ page + PAGE, NULL }, none));
	IN_CHILD("null vectors", execve("./self", NULL, NULL));
	/* Nothing but pointers, and no end to them. */
	long bytes = 16 << 20;
	char **many = MUST((char **)mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	MUST(munmap((char *)many + bytes, PAGE));
	for (long i = 0; i < bytes / 8; i++)
		many[i] = "";
	TRY(execve("./self", many, none));
	many[bytes / 8 - 1] = NULL;
	TRY(execve("./self", many, none));
	TRY(execve("./self", none, many));
}

int main(int argc, char **argv, char **env)
{
	if (argc == 0 || !strstr(argv[0], "arguments"))
		return role(argc, argv, env);
	ssize_t n = MUST(readlink("/proc/self/exe", self, sizeof self - 1));
	self[n] = 0;
	MUST(symlink(self, "self"));
	int fd = MUST(open(script, O_CREAT | O_WRONLY, 0755));
	MUST(write(fd, "#!./self word\n", 14));
	close(fd);
	edges();
	bad();
	unlink("self"), unlink(script);
	return 0;
}
