/* /proc/pressure: its form, its triggers, and that totals grow where tasks stall. The word says which part to run. */
#include "say.h"
#include <poll.h>
#include <sched.h>

/* Far above what any of this takes. */
#define LONG_MS 120000

struct line {
	double average[3];
	unsigned long long total;
};

struct pressure {
	struct line some, full;
};

/* Reads a file as programs do that watch it. */
static struct pressure load(const char *resource)
{
	struct pressure p;
	char path[40], text[300];
	snprintf(path, sizeof path, "/proc/pressure/%s", resource);
	int fd = MUST(open(path, O_RDONLY | O_CLOEXEC));
	ssize_t n = MUST(read(fd, text, sizeof text - 1));
	text[n] = 0;
	close(fd);
	int end = 0;
	int read = sscanf(text,
			  "some avg10=%lf avg60=%lf avg300=%lf total=%llu\n"
			  "full avg10=%lf avg60=%lf avg300=%lf total=%llu\n%n",
			  &p.some.average[0], &p.some.average[1], &p.some.average[2], &p.some.total, &p.full.average[0],
			  &p.full.average[1], &p.full.average[2], &p.full.total, &end);
	if (read != 8 || end != n) {
		say("%s has another form: %s", path, text);
		exit(1);
	}
	for (int i = 0; i < 3; i++)
		if (p.some.average[i] > 100 || p.full.average[i] > 100 || p.full.average[i] > p.some.average[i] + 0.01)
			say("%s has wrong averages: %s", path, text);
	return p;
}

static int trigger(const char *resource, const char *text)
{
	char path[40];
	snprintf(path, sizeof path, "/proc/pressure/%s", resource);
	int fd = MUST(open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC));
	MUST(write(fd, text, strlen(text) + 1));
	return fd;
}

static int put(int fd, const char *text, size_t bytes)
{
	return write(fd, text, bytes) < 0 ? -errno : 0;
}

static void on_cpu_0(void)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(0, &set);
	MUST(sched_setaffinity(0, sizeof set, &set));
}

/* Processes that take the first CPU from each other. */
static pid_t busy[2];

static void start_busy(void)
{
	for (int i = 0; i < 2; i++)
		if ((busy[i] = MUST(fork())) == 0) {
			on_cpu_0();
			for (;;)
				;
		}
}

static void end_busy(void)
{
	for (int i = 0; i < 2; i++) {
		kill(busy[i], SIGKILL);
		waitpid(busy[i], 0, 0);
	}
}

static void forms(void)
{
	load("cpu");
	load("memory");
	load("io");
	struct stat s;
	MUST(stat("/proc/pressure/memory", &s));
	HOLDS((s.st_mode & 07777) == 0666);
	int fd = MUST(open("/proc/pressure/memory", O_RDWR));
	struct pollfd waits = { fd, POLLPRI, 0 };
	HOLDS(poll(&waits, 1, 0) == 1 && waits.revents == (POLLERR | POLLPRI));
	HOLDS(put(fd, "", 0) == -EINVAL);
	HOLDS(put(fd, "some 150000 1000000", 19) == -EINVAL);
	HOLDS(put(fd, "some 0 1000000", 15) == -EINVAL);
	HOLDS(put(fd, "some 150000 499999", 19) == -EINVAL);
	HOLDS(put(fd, "some 150000 10000001", 21) == -EINVAL);
	HOLDS(put(fd, "some 1000001 1000000", 21) == -EINVAL);
	HOLDS(put(fd, "most 150000 1000000", 20) == -EINVAL);
	HOLDS(put(fd, "some 150000 1000000", 20) == 0);
	HOLDS(put(fd, "some 150000 1000000", 20) == -EBUSY);
	HOLDS(poll(&waits, 1, 0) == 0);
	close(fd);
	IN_CHILD("one without rights",
		 MUST(setresuid(1000, 1000, 1000));
		 load("memory");
		 HOLDS(open("/proc/pressure/memory", O_WRONLY) == -1 && errno == EPERM);
		 HOLDS(open("/proc/pressure/memory", O_RDWR) == -1 && errno == EPERM));
}

