/* Signals: handlers and what they are told, masks, queues, stacks, restarts, defaults. */
#include "say.h"
#include "blocked.h"
#include <setjmp.h>
#include <sys/ucontext.h>

static sigjmp_buf back;
static volatile siginfo_t seen;
/* What the handler's frame says of the last exception. */
static volatile long long trap, error;
static volatile int count, order[100], nested;

static void remember(int sig, siginfo_t *info, void *context)
{
	ucontext_t *all = context;
	trap = all->uc_mcontext.gregs[REG_TRAPNO];
	error = all->uc_mcontext.gregs[REG_ERR];
	memcpy((void *)&seen, info, sizeof *info);
	if (count < 100)
		order[count] = sig;
	count++;
}

static void jump(int sig, siginfo_t *info, void *context)
{
	remember(sig, info, context);
	siglongjmp(back, 1);
}

static void on(int sig, void (*f)(int, siginfo_t *, void *), int flags)
{
	struct sigaction a = { .sa_sigaction = f, .sa_flags = SA_SIGINFO | flags };
	sigemptyset(&a.sa_mask);
	MUST(sigaction(sig, &a, NULL));
}

static sigset_t set_of(int sig, int sig2)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, sig);
	if (sig2)
		sigaddset(&set, sig2);
	return set;
}

