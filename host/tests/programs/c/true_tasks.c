/* What calls about tasks answer: waits on several words, policies, what is shared, advice for others. */
#include "say.h"
#include "blocked.h"
#include <linux/futex.h>
#include <linux/kcmp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/uio.h>

#ifndef SCHED_FLAG_RESET_ON_FORK
#define SCHED_FLAG_RESET_ON_FORK 1
#define SCHED_FLAG_KEEP_POLICY 8
#define SCHED_FLAG_KEEP_PARAMS 0x10
#endif
#define SCHED_DEADLINE 6

struct sched_attr {
	uint32_t size, sched_policy;
	uint64_t sched_flags;
	int32_t sched_nice;
	uint32_t sched_priority;
	uint64_t sched_runtime, sched_deadline, sched_period;
	uint32_t sched_util_min, sched_util_max;
};

#define W(word, v) { .val = v, .uaddr = (uintptr_t)&(word), .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG }

static uint32_t words[128];

static long waitv(void *w, unsigned n, unsigned flags, struct timespec *t, int clock)
{
	return syscall(SYS_futex_waitv, w, n, flags, t, clock);
}

static void *waker(void *arg)
{
	until_in_call(getpid(), getpid(), SYS_futex_waitv);
	uint32_t *word = arg;
	*word = 1;
	syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, 0, 0, 0);
	return 0;
}

static long moved, woken;

static void *requeuer(void *arg)
{
	until_in_call(getpid(), getpid(), SYS_futex_waitv);
	/* Moved to another word, and woken there. */
	moved = (syscall(SYS_futex, &words[3], FUTEX_REQUEUE | FUTEX_PRIVATE_FLAG, 0, 1, &words[100], 0));
	woken = (syscall(SYS_futex, &words[100], FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, 0, 0, 0));
	return 0;
}

static void on_alarm(int s) { (void)s; }

static void waits(void)
{
	struct futex_waitv w[130] = { W(words[0], 0), W(words[1], 0) };
	struct timespec t = { 0, 0 }, bad = { 0, 1000000000 };
	TRY(waitv(w, 0, 0, 0, 0));
	TRY(waitv(w, 129, 0, 0, 0));
	TRY(waitv(0, 1, 0, 0, 0));
	TRY(waitv(w, 1, 1, 0, 0));
	TRY(waitv((void *)8, 1, 0, 0, 0));
	TRY(waitv(w, 2, 0, &t, CLOCK_MONOTONIC));
	TRY(waitv(w, 2, 0, &t, CLOCK_REALTIME));
	TRY(waitv(w, 2, 0, &t, CLOCK_BOOTTIME));
	TRY(waitv(w, 2, 0, &bad, CLOCK_MONOTONIC));
	TRY(waitv(w, 2, 0, (void *)8, CLOCK_MONOTONIC));
	w[1].val = 5;
	TRY(waitv(w, 2, 0, 0, 0));
	w[1].val = 0;
	w[1].flags = 0;
	TRY(waitv(w, 2, 0, 0, 0));
	w[1].flags = FUTEX_32 | 1;
	TRY(waitv(w, 2, 0, 0, 0));
	w[1].flags = FUTEX_32;
	w[1].__reserved = 1;
	TRY(waitv(w, 2, 0, 0, 0));
	w[1].__reserved = 0;
	w[1].uaddr++;
	TRY(waitv(w, 2, 0, 0, 0));
	w[1].uaddr = 8;
	TRY(waitv(w, 2, 0, 0, 0));
	w[1].uaddr = 1ull << 63;
	TRY(waitv(w, 2, 0, 0, 0));
	for (int i = 0; i < 128; i++)
		w[i] = (struct futex_waitv)W(words[i], 0);
	int which[] = { 0, 77, 127 };
	for (int i = 0; i < 3; i++) {
		pthread_t thread;
		pthread_create(&thread, 0, waker, &words[which[i]]);
		TRY(waitv(w, 128, 0, 0, 0));
		pthread_join(thread, 0);
		words[which[i]] = 0;
	}
	pthread_t thread;
	pthread_create(&thread, 0, requeuer, 0);
	TRY(waitv(w, 100, 0, 0, 0));
	pthread_join(thread, 0);
	say("moved %ld, woken %ld", moved, woken);
	/* The same word twice, and one that another process wakes. */
	uint32_t *shared = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	w[0] = w[1] = (struct futex_waitv){ .uaddr = (uintptr_t)shared, .flags = FUTEX_32 };
	pid_t child = MUST(fork());
	if (child == 0) {
		until_in_call(getppid(), getppid(), SYS_futex_waitv);
		*shared = 1;
		_exit(syscall(SYS_futex, shared, FUTEX_WAKE, 10, 0, 0, 0));
	}
	TRY(waitv(w, 2, 0, 0, 0));
	int status;
	MUST(waitpid(child, &status, 0));
	say_status("the waker", status);
	*shared = 0;
	struct sigaction act = { .sa_handler = on_alarm };
	sigaction(SIGALRM, &act, 0);
	alarm_once_asleep(50);
	TRY(waitv(w, 2, 0, 0, 0));
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += 20000000;
	if (t.tv_nsec >= 1000000000)
		t.tv_nsec -= 1000000000, t.tv_sec++;
	TRY(waitv(w, 2, 0, &t, CLOCK_MONOTONIC));
	munmap(shared, PAGE);
}