static void cpu(void)
{
	/* A CPU with one busy task has no task that waits, most of the time. */
	on_cpu_0();
	int fd = trigger("cpu", "some 50000 500000");
	struct pollfd waits = { fd, POLLPRI, 0 };
	start_busy();
	HOLDS(poll(&waits, 1, LONG_MS) == 1 && waits.revents == POLLPRI);
	double end = now() + LONG_MS / 1000;
	struct pressure before = load("cpu");
	while (load("cpu").some.total < before.some.total + 300000 && now() < end)
		sleep_ms(20);
	HOLDS(load("cpu").some.total >= before.some.total + 300000);
	while (load("cpu").some.average[0] < 20 && now() < end)
		sleep_ms(20);
	HOLDS(load("cpu").some.average[0] >= 20);
	HOLDS(load("cpu").full.total == 0);
	end_busy();
	close(fd);
	/* And it sinks again. */
	end = now() + LONG_MS / 1000;
	while (load("cpu").some.average[0] > 10 && now() < end)
		sleep_ms(100);
	HOLDS(load("cpu").some.average[0] <= 10);
}

/* Sleeps, and says whether anything stalled for a tenth of that time. */
static void rest(void)
{
	int fd = trigger("memory", "some 100000 1000000");
	struct pollfd waits = { fd, POLLPRI, 0 };
	struct pressure memory = load("memory"), io = load("io");
	HOLDS(poll(&waits, 1, 1500) == 0);
	HOLDS(load("memory").some.total == memory.some.total);
	HOLDS(load("io").some.total <= io.some.total + 150000);
	close(fd);
}

static unsigned long long counted(const char *name)
{
	char line[200];
	unsigned long long value = 0;
	FILE *file = fopen("/proc/vmstat", "r");
	while (fgets(line, sizeof line, file))
		if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ' ')
			value = strtoull(line + strlen(name), 0, 10);
	fclose(file);
	return value;
}

static size_t free_bytes(void)
{
	return sysconf(_SC_AVPHYS_PAGES) * (size_t)PAGE;
}

/* Takes more memory than there is, until it is killed. */
static void reclaim(void)
{
	struct pressure before = load("memory");
	int fd = trigger("memory", "some 1000 500000");
	struct pollfd waits = { fd, POLLPRI, 0 };
	/* Children that take all, one after the other, until the trigger has fired. */
	int fired = 0;
	double end = now() + LONG_MS / 1000;
	while (!fired && now() < end) {
		pid_t child = MUST(fork());
		if (child == 0) {
			int score = open("/proc/self/oom_score_adj", O_WRONLY);
			write(score, "1000", 4);
			for (;;) {
				char *more = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
				if (more == MAP_FAILED)
					_exit(1);
				memset(more, 1, 1 << 20);
			}
		}
		int status;
		MUST(waitpid(child, &status, 0));
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
			say_status("the child", status);
		fired = poll(&waits, 1, 300) == 1 && waits.revents == POLLPRI;
	}
	HOLDS(fired);
	HOLDS(load("memory").some.total > before.some.total);
	HOLDS(load("memory").full.total > before.full.total);
	close(fd);
}

/* Has faults of huge pages wait for blocks to be emptied. */
static void compaction(void)
{
	int fd = MUST(open("/sys/kernel/mm/transparent_hugepage/defrag", O_WRONLY));
	MUST(write(fd, "always", 6));
	close(fd);
	/* Or kcompactd would empty them first, if this takes long enough. */
	fd = MUST(open("/proc/sys/vm/compaction_proactiveness", O_WRONLY));
	MUST(write(fd, "0", 1));
	close(fd);
	size_t bytes = free_bytes() / 10 * 8;
	char *pieces = MUST(mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	madvise(pieces, bytes, MADV_NOHUGEPAGE);
	memset(pieces, 1, bytes);
	for (size_t at = 0; at + 4 * PAGE <= bytes; at += 4 * PAGE)
		MUST(madvise(pieces + at, 3 * PAGE, MADV_DONTNEED));
	struct pressure before = load("memory");
	unsigned long long stalls = counted("compact_stall");
	size_t taken = bytes / 2;
	char *blocks = MUST(mmap(0, taken, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	madvise(blocks, taken, MADV_HUGEPAGE);
	for (size_t at = 0; at < taken; at += PAGE)
		blocks[at] = 1;
	HOLDS(counted("compact_stall") > stalls);
	HOLDS(load("memory").some.total > before.some.total);
	HOLDS(load("memory").full.total > before.full.total);
	/* A stall takes no longer than the program was at it. */
	HOLDS(load("memory").some.total - before.some.total < 600000000);
}

int main(int count, char **words)
{
	const char *part = count > 1 ? words[1] : "";
	if (!strcmp(part, "forms"))
		forms();
	else if (!strcmp(part, "cpu"))
		cpu();
	else if (!strcmp(part, "rest"))
		rest();
	else if (!strcmp(part, "reclaim"))
		reclaim();
	else if (!strcmp(part, "compaction"))
		compaction();
	else
		return 2;
	say("done");
	return 0;
}