#define FAULT(what) do { if (sigsetjmp(back, 1) == 0) { what; say(#what ": nothing"); } \
	else say(#what ": signal %d code %d address %#lx trap %lld error %llx", seen.si_signo, seen.si_code, (long)seen.si_addr, trap, error); } while (0)

/* The x87's control and status, and MXCSR. */
static void float_state(unsigned *control, unsigned *status, unsigned *mxcsr)
{
	struct { uint16_t control, a, status, b, tag, c, rest[8]; } all;
	__asm__ volatile("fnstenv %0\n\tfldenv %0\n\tstmxcsr %1" : "+m"(all), "=m"(*mxcsr));
	*control = all.control, *status = all.status;
}

static volatile unsigned in_handler[3];

static void look_at_float(int sig, siginfo_t *info, void *context)
{
	unsigned now[3];
	float_state(&now[0], &now[1], &now[2]);
	for (int i = 0; i < 3; i++)
		in_handler[i] = now[i];
	if (sig == SIGFPE)
		jump(sig, info, context);
}

/* Exceptions of the x87, and what a handler's floating point begins with. */
static void floats(void)
{
	unsigned after[3], mxcsr = 0x7f80;
	uint16_t control = 0xc7f;
	on(SIGUSR1, look_at_float, 0);
	on(SIGFPE, look_at_float, SA_NODEFER);
	__asm__ volatile("ldmxcsr %0\n\tfldcw %1\n\tfld1" : : "m"(mxcsr), "m"(control));
	kill(getpid(), SIGUSR1);
	float_state(&after[0], &after[1], &after[2]);
	__asm__ volatile("fninit");
	say("in the handler %x %x %x, then %x %x %x", in_handler[0], in_handler[1], in_handler[2], after[0], after[1], after[2]);
	static const struct { const char *name; uint16_t control; double a, b; } each[] = {
		{ "1 / 0", 0x37b, 0, 1 }, { "0 / 0", 0x37e, 0, 0 }, { "all of 1 / 0", 0x340, 0, 1 }, { "not exact", 0x35f, 3, 1 },
	};
	for (int i = 0; i < 4; i++) {
		if (sigsetjmp(back, 1) == 0) {
			__asm__ volatile("fldcw %0\n\tfldl %1\n\tfldl %2\n\tfdivp\n\tfwait" : : "m"(each[i].control), "m"(each[i].a), "m"(each[i].b));
			say("%s: nothing", each[i].name);
		} else {
			float_state(&after[0], &after[1], &after[2]);
			say("%s: signal %d code %d trap %lld, in the handler %x %x, then %x %x", each[i].name, seen.si_signo, seen.si_code, trap,
			    in_handler[0], in_handler[1], after[0], after[1]);
		}
		__asm__ volatile("fninit");
	}
	mxcsr = 0x1f80;
	__asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
	signal(SIGFPE, SIG_DFL);
	signal(SIGUSR1, SIG_DFL);
}

static void faults(void)
{
	int sigs[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP };
	for (int i = 0; i < 5; i++)
		on(sigs[i], jump, 0);
	FAULT(*(volatile int *)0x1234 = 1);
	FAULT((void)*(volatile int *)0x123456789a);
	FAULT((void)*(volatile int *)0xffff888000000000);
	FAULT((void)*(volatile int *)0xffffffff81000000);
	FAULT(*(volatile int *)0x1000000000000000 = 1);
	char *p = mmap((void *)0x500000000, 3 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	FAULT((void)*(volatile char *)p);
	FAULT(*(volatile char *)(p + 5) = 1);
	mprotect(p + PAGE, PAGE, PROT_NONE);
	FAULT((void)*(volatile char *)(p + PAGE + 7));
	munmap(p + PAGE, PAGE);
	FAULT((void)*(volatile char *)(p + PAGE + 8));
	FAULT(((void (*)(void))p)());
	FAULT(((void (*)(void))0x4242)());
	volatile int zero = 0;
	if (sigsetjmp(back, 1) == 0)
		say("%d", 1 / zero);
	else
		say("division: signal %d code %d", seen.si_signo, seen.si_code);
	if (sigsetjmp(back, 1) == 0)
		__asm__ volatile("ud2");
	else
		say("ud2: signal %d code %d", seen.si_signo, seen.si_code);
	if (sigsetjmp(back, 1) == 0)
		__asm__ volatile("int3");
	else
		say("int3: signal %d code %d", seen.si_signo, seen.si_code);
	if (sigsetjmp(back, 1) == 0)
		__asm__ volatile("hlt");
	else
		say("hlt: signal %d code %d", seen.si_signo, seen.si_code);
	if (sigsetjmp(back, 1) == 0)
		__asm__ volatile("cli");
	else
		say("cli: signal %d code %d", seen.si_signo, seen.si_code);
	if (sigsetjmp(back, 1) == 0)
		__asm__ volatile("int $0x21");
	else
		say("int 0x21: signal %d code %d", seen.si_signo, seen.si_code);
	FAULT((void)*(volatile int *)8);
	FAULT(*(volatile int *)8 = 1);
	FAULT(((void (*)(void))8)());
	FAULT(__asm__ volatile("hlt"));
	/* Its error is another one where QEMU translates. */
	if (sigsetjmp(back, 1) == 0)
		__asm__ volatile("int $0x81");
	else
		say("int 0x81: signal %d code %d trap %lld", seen.si_signo, seen.si_code, trap);
	FAULT(__asm__ volatile("ud2"));
	FAULT(__asm__ volatile("int3"));
	floats();
	int fd = MUST(open("short", O_RDWR | O_CREAT | O_TRUNC, 0600));
	ftruncate(fd, 100);
	char *q = mmap((void *)0x600000000, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	FAULT((void)*(volatile char *)(q + 4000));
	FAULT((void)*(volatile char *)(q + PAGE + 3));
	FAULT(*(volatile char *)(q + PAGE + 4) = 1);
	unlink("short");
	for (int i = 0; i < 5; i++)
		signal(sigs[i], SIG_DFL);
	IN_CHILD("null", *(volatile int *)0 = 1);
	IN_CHILD("abort", abort());
	IN_CHILD("divide", zero = 1 / zero);
	IN_CHILD("trap", __asm__ volatile("int3"));
	IN_CHILD("ignored fault", signal(SIGSEGV, SIG_IGN); *(volatile int *)0 = 1);
	IN_CHILD("blocked fault", { sigset_t s = set_of(SIGSEGV, 0); sigprocmask(SIG_BLOCK, &s, NULL); *(volatile int *)0 = 1; });
}

/* A handler may repair what made it run, and change registers. */
static char *guarded;
static void repair(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	mprotect((void *)((long)info->si_addr & ~(PAGE - 1l)), PAGE, PROT_READ | PROT_WRITE);
	count++;
}
static void skip(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	ucontext_t *u = context;
	u->uc_mcontext.gregs[REG_RIP] += 2;
	u->uc_mcontext.gregs[REG_RAX] = 77;
}

static void contexts(void)
{
	guarded = mmap(NULL, 8 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	on(SIGSEGV, repair, 0);
	count = 0;
	for (int i = 0; i < 8; i++)
		guarded[i * PAGE] = i;
	say("%d repairs, last %d", count, guarded[7 * PAGE]);
	signal(SIGSEGV, SIG_DFL);
	on(SIGILL, skip, 0);
	long rax = 1;
	__asm__ volatile("ud2" : "+a"(rax));
	say("rax is %ld", rax);
	signal(SIGILL, SIG_DFL);
	/* vector registers survive a handler that uses them */
	on(SIGUSR1, ({ void f(int s, siginfo_t *i, void *c) { (void)i; (void)c; volatile double x = s; for (int k = 0; k < 50; k++) x = x * 1.5 + k; __asm__ volatile("pxor %%xmm7,%%xmm7; pxor %%xmm15,%%xmm15" ::: "xmm7", "xmm15"); } f; }), 0);
	uint64_t in = 0x1122334455667788, out7, out15;
	__asm__ volatile("movq %2,%%xmm7; movq %2,%%xmm15; mov $39,%%eax; syscall; mov %%eax,%%edi; mov $10,%%esi; mov $62,%%eax; syscall; movq %%xmm7,%0; movq %%xmm15,%1"
		: "=r"(out7), "=r"(out15) : "r"(in) : "rax", "rdi", "rsi", "rcx", "r11", "xmm7", "xmm15", "memory");
	say("xmm7 %lx xmm15 %lx", out7, out15);
}

static void masks(void)
{
	on(SIGUSR1, remember, 0);
	on(SIGUSR2, remember, 0);
	sigset_t both = set_of(SIGUSR1, SIGUSR2), old, pending;
	TRY(sigprocmask(SIG_BLOCK, &both, NULL));
	count = 0;
	raise(SIGUSR2);
	raise(SIGUSR1);
	raise(SIGUSR1);
	TRY(sigpending(&pending));
	say("pending %d %d %d", sigismember(&pending, SIGUSR1), sigismember(&pending, SIGUSR2), sigismember(&pending, SIGHUP));
	say("count %d", count);
	TRY(sigprocmask(SIG_UNBLOCK, &both, &old));
	say("count %d order %d %d, was blocked %d", count, order[0], order[1], sigismember(&old, SIGUSR1));
	sigset_t kills = set_of(SIGKILL, SIGSTOP);
	TRY(sigprocmask(SIG_SETMASK, &kills, NULL));
	sigprocmask(SIG_BLOCK, NULL, &old);
	say("kill can be blocked: %d", sigismember(&old, SIGKILL));
	TRY(sigprocmask(77, &both, NULL));
	TRY(sigaction(SIGKILL, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL));
	TRY(sigaction(99, NULL, NULL));
	TRY(kill(getpid(), 0));
	TRY(kill(getpid(), 65));
	TRY(kill(999999, 0));
	TRY(raise(0));

	sigprocmask(SIG_BLOCK, &both, NULL);
	count = 0;
	pid_t parent = getpid();
	pid_t child = MUST(fork());
	if (child == 0) {
		sleep_ms(30);
		kill(parent, SIGUSR1);
		_exit(0);
	}
	sigset_t none;
	sigemptyset(&none);
	TRY(sigsuspend(&none));
	say("count %d, from user %d, from child %d", count, seen.si_code == SI_USER, seen.si_pid == child);
	waitpid(child, NULL, 0);

	siginfo_t info;
	struct timespec soon = { 0, 20000000 };
	TRY(sigtimedwait(&both, &info, &soon));
	raise(SIGUSR2);
	TRY(sigwaitinfo(&both, &info));
	HOLDS(info.si_pid == getpid());
	/* queued with values, real-time ones in order and each of them */
	union sigval v;
	sigset_t rt = set_of(SIGRTMIN + 1, SIGRTMIN + 3);
	sigprocmask(SIG_BLOCK, &rt, NULL);
	for (int i = 0; i < 3; i++) {
		v.sival_int = 100 + i;
		TRY(sigqueue(getpid(), SIGRTMIN + 3, v));
		v.sival_int = 200 + i;
		TRY(sigqueue(getpid(), SIGRTMIN + 1, v));
	}
	for (int i = 0; i < 6; i++) {
		int sig = sigwaitinfo(&rt, &info);
		say("real-time %d value %d code %d", sig - SIGRTMIN, info.si_value.sival_int, info.si_code);
	}
	TRY(sigtimedwait(&rt, &info, &(struct timespec){ 0, 0 }));
	sigprocmask(SIG_UNBLOCK, &both, NULL);
}

static void flags(void)
{
	/* restart, and not */
	int p[2];
	MUST(pipe(p));
	struct itimerval timer = { { 0, 0 }, { 0, 20000 } };
	char c;
	on(SIGALRM, remember, 0);
	count = 0;
	alarm_once_asleep(20);
	TRY(read(p[0], &c, 1));
	say("count %d", count);
	on(SIGALRM, remember, SA_RESTART);
	pid_t child = MUST(fork());
	if (child == 0) {
		sleep_ms(100);
		MUST(write(p[1], "r", 1));
		_exit(0);
	}
	setitimer(ITIMER_REAL, &timer, NULL);
	TRY(read(p[0], &c, 1));
	while (count < 2)
		sleep_ms(1);
	say("count %d", count);
	waitpid(child, NULL, 0);
	child = MUST(fork());
	if (child == 0) {
		sleep_ms(100);
		_exit(8);
	}
	setitimer(ITIMER_REAL, &timer, NULL);
	int status;
	HOLDS(waitpid(child, &status, 0) == child);
	say_status("child", status);
	/* a sleep is never restarted and says what is left */
	struct timespec left = { 0, 0 }, long_time = { 1000, 0 };
	while (count < 3)
		sleep_ms(1);
	alarm_once_asleep(20);
	TRY(nanosleep(&long_time, &left));
	HOLDS(left.tv_sec > 500 && left.tv_sec < 1000);
	TRY(alarm(1000));
	HOLDS(alarm(0) > 500);
	on(SIGALRM, remember, 0);
	count = 0;
	alarm_once_asleep(1000);
	TRY(pause());
	say("count %d code %d", count, seen.si_code);

	/* once only; nested or not */
	on(SIGUSR1, remember, SA_RESETHAND);
	raise(SIGUSR1);
	struct sigaction a;
	sigaction(SIGUSR1, NULL, &a);
	HOLDS(a.sa_handler == SIG_DFL);
	on(SIGUSR1, ({ void f(int s, siginfo_t *i, void *x) { (void)i; (void)x; if (++nested < 4) raise(s); order[nested] = nested; nested += 10; } f; }), SA_NODEFER);
	raise(SIGUSR1);
	say("nested %d", nested);
	nested = 0;
	on(SIGUSR1, ({ void f(int s, siginfo_t *i, void *x) { (void)i; (void)x; if (++nested < 4) raise(s); nested += 10; } f; }), 0);
	raise(SIGUSR1);
	say("not nested %d", nested);
	struct sigaction masked = { .sa_sigaction = ({ void f(int s, siginfo_t *i, void *x) { (void)i; (void)x; (void)s; raise(SIGUSR2); say("after raise, count %d", count); } f; }), .sa_flags = SA_SIGINFO };
	masked.sa_mask = set_of(SIGUSR2, 0);
	sigaction(SIGUSR1, &masked, NULL);
	count = 0;
	raise(SIGUSR1);
	say("count %d", count);
}

static char *alt;
static volatile int on_alt;
static void overflow(int sig, siginfo_t *info, void *context)
{
	(void)info;
	(void)context;
	char here;
	on_alt = &here > alt && &here < alt + 65536;
	stack_t now;
	sigaltstack(NULL, &now);
	say("signal %d, on the alternate stack %d, flags %d", sig, on_alt, now.ss_flags);
	TRY(sigaltstack(&(stack_t){ .ss_sp = alt, .ss_size = 65536 }, NULL));
	siglongjmp(back, 1);
}
static int recurse(volatile char *p)
{
	volatile char big[10000];
	big[0] = *p;
	return recurse(big) + big[5];
}

static void stacks(void)
{
	alt = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t s = { .ss_sp = alt, .ss_size = 65536 }, old;
	TRY(sigaltstack(&s, &old));
	say("before: flags %d", old.ss_flags);
	TRY(sigaltstack(&(stack_t){ .ss_sp = alt, .ss_size = 100 }, NULL));
	TRY(sigaltstack(&(stack_t){ .ss_flags = 55 }, NULL));
	on(SIGSEGV, overflow, SA_ONSTACK);
	for (int i = 0; i < 3; i++)
		if (sigsetjmp(back, 1) == 0)
			recurse("x");
	s.ss_flags = SS_DISABLE;
	TRY(sigaltstack(&s, NULL));
	on(SIGSEGV, overflow, 0);
	IN_CHILD("no stack left", recurse("x"));
	signal(SIGSEGV, SIG_DFL);
}

static void children(void)
{
	on(SIGCHLD, remember, 0);
	sigset_t chld = set_of(SIGCHLD, 0);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	count = 0;
	siginfo_t info;
	pid_t child = MUST(fork());
	if (child == 0)
		_exit(33);
	TRY(sigwaitinfo(&chld, &info));
	HOLDS(info.si_pid == child);
	say("code %d status %d", info.si_code, info.si_status);
	waitpid(child, NULL, 0);
	child = MUST(fork());
	if (child == 0)
		pause();
	TRY(kill(child, SIGSTOP));
	TRY(sigwaitinfo(&chld, &info));
	say("code %d status %d", info.si_code, info.si_status);
	int status;
	HOLDS(waitpid(child, &status, WUNTRACED) == child);
	say_status("child", status);
	TRY(waitpid(child, &status, WUNTRACED | WNOHANG));
	TRY(kill(child, SIGCONT));
	HOLDS(waitpid(child, &status, WCONTINUED) == child);
	say_status("child", status);
	TRY(kill(child, SIGTERM));
	HOLDS(waitpid(child, &status, 0) == child);
	say_status("child", status);
	while (sigtimedwait(&chld, &info, &(struct timespec){ 0, 0 }) > 0)
		;
	/* ignored: children leave nothing to wait for */
	signal(SIGCHLD, SIG_IGN);
	child = MUST(fork());
	if (child == 0)
		_exit(1);
	TRY(waitpid(child, &status, 0));
	signal(SIGCHLD, SIG_DFL);
	sigprocmask(SIG_UNBLOCK, &chld, NULL);
	for (int sig = 16; sig <= 31; sig++)
		if (sig != SIGSTOP && sig != SIGTSTP && sig != SIGTTIN && sig != SIGTTOU)
			IN_CHILD("by default", raise(sig); _exit(sig));
	IN_CHILD("real-time", raise(SIGRTMIN + 5));
	IN_CHILD("killed", kill(getpid(), SIGKILL); pause());
	IN_CHILD("busy", { signal(SIGALRM, SIG_DFL); alarm(1); for (volatile long i = 0;; i++) ; });
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	faults();
	contexts();
	masks();
	flags();
	stacks();
	children();
	signal(SIGTERM, SIG_DFL);
	return 15;
}