static void say_attr(const char *what, pid_t pid, unsigned size)
{
	unsigned char b[128];
	memset(b, 0xee, sizeof b);
	struct sched_attr *a = (void *)b;
	errno = 0;
	long r = syscall(SYS_sched_getattr, pid, a, size, 0);
	if (r) {
		say("%s: %s", what, strerrorname_np(errno));
		return;
	}
	int end = sizeof b;
	while (b[end - 1] == 0xee)
		end--;
	say("%s: size %u, policy %u, flags %#lx, nice %d, priority %u, times %lu %lu %lu, bytes %d", what, a->size,
	    a->sched_policy, (long)a->sched_flags, a->sched_nice, a->sched_priority, (long)a->sched_runtime,
	    (long)a->sched_deadline, (long)a->sched_period, end);
}

static void policies(void)
{
	struct sched_attr a = { .size = sizeof a };
#define SET(...) do { a = (struct sched_attr){ .size = sizeof a, __VA_ARGS__ }; errno = 0; \
	long r = syscall(SYS_sched_setattr, 0, &a, 0); say_result("set " #__VA_ARGS__, r, errno); } while (0)
	say_attr("first", 0, sizeof a);
	say_attr("short", 0, 48);
	say_attr("shorter", 0, 47);
	say_attr("long", 0, 100);
	say_attr("too long", 0, 4097);
	say_attr("negative", -1, sizeof a);
	say_attr("no such task", 4000000, sizeof a);
	TRY(syscall(SYS_sched_getattr, 0, 0, sizeof a, 0));
	TRY(syscall(SYS_sched_getattr, 0, &a, sizeof a, 1));
	TRY(syscall(SYS_sched_getattr, 0, 8, sizeof a, 0));
	SET(.sched_policy = SCHED_BATCH, .sched_nice = 5);
	say_attr("batch", 0, sizeof a);
	say("nice %d, policy %d", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0));
	SET(.sched_policy = SCHED_OTHER, .sched_nice = 100, .sched_flags = SCHED_FLAG_RESET_ON_FORK);
	say_attr("reset", 0, sizeof a);
	IN_CHILD("the child", say_attr("child", 0, sizeof a));
	SET(.sched_policy = SCHED_IDLE, .sched_flags = SCHED_FLAG_KEEP_PARAMS);
	say_attr("idle", 0, sizeof a);
	SET(.sched_policy = SCHED_BATCH, .sched_nice = 3, .sched_flags = SCHED_FLAG_KEEP_POLICY);
	say_attr("kept policy", 0, sizeof a);
	SET(.sched_policy = SCHED_OTHER, .sched_nice = -100);
	say_attr("least nice", 0, sizeof a);
	SET(.sched_policy = SCHED_OTHER);
	SET(.sched_policy = SCHED_OTHER, .sched_priority = 1);
	SET(.sched_policy = SCHED_FIFO);
	SET(.sched_policy = SCHED_FIFO, .sched_priority = 100);
	SET(.sched_policy = 4);
	SET(.sched_policy = 77);
	SET(.sched_policy = -1u);
	SET(.sched_policy = SCHED_OTHER, .sched_flags = 0x80);
	SET(.sched_policy = SCHED_DEADLINE);
	SET(.sched_policy = SCHED_DEADLINE, .sched_runtime = 100, .sched_deadline = 1000000);
	SET(.sched_policy = SCHED_DEADLINE, .sched_runtime = 2000000, .sched_deadline = 1000000);
	a = (struct sched_attr){ 0 };
	TRY(syscall(SYS_sched_setattr, 0, &a, 0));
	a.size = 47;
	TRY(syscall(SYS_sched_setattr, 0, &a, 0));
	say("size %u", a.size);
	unsigned char large[100] = { 100 };
	TRY(syscall(SYS_sched_setattr, 0, large, 0));
	large[99] = 1;
	TRY(syscall(SYS_sched_setattr, 0, large, 0));
	say("size %u", *(uint32_t *)large);
	a.size = 5000;
	TRY(syscall(SYS_sched_setattr, 0, &a, 0));
	a.size = 48;
	TRY(syscall(SYS_sched_setattr, 0, &a, 0));
	TRY(syscall(SYS_sched_setattr, 0, &a, 1));
	TRY(syscall(SYS_sched_setattr, -1, &a, 0));
	TRY(syscall(SYS_sched_setattr, 4000000, &a, 0));
	TRY(syscall(SYS_sched_setattr, 0, 0, 0));
	TRY(syscall(SYS_sched_setattr, 0, 8, 0));
}

