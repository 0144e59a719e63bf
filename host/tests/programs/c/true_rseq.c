/* Restartable sequences: what registering answers, which CPU it says, and that sections are given up. */
#include "say.h"
#include <linux/rseq.h>
#include <pthread.h>
#include <sched.h>
#include <ucontext.h>

#define SIG 0x53053053
#define THREADS 4
#define TURNS 200000

static __thread struct rseq own __attribute__((aligned(32)));

static long reg(void *at, unsigned bytes, int flags, unsigned sig) { return syscall(SYS_rseq, at, bytes, flags, sig); }

static void pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof set, &set);
}

static void errors(void)
{
	static char room[128] __attribute__((aligned(64)));
	cpu_set_t all;
	/* Two looks at the CPU's number differ if the process moves between them. */
	MUST(sched_getaffinity(0, sizeof all, &all));
	pin(sched_getcpu());
	TRY(reg(room + 8, 32, 0, SIG));
	TRY(reg(room, 31, 0, SIG));
	TRY(reg(room, 64, 0, SIG));
	TRY(reg(room, 32, 2, SIG));
	TRY(reg(room, 32, 1, SIG));
	TRY(reg(0, 32, 1, SIG));
	TRY(reg((void *)(1ull << 63), 32, 0, SIG));
	TRY(reg(room, 32, 0, SIG));
	TRY(reg(room, 32, 0, SIG));
	TRY(reg(room, 32, 0, SIG + 1));
	TRY(reg(room + 32, 32, 0, SIG));
	TRY(reg(room, 33, 0, SIG));
	struct rseq *r = (void *)room;
	HOLDS(r->cpu_id == (unsigned)sched_getcpu());
	HOLDS(r->cpu_id_start == r->cpu_id);
	TRY(reg(room, 32, 3, SIG));
	TRY(reg(room + 32, 32, 1, SIG));
	TRY(reg(room, 31, 1, SIG));
	TRY(reg(room, 32, 1, SIG + 1));
	IN_CHILD("a forked process", {
		HOLDS(r->cpu_id == (unsigned)sched_getcpu());
		TRY(reg(room, 32, 0, SIG));
		TRY(reg(room, 32, 1, SIG));
	});
	TRY(reg(room, 32, 1, SIG));
	say("cpu %d, start %d", (int)r->cpu_id, (int)r->cpu_id_start);
	TRY(reg(room, 32, 1, SIG));
	/* What is not there shows when it is written. */
	IN_CHILD("nothing there", TRY(reg((void *)32, 32, 0, SIG)));
	IN_CHILD("read-only", {
		void *page = mmap(0, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		TRY(reg(page, 32, 0, SIG));
	});
	MUST(sched_setaffinity(0, sizeof all, &all));
}

/* Spins in a section until it is given up; says 1 then, or 0 after too long. */
static int spin(struct rseq *r)
{
	long turns = 20000000000;
	int aborted = 0;
	asm volatile(".pushsection __rseq_cs, \"aw\"\n .balign 32\n 9: .long 0, 0\n .quad 1f, 2f - 1f, 4f\n .popsection\n"
		     "lea 9b(%%rip), %%rax\n mov %%rax, %[cs]\n"
		     "1: sub $1, %[turns]\n jnz 1b\n 2: jmp 5f\n"
		     ".long %c[sig]\n 4: mov $1, %[aborted]\n 5:\n"
		     : [turns] "+r"(turns), [aborted] "+r"(aborted), [cs] "+m"(r->rseq_cs)
		     : [sig] "i"(SIG) : "rax", "memory", "cc");
	return aborted;
}

static volatile unsigned long seen_ip, seen_cs;

static void handler(int s, siginfo_t *info, void *context)
{
	(void)s; (void)info;
	seen_ip = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	seen_cs = own.rseq_cs;
}

static void sections(void)
{
	MUST(reg(&own, 32, 0, SIG));
	struct sigaction act = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	sigaction(SIGALRM, &act, 0);
	/* Again and again: the first signal may come before the section begins. */
	struct itimerval often = { { 0, 30000 }, { 0, 30000 } }, never = { 0 };
	setitimer(ITIMER_REAL, &often, 0);
	int aborted = spin(&own);
	setitimer(ITIMER_REAL, &never, 0);
	say("a signal: aborted %d", aborted);
	HOLDS(own.rseq_cs == 0);
	HOLDS(seen_cs == 0);
	/* Another task on the same CPU. */
	pin(0);
	pid_t child = MUST(fork());
	if (child == 0) {
		/* Until it is killed. */
		for (double end = now() + 300; now() < end;)
			;
		_exit(0);
	}
	say("another task: aborted %d", spin(&own));
	kill(child, SIGKILL);
	waitpid(child, 0, 0);
	/* A section that is over is forgotten, not given up. */
	struct rseq_cs over = { .start_ip = (uintptr_t)say, .post_commit_offset = 1, .abort_ip = (uintptr_t)&over };
	static unsigned marks[] = { SIG, 0x90909090 };
	over.abort_ip = (uintptr_t)&marks[1];
	own.rseq_cs = (uintptr_t)&over;
	raise(SIGALRM);
	HOLDS(own.rseq_cs == 0);
}

/* What a section must not be: the process ends by a signal. */
static void bad(const char *what, const struct rseq_cs *cs, unsigned flags)
{
	pid_t p = MUST(fork());
	if (p == 0) {
		signal(SIGALRM, SIG_IGN);
		own.flags = flags;
		own.rseq_cs = (uintptr_t)cs;
		struct sigaction act = { .sa_handler = (void (*)(int))handler };
		sigaction(SIGUSR1, &act, 0);
		raise(SIGUSR1);
		_exit(7);
	}
	int status;
	MUST(waitpid(p, &status, 0));
	say_status(what, status);
}

static void bad_sections(void)
{
	static unsigned marks[] = { SIG, 0, SIG + 1, 0 };
	unsigned long good = (uintptr_t)&marks[1], here = (uintptr_t)bad;
#define CS(...) &(struct rseq_cs){ .start_ip = here, .post_commit_offset = 1, .abort_ip = good, __VA_ARGS__ }
	bad("good", CS(), 0);
	bad("version", CS(.version = 1), 0);
	bad("mark", CS(.abort_ip = (uintptr_t)&marks[3]), 0);
	bad("abort in the section", CS(.post_commit_offset = 100, .abort_ip = here + 50), 0);
	bad("abort nowhere", CS(.abort_ip = 8), 0);
	bad("abort in the kernel", CS(.abort_ip = -8), 0);
	bad("start in the kernel", CS(.start_ip = -4096), 0);
	bad("too long", CS(.post_commit_offset = -1), 0);
	bad("flags, outside", CS(.flags = 1), 1);
	pid_t p = MUST(fork());
	if (p == 0) {
		own.rseq_cs = 8;
		sched_yield();
		raise(SIGALRM);
		_exit(7);
	}
	int status;
	MUST(waitpid(p, &status, 0));
	say_status("nowhere", status);
}

/* Counters of each CPU, added to without a lock: none may be lost. */
static struct { long count; char pad[56]; } counters[64] __attribute__((aligned(64)));

static void add(struct rseq *r)
{
	asm volatile(".pushsection __rseq_cs, \"aw\"\n .balign 32\n 9: .long 0, 0\n .quad 1f, 2f - 1f, 4f\n .popsection\n"
		     "jmp 7f\n .long %c[sig]\n 4: \n 7:"
		     "lea 9b(%%rip), %%rax\n mov %%rax, 8(%[r])\n"
		     "1: mov 4(%[r]), %%eax\n shl $6, %%rax\n add %[counters], %%rax\n"
		     "mov (%%rax), %%rcx\n inc %%rcx\n mov %%rcx, (%%rax)\n 2:\n"
		     : : [r] "r"(r), [counters] "r"(counters), [sig] "i"(SIG) : "rax", "rcx", "memory", "cc");
}

static void *adder(void *arg)
{
	MUST(reg(&own, 32, 0, SIG));
	unsigned seed = (long)arg;
	int cpus = sysconf(_SC_NPROCESSORS_ONLN);
	long wrong = 0;
	for (int i = 0; i < TURNS; i++) {
		add(&own);
		if (i % 1000 == 0) {
			seed = seed * 1103515245 + 12345;
			pin((seed >> 16) % cpus);
			wrong += own.cpu_id != (seed >> 16) % cpus;
		}
	}
	MUST(reg(&own, 32, 1, SIG));
	return (void *)wrong;
}

static void counting(void)
{
	pthread_t t[THREADS];
	long sum = 0, wrong = 0;
	for (long i = 0; i < THREADS; i++)
		pthread_create(&t[i], 0, adder, (void *)(i + 1));
	for (int i = 0; i < THREADS; i++) {
		void *r;
		pthread_join(t[i], &r);
		wrong += (long)r;
	}
	for (int i = 0; i < 64; i++)
		sum += counters[i].count;
	say("counted %ld of %ld, a wrong CPU %ld times", sum, (long)THREADS * TURNS, wrong);
}

int main(int argc, char **argv)
{
	if (argc == 1) {
		/* Without the C library's own. */
		setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1);
		execl("/proc/self/exe", argv[0], "-", (char *)0);
		return 1;
	}
	if (argc == 2) {
		/* Another program has none. */
		MUST(reg(&own, 32, 0, SIG));
		execl("/proc/self/exe", argv[0], "-", "-", (char *)0);
	}
	errors();
	sections();
	bad_sections();
	counting();
	return 0;
}
