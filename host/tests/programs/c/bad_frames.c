/* Signals whose frame cannot be written or read: a SIGSEGV that the program may take itself. */
#include "say.h"
#include "blocked.h"
#include <setjmp.h>
#include <sys/ucontext.h>

static char *bad;
static volatile int hits, segvs, code, address, blocked_in_segv;
static sigjmp_buf away;

static void on(int number, void *handler, int flags, int blocks)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO };
	if (blocks)
		sigaddset(&action.sa_mask, blocks);
	MUST(sigaction(number, &action, NULL));
}

static void hit(int number, siginfo_t *info, void *context)
{
	hits++;
}

static void segv(int number, siginfo_t *info, void *context)
{
	sigset_t now;
	segvs++;
	code = info->si_code;
	address = info->si_addr != NULL;
	sigprocmask(SIG_BLOCK, NULL, &now);
	blocked_in_segv = sigismember(&now, SIGUSR1);
}

static void segv_away(int number, siginfo_t *info, void *context)
{
	segv(number, info, context);
	siglongjmp(away, 1);
}

static void report(const char *what)
{
	sigset_t now;
	sigprocmask(SIG_BLOCK, NULL, &now);
	say("%s: %d hits, %d SIGSEGV, code %d, address %d, SIGUSR1 blocked then %d, now %d", what, hits, segvs, code, address,
	    blocked_in_segv, sigismember(&now, SIGUSR1));
	hits = segvs = code = address = blocked_in_segv = 0;
}

static void alt_stack(void *base, size_t size)
{
	MUST(sigaltstack(&(stack_t){ .ss_sp = base, .ss_size = size }, NULL));
}

static void taken(const char *what)
{
	on(SIGUSR1, hit, SA_ONSTACK, 0);
	on(SIGSEGV, segv, 0, 0);
	raise(SIGUSR1);
	report(what);
	/* It is gone, not kept: the next one comes anew. */
	raise(SIGUSR1);
	report(what);
	on(SIGUSR1, hit, SA_ONSTACK | SA_RESETHAND, 0);
	raise(SIGUSR1);
	struct sigaction now;
	sigaction(SIGUSR1, NULL, &now);
	say("reset: %s", now.sa_handler == SIG_DFL ? "default" : "handler");
	report(what);
	on(SIGUSR1, hit, SA_ONSTACK, 0);
	on(SIGSEGV, segv_away, SA_RESETHAND, 0);
	if (sigsetjmp(away, 1) == 0)
		raise(SIGUSR1);
	report("jumped away");
}

static void read_only_alt(void)
{
	MUST(mprotect(bad, 16 * PAGE, PROT_READ));
	alt_stack(bad, 16 * PAGE);
	taken("read-only");
	MUST(munmap(bad, 16 * PAGE));
	taken("unmapped");
}

static void deadly(int with)
{
	MUST(mprotect(bad, 16 * PAGE, PROT_READ));
	alt_stack(bad, 16 * PAGE);
	on(SIGUSR1, hit, SA_ONSTACK, 0);
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGSEGV);
	switch (with) {
	case 0: /* The default. */
		break;
	case 1: /* A handler on the same stack. */
		on(SIGSEGV, segv, SA_ONSTACK, 0);
		break;
	case 2:
		signal(SIGSEGV, SIG_IGN);
		break;
	case 3: /* Blocked. */
		on(SIGSEGV, segv, 0, 0);
		sigprocmask(SIG_BLOCK, &set, NULL);
		break;
	case 4: /* The fault itself has no stack. */
		on(SIGSEGV, segv, SA_ONSTACK, 0);
		*(volatile int *)0 = 1;
		break;
	}
	raise(SIGUSR1);
	say("still there");
}

/* The program's own stack is bad. */
static void no_stack(int with_alt)
{
	static char alt[65536];
	if (with_alt)
		alt_stack(alt, sizeof alt);
	on(SIGUSR1, hit, 0, 0);
	on(SIGSEGV, segv_away, SA_ONSTACK, 0);
	if (sigsetjmp(away, 1) == 0) {
		/* kill(pid, SIGUSR1) with no stack. */
		long call = SYS_kill, pid = getpid();
		asm volatile("mov %%rsp, %%rbx\n\tmov %2, %%rsp\n\tsyscall\n\tmov %%rbx, %%rsp" : "+a"(call) : "D"(pid), "r"(64L),
			     "S"((long)SIGUSR1) : "rbx", "rcx", "r11", "memory");
		say("no signal");
	}
	report("without a stack");
}

/* An alternate stack that is too small for a frame. */
static void small(void)
{
	on(SIGUSR1, hit, SA_ONSTACK, 0);
	on(SIGSEGV, segv, 0, 0);
	char *page = MUST((char *)mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	mprotect(page, PAGE, PROT_NONE);
	/* All of its lower part is missing. */
	alt_stack(page, PAGE + 256);
	raise(SIGUSR1);
	report("half a stack");
}

static void spoil(int number, siginfo_t *info, void *context)
{
	/* What sigreturn reads the registers' rest from. */
	ucontext_t *user = context;
	user->uc_mcontext.fpregs = (void *)64;
	hits++;
}

/* A frame that cannot be read again. */
static void returns(int with)
{
	static char alt[65536];
	alt_stack(alt, sizeof alt);
	on(SIGUSR1, spoil, 0, 0);
	if (with)
		on(SIGSEGV, segv_away, SA_ONSTACK, 0);
	if (sigsetjmp(away, 1) == 0)
		raise(SIGUSR1);
	report("a bad frame");
	if (!with)
		return;
	long call = SYS_rt_sigreturn;
	if (sigsetjmp(away, 1) == 0)
		asm volatile("mov %%rsp, %%rbx\n\tmov %1, %%rsp\n\tsyscall\n\tmov %%rbx, %%rsp" : "+a"(call) : "r"(72L)
			     : "rbx", "rcx", "r11", "memory");
	report("no frame");
}

/* In sigsuspend: the mask from before comes back, whatever becomes of the handler. */
static void suspended(void)
{
	MUST(mprotect(bad, 16 * PAGE, PROT_READ));
	alt_stack(bad, 16 * PAGE);
	on(SIGUSR1, hit, SA_ONSTACK, 0);
	on(SIGSEGV, segv, 0, 0);
	sigset_t set, none;
	sigemptyset(&set), sigemptyset(&none);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	raise(SIGUSR1);
	TRY(sigsuspend(&none));
	report("in sigsuspend");
	int p[2];
	pipe(p);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	pid_t parent = getpid(), pid = MUST(fork());
	if (pid == 0) {
		until_blocked(parent);
		kill(parent, SIGUSR1);
		_exit(0);
	}
	char c;
	TRY(read(p[0], &c, 1));
	report("in a call");
	MUST(waitpid(pid, NULL, 0));
}

int main(void)
{
	bad = MUST((char *)mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	IN_CHILD("read-only and unmapped", read_only_alt());
	for (int with = 0; with < 5; with++)
		IN_CHILD("deadly", deadly(with));
	IN_CHILD("no stack", no_stack(1));
	IN_CHILD("no stack at all", no_stack(0));
	IN_CHILD("small", small());
	IN_CHILD("bad return", returns(0));
	IN_CHILD("bad return, taken", returns(1));
	IN_CHILD("suspended", suspended());
	return 0;
}