static long cmp(pid_t a, pid_t b, int type, long x, long y)
{
	long r = syscall(SYS_kcmp, a, b, type, x, y);
	/* Which comes first is chance. */
	return r == 2 ? 1 : r;
}

static void shared(void)
{
	pid_t me = getpid();
	int f = MUST(open("/tmp/kcmp", O_RDWR | O_CREAT, 0600)), g = MUST(open("/tmp/kcmp", O_RDWR)), d = dup(f);
	int go[2];
	MUST(pipe(go));
	pid_t child = MUST(fork());
	if (child == 0) {
		char b;
		read(go[0], &b, 1);
		_exit(0);
	}
	TRY(cmp(me, me, KCMP_FILE, f, d));
	TRY(cmp(me, me, KCMP_FILE, f, g));
	HOLDS((syscall(SYS_kcmp, me, me, KCMP_FILE, f, g) ^ syscall(SYS_kcmp, me, me, KCMP_FILE, g, f)) == 3);
	TRY(cmp(me, child, KCMP_FILE, f, f));
	TRY(cmp(me, child, KCMP_FILE, f, d));
	TRY(cmp(me, child, KCMP_FILE, f, g));
	TRY(cmp(me, child, KCMP_FILE, f, 999));
	TRY(cmp(me, child, KCMP_FILE, -1, f));
	TRY(cmp(me, me, KCMP_VM, 0, 0));
	TRY(cmp(me, child, KCMP_VM, 0, 0));
	TRY(cmp(me, me, KCMP_FILES, 0, 0));
	TRY(cmp(me, child, KCMP_FILES, 0, 0));
	TRY(cmp(me, child, KCMP_FS, 0, 0));
	TRY(cmp(me, child, KCMP_SIGHAND, 0, 0));
	TRY(cmp(me, me, KCMP_SIGHAND, 0, 0));
	TRY(cmp(me, child, KCMP_IO, 0, 0));
	TRY(cmp(me, me, 8, 0, 0));
	TRY(cmp(me, me, -1, 0, 0));
	TRY(cmp(me, 4000000, KCMP_VM, 0, 0));
	TRY(cmp(-1, me, KCMP_VM, 0, 0));
	TRY(cmp(0, me, KCMP_VM, 0, 0));
	/* Advice for another process. */
	int fd = MUST(syscall(SYS_pidfd_open, child, 0));
	char *at = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int own = MUST(syscall(SYS_pidfd_open, me, 0));
	struct iovec v[2] = { { at, PAGE }, { at + 2 * PAGE, PAGE } }, hole = { (void *)PAGE, PAGE }, odd = { at + 1, PAGE };
	TRY(syscall(SYS_process_madvise, own, v, 2, MADV_COLD, 0));
	TRY(syscall(SYS_process_madvise, own, v, 2, MADV_WILLNEED, 0));
	TRY(syscall(SYS_process_madvise, own, v, 2, MADV_DONTNEED, 0));
	TRY(syscall(SYS_process_madvise, own, v, 2, 999, 0));
	TRY(syscall(SYS_process_madvise, own, v, 2, MADV_COLD, 1));
	TRY(syscall(SYS_process_madvise, own, v, 0, MADV_COLD, 0));
	TRY(syscall(SYS_process_madvise, own, v, 1025, MADV_COLD, 0));
	TRY(syscall(SYS_process_madvise, own, &hole, 1, MADV_COLD, 0));
	TRY(syscall(SYS_process_madvise, own, &odd, 1, MADV_COLD, 0));
	TRY(syscall(SYS_process_madvise, f, v, 2, MADV_COLD, 0));
	TRY(syscall(SYS_process_madvise, 999, v, 2, MADV_COLD, 0));
	TRY(syscall(SYS_process_madvise, fd, v, 2, MADV_COLD, 0) == -1 ? errno : 0);
	MUST(write(go[1], "x", 1));
	MUST(waitpid(child, 0, 0));
	TRY(syscall(SYS_process_madvise, fd, v, 2, MADV_COLD, 0));
	unlink("/tmp/kcmp");
}

int main(void)
{
	waits();
	policies();
	shared();
	return 0;
}
