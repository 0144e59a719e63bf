/* What ptrace answers: stops for signals, calls, events and groups, registers, memory, steps, breakpoints. */
#include "say.h"
#include "blocked.h"
#include <elf.h>
#include <linux/ptrace.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/user.h>

extern long ptrace(int, ...);

#define SYSGOOD PTRACE_O_TRACESYSGOOD
#define KILLS PTRACE_O_EXITKILL

static long trace(long request, pid_t pid, unsigned long address, unsigned long data)
{
	return syscall(SYS_ptrace, request, pid, address, data);
}

/* Milliseconds in which a task that must stand would go on, if it did. */
#define A_WHILE 200

/* Numbers of tasks differ: each is called by its name. */
static struct { pid_t pid; const char *name; } names[32];
static int named;

static void call_it(pid_t pid, const char *name)
{
	names[named % 32].pid = pid;
	names[named++ % 32].name = name;
}

static const char *name_of(pid_t pid)
{
	if (pid <= 0)
		return pid ? "error" : "none";
	for (int n = 31; n >= 0; n--)
		if (names[n].pid == pid)
			return names[n].name;
	return "unknown";
}

static void say_stop(const char *who, int status)
{
	if (WIFSTOPPED(status) && status >> 16)
		say("%s stops: event %d, signal %d", who, status >> 16, WSTOPSIG(status));
	else if (WIFSTOPPED(status) && WSTOPSIG(status) & 0x80)
		say("%s stops at a call", who);
	else if (WIFSTOPPED(status))
		say("%s stops: signal %d", who, WSTOPSIG(status));
	else
		say_status(who, status);
}

/* Waits for one task and says what it did. */
static int next(pid_t pid)
{
	int status = 0;
	pid_t got;
	while ((got = waitpid(pid, &status, __WALL)) == -1 && errno == EINTR)
		;
	if (got == -1)
		say("wait for %s: %s", name_of(pid), strerrorname_np(errno));
	else
		say_stop(name_of(got), status);
	return status;
}

static void cont(pid_t pid, int signal) { MUST(trace(PTRACE_CONT, pid, 0, signal)); }

static struct user_regs_struct regs_of(pid_t pid)
{
	struct user_regs_struct regs;
	MUST(trace(PTRACE_GETREGS, pid, 0, (long)&regs));
	return regs;
}

/* Makes a child that is traced and stands by a SIGSTOP of its own; it goes on in `body`. */
#define TRACED(pid, name, options, ...) \
	pid_t pid = MUST(fork()); \
	if (pid == 0) { MUST(trace(PTRACE_TRACEME, 0, 0, 0)); raise(SIGSTOP); __VA_ARGS__; _exit(0); } \
	call_it(pid, name); \
	next(pid); \
	MUST(trace(PTRACE_SETOPTIONS, pid, 0, KILLS | (options)));

static void refusals(void)
{
	say("--- refusals");
	TRY(trace(PTRACE_PEEKDATA, 999999, 0, 0));
	TRY(trace(PTRACE_ATTACH, 999999, 0, 0));
	TRY(trace(PTRACE_ATTACH, 0, 0, 0));
	TRY(trace(PTRACE_ATTACH, -5, 0, 0));
	TRY(trace(PTRACE_ATTACH, getpid(), 0, 0));
	TRY(trace(PTRACE_SEIZE, getpid(), 0, 0));
	TRY(trace(PTRACE_SEIZE, getpid(), 1, 0));
	TRY(trace(PTRACE_SEIZE, 999999, 1, 0));
	TRY(trace(PTRACE_CONT, getpid(), 0, 0));
	TRY(trace(-1, getpid(), 0, 0));
	TRY(trace(12345, getpid(), 0, 0));
	TRY(trace(PTRACE_INTERRUPT, getpid(), 0, 0));
	TRY(trace(PTRACE_KILL, getpid(), 0, 0));
	pid_t idle = MUST(fork());
	if (idle == 0) {
		pause();
		_exit(0);
	}
	TRY(trace(PTRACE_SEIZE, idle, 1, 0));
	TRY(trace(PTRACE_SEIZE, idle, 0, 1 << 9));
	TRY(trace(PTRACE_SEIZE, idle, 0, 1ul << 40));
	TRY(trace(PTRACE_GETREGS, idle, 0, 0));
	TRY(trace(PTRACE_DETACH, idle, 0, 0));
	TRY(trace(PTRACE_INTERRUPT, idle, 0, 0));
	kill(idle, SIGKILL);
	siginfo_t info;
	waitid(P_PID, idle, &info, WEXITED | WNOWAIT);
	TRY(trace(PTRACE_ATTACH, idle, 0, 0));
	TRY(trace(PTRACE_CONT, idle, 0, 0));
	waitpid(idle, 0, 0);
	TRACED(pid, "tracee", 0, ;);
	TRY(trace(PTRACE_ATTACH, pid, 0, 0));
	TRY(trace(PTRACE_INTERRUPT, pid, 0, 0));
	TRY(trace(PTRACE_LISTEN, pid, 0, 0));
	TRY(trace(PTRACE_SETOPTIONS, pid, 0, 1 << 8));
	TRY(trace(PTRACE_SETOPTIONS, pid, 0, 1ul << 33));
	TRY(trace(PTRACE_CONT, pid, 0, 65));
	TRY(trace(PTRACE_CONT, pid, 0, -1));
	TRY(trace(PTRACE_DETACH, pid, 0, 65));
	TRY(trace(12345, pid, 0, 0));
	TRY(trace(-1, pid, 0, 0));
	TRY(trace(PTRACE_GETEVENTMSG, pid, 0, 8));
	TRY(trace(PTRACE_GETSIGINFO, pid, 0, 8));
	TRY(trace(PTRACE_SETSIGINFO, pid, 0, 8));
	TRY(trace(PTRACE_GETREGS, pid, 0, 8));
	TRY(trace(PTRACE_SETREGS, pid, 0, 8));
	TRY(trace(PTRACE_GETFPREGS, pid, 0, 8));
	TRY(trace(PTRACE_SETFPREGS, pid, 0, 8));
	TRY(trace(PTRACE_PEEKDATA, pid, 8, (long)&info));
	TRY(trace(PTRACE_PEEKDATA, pid, (long)&info, 8));
	TRY(trace(PTRACE_POKEDATA, pid, 8, 0));
	TRY(trace(PTRACE_GETSIGMASK, pid, 4, (long)&info));
	TRY(trace(PTRACE_GETSIGMASK, pid, 8, 8));
	TRY(trace(PTRACE_SETSIGMASK, pid, 8, 8));
	TRY(trace(PTRACE_SECCOMP_GET_FILTER, pid, 0, 0));
	TRY(trace(PTRACE_SINGLESTEP, pid, 0, 77));
	TRY(trace(PTRACE_KILL, pid, 0, 0));
	next(pid);
	TRY(trace(PTRACE_CONT, pid, 0, 0));
	IN_CHILD("who is traced twice", {
		TRY(trace(PTRACE_TRACEME, 0, 0, 0));
		TRY(trace(PTRACE_TRACEME, 0, 0, 0));
	});
}

static int caught;
static void on_signal(int signal) { caught = signal; }

static void say_info(pid_t pid)
{
	siginfo_t info;
	memset(&info, 0, sizeof info);
	errno = 0;
	if (trace(PTRACE_GETSIGINFO, pid, 0, (long)&info) == -1)
		say("no info: %s", strerrorname_np(errno));
	else if (info.si_code == 0 || info.si_code == SI_TKILL || info.si_code > 0x80)
		say("info: signal %d, code %#x, of %s", info.si_signo, info.si_code, name_of(info.si_pid));
	else
		say("info: signal %d, code %#x", info.si_signo, info.si_code);
}

static void signals(void)
{
	say("--- signals");
	call_it(getpid(), "tracer");
	TRACED(pid, "tracee", 0, {
		signal(SIGUSR1, on_signal);
		raise(SIGUSR1);
		say("caught %d", caught);
		raise(SIGUSR1);
		say("caught %d", caught);
		caught = 0;
		signal(SIGUSR2, SIG_IGN);
		raise(SIGUSR2);
		raise(SIGCHLD);
		say("caught %d", caught);
		sigset_t mask;
		sigemptyset(&mask);
		sigaddset(&mask, SIGUSR1);
		sigprocmask(SIG_BLOCK, &mask, 0);
		raise(SIGUSR1);
		say("caught %d", caught);
		raise(SIGTERM);
		pause();
	});
	say_info(pid);
	cont(pid, 0);
	next(pid);
	say_info(pid);
	cont(pid, SIGUSR1);
	next(pid);
	/* Another signal than it was. */
	cont(pid, 0);
	next(pid);
	say_info(pid);
	cont(pid, SIGUSR2);
	next(pid);
	say_info(pid);
	cont(pid, SIGCHLD);
	next(pid);
	/* Blocked: it waits. */
	cont(pid, SIGUSR1);
	until_in_call(pid, pid, SYS_pause);
	uint64_t mask = 0;
	kill(pid, SIGURG);
	next(pid);
	TRY(trace(PTRACE_GETSIGMASK, pid, 8, (long)&mask));
	say("mask %#lx", mask);
	struct { uint64_t off; uint32_t flags; int32_t nr; } args = { 0, 0, 8 };
	siginfo_t infos[8];
	memset(infos, 0, sizeof infos);
	TRY(trace(PTRACE_PEEKSIGINFO, pid, (long)&args, (long)infos));
	say("waiting: %d", infos[0].si_signo);
	args.flags = 1;
	TRY(trace(PTRACE_PEEKSIGINFO, pid, (long)&args, (long)infos));
	args.flags = 2;
	TRY(trace(PTRACE_PEEKSIGINFO, pid, (long)&args, (long)infos));
	args.flags = 0, args.nr = -1;
	TRY(trace(PTRACE_PEEKSIGINFO, pid, (long)&args, (long)infos));
	args.off = 5, args.nr = 3;
	TRY(trace(PTRACE_PEEKSIGINFO, pid, (long)&args, (long)infos));
	mask = ~0ul;
	TRY(trace(PTRACE_SETSIGMASK, pid, 8, (long)&mask));
	TRY(trace(PTRACE_GETSIGMASK, pid, 8, (long)&mask));
	say("mask %#lx", mask);
	mask = 0;
	TRY(trace(PTRACE_SETSIGMASK, pid, 8, (long)&mask));
	cont(pid, 0);
	next(pid);
	siginfo_t info;
	MUST(trace(PTRACE_GETSIGINFO, pid, 0, (long)&info));
	info.si_value.sival_int = 42;
	info.si_code = -77;
	TRY(trace(PTRACE_SETSIGINFO, pid, 0, (long)&info));
	MUST(trace(PTRACE_GETSIGINFO, pid, 0, (long)&info));
	say("set: code %d, value %d", info.si_code, info.si_value.sival_int);
	cont(pid, SIGKILL);
	next(pid);
}

static void say_call(pid_t pid)
{
	struct ptrace_syscall_info info;
	memset(&info, 0, sizeof info);
	long size = trace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, (long)&info);
	unsigned long message = 0;
	MUST(trace(PTRACE_GETEVENTMSG, pid, 0, (long)&message));
	if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
		say("size %ld arch %#x message %lu: call %lld(%lld, ...)", size, info.arch, message, info.entry.nr, info.entry.args[0]);
	else if (info.op == PTRACE_SYSCALL_INFO_EXIT)
		say("size %ld message %lu: gives %lld%s", size, message, info.exit.rval, info.exit.is_error ? ", an error" : "");
	else
		say("size %ld message %lu: kind %d", size, message, info.op);
	struct user_regs_struct regs = regs_of(pid);
	struct ptrace_syscall_info short_one;
	memset(&short_one, 0x55, sizeof short_one);
	long again = trace(PTRACE_GET_SYSCALL_INFO, pid, 8, (long)&short_one);
	say("again %ld %#llx, %s", again, short_one.instruction_pointer,
	    info.instruction_pointer == regs.rip && info.stack_pointer == regs.rsp ? "places agree" : "places DIFFER");
}

static void calls(void)
{
	say("--- calls");
	TRACED(pid, "tracee", SYSGOOD, {
		long a = syscall(SYS_close, -1);
		say("close: %ld %d", a, errno);
		long b = syscall(SYS_getppid, 1, 2, 3);
		say("getppid: %ld", b);
		long c = syscall(SYS_getpid);
		say("getpid: %ld", c);
		long d = syscall(SYS_umask, 1);
		say("umask: %ld", d);
		errno = 0;
		long e = syscall(SYS_umask, 022);
		say("emulated: %ld %d", e, errno);
		say("umask: %o", umask(022));
	});
	say_call(pid);
	MUST(trace(PTRACE_SYSCALL, pid, 0, 0));
	/* The end of the call that the stop was in was not seen. */
	next(pid);
	say_call(pid);
	say_info(pid);
	struct user_regs_struct regs = regs_of(pid);
	say("rax %lld orig_rax %lld", regs.rax, regs.orig_rax);
	MUST(trace(PTRACE_SYSCALL, pid, 0, 0));
	next(pid);
	say_call(pid);
	regs = regs_of(pid);
	say("rax %lld orig_rax %lld", regs.rax, regs.orig_rax);
	/* write of say */
	for (int n = 0; n < 2; n++) {
		MUST(trace(PTRACE_SYSCALL, pid, 0, 0));
		next(pid);
	}
	MUST(trace(PTRACE_SYSCALL, pid, 0, 0));
	next(pid);
	say_call(pid);
	MUST(trace(PTRACE_SYSCALL, pid, 0, 0));
	next(pid);
	/* Another result. */
	TRY(trace(PTRACE_POKEUSR, pid, offsetof(struct user, regs.rax), 4711));
	for (int n = 0; n < 3; n++) {
		MUST(trace(PTRACE_SYSCALL, pid, 0, 0));
		next(pid);
	}
	/* Another call. */
	regs = regs_of(pid);
	say("call %lld", regs.orig_rax);
	regs.orig_rax = SYS_sched_get_priority_max;
	regs.rdi = SCHED_FIFO;
	TRY(trace(PTRACE_SETREGS, pid, 0, (long)&regs));
	MUST(trace(PTRACE_SYSCALL, pid, 0, 0));
	next(pid);
	say_call(pid);
	for (int n = 0; n < 3; n++) {
		MUST(trace(PTRACE_SYSCALL, pid, 0, 0));
		next(pid);
	}
	/* No call. */
	regs = regs_of(pid);
	say("call %lld", regs.orig_rax);
	regs.orig_rax = -1;
	regs.rax = 99;
	TRY(trace(PTRACE_SETREGS, pid, 0, (long)&regs));
	MUST(trace(PTRACE_SYSCALL, pid, 0, 0));
	next(pid);
	say_call(pid);
	for (int n = 0; n < 2; n++) {
		MUST(trace(PTRACE_SYSCALL, pid, 0, 0));
		next(pid);
	}
	MUST(trace(PTRACE_SYSEMU, pid, 0, 0));
	next(pid);
	say_call(pid);
	MUST(trace(PTRACE_CONT, pid, 0, 0));
	next(pid);
	/* Without the option, and with a signal at a call. */
	TRACED(other, "tracee", 0, {
		signal(SIGUSR1, on_signal);
		syscall(SYS_getppid);
		say("caught %d", caught);
	});
	MUST(trace(PTRACE_SYSCALL, other, 0, 0));
	next(other);
	say_call(other);
	say_info(other);
	MUST(trace(PTRACE_SYSCALL, other, 0, 0));
	next(other);
	MUST(trace(PTRACE_SYSCALL, other, 0, 0));
	next(other);
	MUST(trace(PTRACE_SYSCALL, other, 0, SIGUSR1));
	next(other);
	MUST(trace(PTRACE_CONT, other, 0, 0));
	next(other);
	say_info(other);
	MUST(trace(PTRACE_CONT, other, 0, SIGUSR1));
	next(other);
}

/* Sleeps and reads that a tracer breaks into go on. */
static void restarts(void)
{
	say("--- restarts");
	int ends[2];
	MUST(pipe(ends));
	TRACED(pid, "tracee", SYSGOOD, {
		char c = 0;
		long got = read(ends[0], &c, 1);
		say("read %ld %c", got, c);
		double start = now();
		/* Long enough for the tracer to break into it on a busy machine. */
		struct timespec t = { 4, 0 };
		int slept = nanosleep(&t, 0);
		double took = now() - start;
		say("slept: %d, %s", slept, took > 3.99 && took < 500 ? "long enough" : "NOT as long as it should");
	});
	cont(pid, 0);
	until_in_call(pid, pid, SYS_read);
	kill(pid, SIGURG);
	next(pid);
	struct user_regs_struct regs = regs_of(pid);
	say("rax %lld orig_rax %lld", regs.rax, regs.orig_rax);
	MUST(trace(PTRACE_SYSCALL, pid, 0, 0));
	next(pid);
	say_call(pid);
	cont(pid, 0);
	until_in_call(pid, pid, SYS_read);
	kill(pid, SIGUSR1);
	next(pid);
	cont(pid, 0);
	MUST(write(ends[1], "x", 1));
	until_in_call(pid, pid, SYS_clock_nanosleep);
	kill(pid, SIGURG);
	next(pid);
	regs = regs_of(pid);
	say("rax %lld orig_rax %lld", regs.rax, regs.orig_rax);
	MUST(trace(PTRACE_SYSCALL, pid, 0, 0));
	next(pid);
	regs = regs_of(pid);
	say("rax %lld orig_rax %lld", regs.rax, regs.orig_rax);
	cont(pid, 0);
	next(pid);
	close(ends[0]);
	close(ends[1]);
}

static double vector[2] __attribute__((aligned(16)));

static void registers(void)
{
	say("--- registers");
	TRACED(pid, "tracee", 0, {
		asm volatile("movupd %1, %%xmm7\n int3\n movupd %%xmm7, %0" : "=m"(vector) : "m"(vector) : "xmm7");
		say("vector %g %g", vector[0], vector[1]);
		unsigned long fs;
		asm volatile("mov %%fs:0, %0" : "=r"(fs));
		_exit(vector[0]);
	});
	cont(pid, 0);
	next(pid);
	say_info(pid);
	struct user_regs_struct regs = regs_of(pid), back;
	say("cs %#llx ss %#llx ds %#llx es %#llx fs %#llx gs %#llx orig_rax %lld", regs.cs, regs.ss, regs.ds, regs.es, regs.fs, regs.gs,
	    regs.orig_rax);
	say("flags %#llx", regs.eflags & ~0x8d5);
	HOLDS(regs.fs_base != 0);
	HOLDS(regs.gs_base == 0);
	for (unsigned n = 0; n < 27; n++) {
		unsigned long word = 0;
		MUST(trace(PTRACE_PEEKUSR, pid, 8 * n, (long)&word));
		if (word != ((unsigned long *)&regs)[n])
			say("word %u DIFFERS", n);
	}
	back = regs;
	back.r15 = 1, back.rbx = 2, back.rcx = 3, back.rdx = ~0ul;
	back.eflags |= 0x80000000;
	TRY(trace(PTRACE_SETREGS, pid, 0, (long)&back));
	back = regs_of(pid);
	say("r15 %lld rbx %lld rcx %lld rdx %lld eflags %#llx", back.r15, back.rbx, back.rcx, back.rdx, back.eflags & ~0x8d5);
	TRY(trace(PTRACE_SETREGS, pid, 0, (long)&regs));
	unsigned long word;
	TRY(trace(PTRACE_PEEKUSR, pid, 1, (long)&word));
	TRY(trace(PTRACE_PEEKUSR, pid, sizeof(struct user), (long)&word));
	TRY(trace(PTRACE_PEEKUSR, pid, -8, (long)&word));
	word = 7;
	TRY(trace(PTRACE_PEEKUSR, pid, offsetof(struct user, u_dsize), (long)&word));
	say("word %lu", word);
	TRY(trace(PTRACE_POKEUSR, pid, offsetof(struct user, u_dsize), 0));
	TRY(trace(PTRACE_POKEUSR, pid, sizeof(struct user), 0));
	TRY(trace(PTRACE_POKEUSR, pid, 3, 0));
	TRY(trace(PTRACE_POKEUSR, pid, offsetof(struct user, regs.fs_base), 1ul << 63));
	TRY(trace(PTRACE_POKEUSR, pid, offsetof(struct user, regs.cs), 0));
	TRY(trace(PTRACE_POKEUSR, pid, offsetof(struct user, regs.cs), 0x33));
	TRY(trace(PTRACE_POKEUSR, pid, offsetof(struct user, regs.cs), 0x10));
	TRY(trace(PTRACE_POKEUSR, pid, offsetof(struct user, regs.ds), 0));
	struct user_fpregs_struct fp, fp2;
	TRY(trace(PTRACE_GETFPREGS, pid, 0, (long)&fp));
	say("cwd %#x mxcsr %#x", fp.cwd, fp.mxcsr);
	double *xmm7 = (double *)&fp.xmm_space[7 * 4];
	say("xmm7 %g %g", xmm7[0], xmm7[1]);
	xmm7[0] = 3, xmm7[1] = 4;
	TRY(trace(PTRACE_SETFPREGS, pid, 0, (long)&fp));
	fp2 = fp;
	fp2.mxcsr |= 0x10000;
	TRY(trace(PTRACE_SETFPREGS, pid, 0, (long)&fp2));
	struct iovec v = { &back, sizeof back };
	TRY(trace(PTRACE_GETREGSET, pid, NT_PRSTATUS, (long)&v));
	say("length %zu, %s", v.iov_len, memcmp(&back, &regs, sizeof regs) ? "DIFFERS" : "the same");
	v.iov_len = 9999;
	TRY(trace(PTRACE_GETREGSET, pid, NT_PRSTATUS, (long)&v));
	say("length %zu", v.iov_len);
	v.iov_len = 16;
	TRY(trace(PTRACE_SETREGSET, pid, NT_PRSTATUS, (long)&v));
	say("length %zu", v.iov_len);
	v.iov_len = 12;
	TRY(trace(PTRACE_GETREGSET, pid, NT_PRSTATUS, (long)&v));
	v.iov_base = &fp2, v.iov_len = sizeof fp2;
	TRY(trace(PTRACE_GETREGSET, pid, NT_PRFPREG, (long)&v));
	xmm7 = (double *)&fp2.xmm_space[7 * 4];
	say("length %zu, xmm7 %g %g", v.iov_len, xmm7[0], xmm7[1]);
	v.iov_len = 8;
	TRY(trace(PTRACE_SETREGSET, pid, NT_PRFPREG, (long)&v));
	v.iov_len = 8;
	TRY(trace(PTRACE_GETREGSET, pid, 0x999, (long)&v));
	TRY(trace(PTRACE_GETREGSET, pid, NT_PRSTATUS, 8));
	static unsigned char state[16384];
	v.iov_base = state, v.iov_len = sizeof state;
	if (trace(PTRACE_GETREGSET, pid, NT_X86_XSTATE, (long)&v) == 0) {
		uint64_t xcr0;
		memcpy(&xcr0, state + 464, 8);
		xmm7 = (double *)(state + 160 + 7 * 16);
		say("xmm7 %g %g, %s", xmm7[0], xmm7[1], (xcr0 & 3) == 3 ? "x87 and SSE" : "NOT all");
		xmm7[0] = 5;
		size_t length = v.iov_len;
		TRY(trace(PTRACE_SETREGSET, pid, NT_X86_XSTATE, (long)&v));
		v.iov_len = length - 8;
		TRY(trace(PTRACE_SETREGSET, pid, NT_X86_XSTATE, (long)&v));
		state[512 + 16] = 1;
		v.iov_len = length;
		TRY(trace(PTRACE_SETREGSET, pid, NT_X86_XSTATE, (long)&v));
	}
	unsigned long base = 0;
	TRY(trace(PTRACE_ARCH_PRCTL, pid, (long)&base, 0x1003));
	HOLDS(base == regs.fs_base);
	TRY(trace(PTRACE_ARCH_PRCTL, pid, 1ul << 62, 0x1001));
	TRY(trace(PTRACE_ARCH_PRCTL, pid, 0x5000, 0x1001));
	TRY(trace(PTRACE_ARCH_PRCTL, pid, (long)&base, 0x1004));
	say("gs %#lx", base);
	TRY(trace(PTRACE_ARCH_PRCTL, pid, 0, 0x1001));
	struct ptrace_rseq_configuration rseq = { 1, 2, 3, 4, 5 };
	TRY(trace(PTRACE_GET_RSEQ_CONFIGURATION, pid, sizeof rseq, (long)&rseq));
	say("rseq: %d bytes, %#x, flags %u", rseq.rseq_abi_size, rseq.signature, rseq.flags);
	cont(pid, 0);
	next(pid);
	/* A place that is none. */
	TRACED(lost, "tracee", 0, ;);
	TRY(trace(PTRACE_POKEUSR, lost, offsetof(struct user, regs.rip), 0xdead000000000000));
	say("rip %#llx", regs_of(lost).rip);
	TRY(trace(PTRACE_POKEUSR, lost, offsetof(struct user, regs.orig_rax), -1));
	cont(lost, 0);
	next(lost);
	cont(lost, SIGSEGV);
	next(lost);
}

static const long constant = 1234567;
static volatile long variable = 1;

__attribute__((noinline, aligned(16))) static long answer(void) { asm volatile(""); return 41; }

static void memory(void)
{
	say("--- memory");
	long *none = mmap(0, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long *shared = mmap(0, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	TRACED(pid, "tracee", 0, {
		say("%ld %ld %ld", *(volatile const long *)&constant, variable, answer());
		raise(SIGUSR1);
		say("%ld", answer());
		mprotect(none, PAGE, PROT_READ);
		say("%ld", *none);
	});
	long word = 0;
	TRY(trace(PTRACE_PEEKTEXT, pid, (long)&constant, (long)&word));
	say("word %ld", word);
	TRY(trace(PTRACE_POKETEXT, pid, (long)&constant, 7654321));
	TRY(trace(PTRACE_POKEDATA, pid, (long)&variable, 2));
	TRY(trace(PTRACE_POKEDATA, pid, (long)none, 33));
	TRY(trace(PTRACE_PEEKDATA, pid, (long)none, (long)&word));
	say("word %ld", word);
	TRY(trace(PTRACE_POKEDATA, pid, (long)shared, 33));
	TRY(trace(PTRACE_PEEKDATA, pid, (long)shared, (long)&word));
	/* A breakpoint. */
	TRY(trace(PTRACE_PEEKTEXT, pid, (long)answer, (long)&word));
	TRY(trace(PTRACE_POKETEXT, pid, (long)answer, (word & ~0xff) | 0xcc));
	cont(pid, 0);
	next(pid);
	say_info(pid);
	struct user_regs_struct regs = regs_of(pid);
	say("%lld behind it", regs.rip - (long)answer);
	TRY(trace(PTRACE_POKETEXT, pid, (long)answer, word));
	TRY(trace(PTRACE_POKEUSR, pid, offsetof(struct user, regs.rip), (long)answer));
	cont(pid, 0);
	next(pid);
	say("here: %ld %ld", *(volatile const long *)&constant, variable);
	char path[64];
	sprintf(path, "/proc/%d/mem", pid);
	int fd = MUST(open(path, O_RDWR));
	TRY(pread(fd, &word, 8, (long)&variable));
	say("word %ld", word);
	TRY(pread(fd, &word, 8, 0));
	word = 5;
	TRY(pwrite(fd, &word, 8, (long)&constant));
	TRY(pwrite(fd, &word, 8, (long)shared));
	TRY(pwrite(fd, &word, 8, 16));
	TRY(pread(fd, &word, 8, (long)&constant));
	say("word %ld", word);
	char page[2 * PAGE];
	TRY(pread(fd, page, sizeof page, (long)shared));
	sprintf(path, "/proc/%d/status", pid);
	FILE *status = fopen(path, "r");
	while (status && fgets(path, sizeof path, status)) {
		if (!strncmp(path, "State", 5))
			say("%.*s", (int)strcspn(path, "\n"), path);
		if (!strncmp(path, "TracerPid", 9))
			say("traced by %s", name_of(atoi(path + 10)));
	}
	fclose(status);
	cont(pid, 0);
	next(pid);
	TRY(pread(fd, &word, 8, (long)&variable));
	close(fd);
	munmap(none, PAGE);
	munmap(shared, PAGE);
}

static unsigned long flags;
extern char step_start[], step_call[], step_end[], handler_start[];
asm(".text\n.globl step_start, step_call, step_end, handler_start\n"
    "step_start: nop\n pushf\n pop %rax\n mov $110, %eax\n"
    "step_call: syscall\n nop\n pushf\n andq $~0x100, (%rsp)\n popf\n nop\n"
    "step_end: ret\n"
    "handler_start: nop\n ret\n");

static void steps(void)
{
	say("--- steps");
	TRACED(pid, "tracee", SYSGOOD, {
		signal(SIGUSR1, (void *)handler_start);
		asm volatile("int3\n call step_start" ::: "rax", "rcx", "r11", "memory");
		raise(SIGUSR2);
	});
	cont(pid, 0);
	next(pid);
	TRY(trace(PTRACE_POKEUSR, pid, offsetof(struct user, regs.rip), (long)step_start));
	TRY(trace(PTRACE_POKEUSR, pid, offsetof(struct user, regs.rsp), regs_of(pid).rsp - 512 & ~15));
	for (int n = 0; n < 9; n++) {
		MUST(trace(PTRACE_SINGLESTEP, pid, 0, 0));
		int status = 0;
		waitpid(pid, &status, 0);
		struct user_regs_struct regs = regs_of(pid);
		siginfo_t info;
		MUST(trace(PTRACE_GETSIGINFO, pid, 0, (long)&info));
		say("status %#x at %lld, flags %#llx, code %#x", status, regs.rip - (long)step_start, regs.eflags & 0x100, info.si_code);
	}
	/* Into a handler, with a mask that is its own. */
	MUST(trace(PTRACE_SINGLESTEP, pid, 0, SIGUSR1));
	next(pid);
	struct user_regs_struct regs = regs_of(pid);
	say("handler: %s, flags %#llx", regs.rip == (long)handler_start ? "at its start" : "NOT there", regs.eflags & 0x100);
	unsigned long saved = 0;
	/* uc_mcontext.gregs[REG_EFL] of the frame */
	MUST(trace(PTRACE_PEEKDATA, pid, regs.rsp + 8 + 40 + 17 * 8, (long)&saved));
	say("saved flags %#lx", saved & 0x100);
	MUST(trace(PTRACE_SINGLESTEP, pid, 0, 0));
	next(pid);
	say("at %lld", regs_of(pid).rip - (long)handler_start);
	MUST(trace(PTRACE_KILL, pid, 0, 0));
	next(pid);
	/* Steps and calls at once. */
	TRACED(other, "tracee", SYSGOOD, {
		asm volatile("int3\n" ::: "memory");
	});
	cont(other, 0);
	next(other);
	TRY(trace(PTRACE_POKEUSR, other, offsetof(struct user, regs.rip), (long)step_call));
	TRY(trace(PTRACE_POKEUSR, other, offsetof(struct user, regs.rax), SYS_getppid));
	MUST(trace(PTRACE_SYSCALL, other, 0, 0));
	next(other);
	MUST(trace(PTRACE_SINGLESTEP, other, 0, 0));
	next(other);
	say_info(other);
	say("at %lld", regs_of(other).rip - (long)step_call);
	MUST(trace(PTRACE_KILL, other, 0, 0));
	next(other);
}

static volatile long watched[4];

static void breakpoints(void)
{
	say("--- breakpoints");
#define DR(n) offsetof(struct user, u_debugreg[n])
	TRACED(pid, "tracee", 0, {
		watched[0] = 1;
		watched[1] = 2;
		long read = watched[0];
		answer();
		struct timespec t;
		/* The kernel stores there, and tells no tracer. */
		syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &watched[0]);
		say("read %ld", read);
	});
	long word = 0;
	for (int n = 0; n < 8; n++) {
		MUST(trace(PTRACE_PEEKUSR, pid, DR(n), (long)&word));
		say("dr%d %#lx", n, word);
	}
	TRY(trace(PTRACE_POKEUSR, pid, DR(0), 1ul << 63));
	TRY(trace(PTRACE_POKEUSR, pid, DR(4), 0));
	TRY(trace(PTRACE_POKEUSR, pid, DR(0), (long)&watched[0]));
	TRY(trace(PTRACE_POKEUSR, pid, DR(1), (long)answer));
	TRY(trace(PTRACE_POKEUSR, pid, DR(7), 2 << 16 | 1));
	TRY(trace(PTRACE_POKEUSR, pid, DR(7), 9 << 16 | 1));
	TRY(trace(PTRACE_PEEKUSR, pid, DR(7), (long)&word));
	say("dr7 %#lx", word);
	for (int n = 0; n < 2; n++) {
		cont(pid, 0);
		next(pid);
		say_info(pid);
		TRY(trace(PTRACE_PEEKUSR, pid, DR(6), (long)&word));
		say("dr6 %#lx", word & 0xf);
		TRY(trace(PTRACE_PEEKDATA, pid, (long)&watched[0], (long)&word));
		say("watched %ld", word);
		/* Then an instruction instead. */
		TRY(trace(PTRACE_POKEUSR, pid, DR(6), 0));
		TRY(trace(PTRACE_POKEUSR, pid, DR(7), 4 | 9 << 16 | 1));
		if (n == 1)
			say("at %lld", regs_of(pid).rip - (long)answer);
	}
	TRY(trace(PTRACE_POKEUSR, pid, DR(7), 9 << 16 | 1));
	cont(pid, 0);
	next(pid);
}

static char stack[65536] __attribute__((aligned(16)));
static int quits(void *arg) { _exit((long)arg); }

static void say_message(pid_t pid)
{
	unsigned long message = 0;
	MUST(trace(PTRACE_GETEVENTMSG, pid, 0, (long)&message));
	call_it(message, "child");
}

static void events(void)
{
	say("--- events");
	TRACED(pid, "tracee", PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEVFORKDONE | PTRACE_O_TRACEEXIT
	       | PTRACE_O_TRACEEXEC, {
		pid_t child = fork();
		if (child == 0)
			_exit(3);
		waitpid(child, 0, 0);
		if (vfork() == 0)
			_exit(4);
		wait(0);
		child = clone(quits, stack + sizeof stack, 0, (void *)5);
		waitpid(child, 0, __WALL);
		syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0) == 0 ? _exit(6) : 0;
		wait(0);
		char *argv[] = { "x", "exit", 0 };
		execv("/proc/self/exe", argv);
		_exit(9);
	});
	cont(pid, 0);
	unsigned long message;
	for (int kind = 0; kind < 3; kind++) {
		next(pid);
		struct user_regs_struct regs = regs_of(pid);
		say("rax %lld orig_rax %lld", regs.rax, regs.orig_rax);
		MUST(trace(PTRACE_GETEVENTMSG, pid, 0, (long)&message));
		pid_t child = message;
		call_it(child, "child");
		next(child);
		say_info(child);
		say("rax %lld", regs_of(child).rax);
		cont(child, 0);
		next(child);
		MUST(trace(PTRACE_GETEVENTMSG, child, 0, (long)&message));
		say("message %#lx", message);
		cont(child, 0);
		next(child);
		cont(pid, 0);
		if (kind == 1) {
			next(pid);
			MUST(trace(PTRACE_GETEVENTMSG, pid, 0, (long)&message));
			say("of %s", name_of(message));
			cont(pid, 0);
		}
		int status = next(pid);
		cont(pid, WSTOPSIG(status) == SIGCHLD ? SIGCHLD : 0);
		if (kind == 2)
			break;
	}
	for (int n = 0; n < 8; n++) {
		int status = next(pid);
		if (!WIFSTOPPED(status))
			break;
		if (status >> 16) {
			struct user_regs_struct regs = regs_of(pid);
			MUST(trace(PTRACE_GETEVENTMSG, pid, 0, (long)&message));
			if (status >> 16 == PTRACE_EVENT_EXEC)
				say("was %s, rax %lld, orig_rax %lld", name_of(message), regs.rax, regs.orig_rax);
			else
				say("message %#lx", message);
		}
		cont(pid, 0);
	}
	/* Exec without the option, and its SIGTRAP. */
	TRACED(other, "tracee", 0, {
		char *argv[] = { "x", "exit", 0 };
		execv("/proc/self/exe", argv);
	});
	cont(other, 0);
	next(other);
	say_info(other);
	cont(other, 0);
	next(other);
}

static void say_waitid(pid_t pid, int options)
{
	siginfo_t info;
	memset(&info, 0, sizeof info);
	errno = 0;
	int got = waitid(P_PID, pid, &info, options | __WALL);
	if (got == -1)
		say("waitid: %s", strerrorname_np(errno));
	else
		say("waitid: %s code %d status %#x", name_of(info.si_pid), info.si_code, info.si_status);
}

static void seized(void)
{
	say("--- seized");
	int ends[2];
	MUST(pipe(ends));
	pid_t pid = MUST(fork());
	if (pid == 0) {
		char c;
		/* A group that is not orphaned. */
		setpgid(0, 0);
		while (read(ends[0], &c, 1) == 1)
			;
		_exit(7);
	}
	call_it(pid, "tracee");
	until_in_call(pid, pid, SYS_read);
	TRY(trace(PTRACE_SEIZE, pid, 0, SYSGOOD | KILLS));
	say_waitid(pid, WEXITED | WNOHANG);
	TRY(trace(PTRACE_SEIZE, pid, 0, 0));
	TRY(trace(PTRACE_CONT, pid, 0, 0));
	TRY(trace(PTRACE_INTERRUPT, pid, 0, 0));
	say_waitid(pid, WEXITED | WNOWAIT);
	next(pid);
	say_info(pid);
	say("rax %lld orig_rax %lld", regs_of(pid).rax, regs_of(pid).orig_rax);
	cont(pid, 0);
	/* The group stops. */
	kill(pid, SIGSTOP);
	next(pid);
	say_info(pid);
	cont(pid, SIGSTOP);
	next(pid);
	say_info(pid);
	TRY(trace(PTRACE_LISTEN, pid, 0, 0));
	TRY(trace(PTRACE_GETREGS, pid, 0, (long)stack));
	say_waitid(pid, WEXITED | WNOHANG);
	TRY(trace(PTRACE_INTERRUPT, pid, 0, 0));
	next(pid);
	TRY(trace(PTRACE_LISTEN, pid, 0, 0));
	kill(pid, SIGCONT);
	next(pid);
	say_info(pid);
	cont(pid, 0);
	next(pid);
	say_info(pid);
	cont(pid, SIGCONT);
	say_waitid(pid, WCONTINUED);
	/* Let go while stopped. */
	kill(pid, SIGTSTP);
	next(pid);
	cont(pid, SIGTSTP);
	next(pid);
	TRY(trace(PTRACE_DETACH, pid, 0, 0));
	until_state(pid, pid, 'T');
	say_waitid(pid, WSTOPPED);
	/* Begun while stopped. */
	TRY(trace(PTRACE_SEIZE, pid, 0, KILLS));
	next(pid);
	TRY(trace(PTRACE_DETACH, pid, 0, SIGCONT));
	kill(pid, SIGCONT);
	say_waitid(pid, WCONTINUED);
	close(ends[1]);
	close(ends[0]);
	kill(pid, SIGTERM);
	next(pid);
}

static void attached(void)
{
	say("--- attached");
	pid_t pid = MUST(fork());
	if (pid == 0) {
		signal(SIGUSR1, on_signal);
		while (!caught)
			pause();
		_exit(caught);
	}
	call_it(pid, "tracee");
	until_in_call(pid, pid, SYS_pause);
	TRY(trace(PTRACE_ATTACH, pid, 0, 0));
	next(pid);
	say_info(pid);
	TRY(trace(PTRACE_DETACH, pid, 0, 0));
	TRY(trace(PTRACE_DETACH, pid, 0, 0));
	/* It has to begin its call again, or a signal comes between its look and the call. */
	until_in_call(pid, pid, SYS_pause);
	kill(pid, SIGSTOP);
	int status;
	waitpid(pid, &status, WUNTRACED);
	say_stop("tracee", status);
	TRY(trace(PTRACE_ATTACH, pid, 0, 0));
	next(pid);
	say_info(pid);
	cont(pid, 0);
	next(pid);
	say_info(pid);
	TRY(trace(PTRACE_DETACH, pid, 0, SIGUSR1));
	kill(pid, SIGCONT);
	next(pid);
	/* One that is stopped already can be used without a wait. */
	pid = MUST(fork());
	if (pid == 0) {
		raise(SIGSTOP);
		_exit(7);
	}
	long word = 0;
	call_it(pid, "stopped");
	MUST(waitpid(pid, &status, WUNTRACED));
	TRY(trace(PTRACE_ATTACH, pid, 0, 0));
	TRY(trace(PTRACE_POKEUSR, pid, DR(0), 1));
	TRY(trace(PTRACE_POKEUSR, pid, DR(7), 1));
	TRY(trace(PTRACE_POKEUSR, pid, DR(0), 0xffff800000000000));
	TRY(trace(PTRACE_POKEUSR, pid, DR(0), -1ul));
	TRY(trace(PTRACE_POKEUSR, pid, DR(0), 2));
	TRY(trace(PTRACE_PEEKUSR, pid, DR(0), (long)&word));
	say("dr0 %#lx", word);
	TRY(trace(PTRACE_DETACH, pid, 0, 0));
	kill(pid, SIGCONT);
	MUST(waitpid(pid, &status, 0));
	say_status("stopped", status);
}

/* Whose tracer is not its parent. */
static void of_others(void)
{
	say("--- of others");
	int ends[2], looked[2];
	MUST(pipe(ends));
	MUST(pipe(looked));
	pid_t pid = MUST(fork());
	if (pid == 0) {
		char c;
		read(ends[0], &c, 1);
		_exit(5);
	}
	call_it(pid, "tracee");
	pid_t tracer = MUST(fork());
	if (tracer == 0) {
		TRY(trace(PTRACE_SEIZE, pid, 0, 0));
		MUST(write(ends[1], "x", 1));
		siginfo_t info;
		waitid(P_PID, pid, &info, WEXITED | WNOWAIT);
		MUST(read(looked[0], &info, 1));
		next(pid);
		next(pid);
		sleep_ms(100);
		_exit(0);
	}
	call_it(tracer, "tracer");
	until_in_call(tracer, tracer, SYS_read);
	say_waitid(pid, WEXITED | WNOHANG);
	MUST(write(looked[1], "x", 1));
	int status = 0;
	waitpid(pid, &status, 0);
	next(tracer);
	say_stop("tracee", status);
	/* A tracer that ends: one goes on, one is killed. */
	pid_t first = MUST(fork());
	if (first == 0) {
		MUST(read(ends[0], stack, 1));
		_exit(1);
	}
	pid_t second = MUST(fork());
	if (second == 0) {
		pause();
		_exit(2);
	}
	call_it(first, "first");
	call_it(second, "second");
	tracer = MUST(fork());
	if (tracer == 0) {
		TRY(trace(PTRACE_ATTACH, first, 0, 0));
		next(first);
		TRY(trace(PTRACE_SEIZE, second, 0, KILLS));
		_exit(0);
	}
	call_it(tracer, "tracer");
	next(tracer);
	next(second);
	MUST(write(ends[1], "x", 1));
	next(first);
	close(ends[0]);
	close(ends[1]);
	IN_CHILD("whose tracer ends while it stands", {
		pid_t me = getpid();
		if (fork() == 0) {
			until_in_call(me, me, SYS_wait4);
			trace(PTRACE_ATTACH, me, 0, 0);
			waitpid(me, 0, 0);
			_exit(0);
		}
		wait(0);
	});
}

/* A stopped process stays so when no process traces it any more. */
static void left_stopped(void)
{
	say("--- left stopped");
	volatile int *count = MUST(mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	for (int attaches = 0; attaches < 2; attaches++) {
		*count = 0;
		pid_t pid = MUST(fork());
		if (pid == 0) {
			setpgid(0, 0);
			raise(SIGSTOP);
			for (;;)
				++*count;
		}
		call_it(pid, "tracee");
		int status;
		waitpid(pid, &status, WUNTRACED);
		say_stop("tracee", status);
		pid_t tracer = MUST(fork());
		if (tracer == 0) {
			trace(attaches ? PTRACE_ATTACH : PTRACE_SEIZE, pid, 0, 0);
			_exit(0);
		}
		call_it(tracer, "tracer");
		next(tracer);
		sleep_ms(A_WHILE);
		if (!attaches)
			say("it has gone on: %d", *count != 0);
		kill(pid, SIGKILL);
		next(pid);
	}
	/* One that is to go on and to stop again while it stands. */
	*count = 0;
	pid_t pid = MUST(fork());
	if (pid == 0) {
		setpgid(0, 0);
		for (;;)
			++*count;
	}
	call_it(pid, "tracee");
	while (!*count)
		sleep_ms(1);
	TRY(trace(PTRACE_SEIZE, pid, 0, KILLS));
	kill(pid, SIGSTOP);
	next(pid);
	cont(pid, SIGSTOP);
	next(pid);
	kill(pid, SIGCONT);
	kill(pid, SIGSTOP);
	sleep_ms(A_WHILE);
	TRY(trace(PTRACE_DETACH, pid, 0, 0));
	say_waitid(pid, WSTOPPED);
	/* One that is stopped already: whether its parent is told of that. */
	TRY(trace(PTRACE_SEIZE, pid, 0, 0));
	next(pid);
	caught = 0;
	signal(SIGCHLD, on_signal);
	TRY(trace(PTRACE_DETACH, pid, 0, 0));
	/* It is told once the other has run, whenever that is. */
	for (int i = 0; i < 1000 && !caught; i++)
		sleep_ms(10);
	say("SIGCHLD: %d", caught != 0);
	signal(SIGCHLD, SIG_DFL);
	say_waitid(pid, WSTOPPED | WNOHANG);
	sleep_ms(A_WHILE);
	int before = *count;
	sleep_ms(A_WHILE);
	say("it has gone on: %d", *count != before);
	kill(pid, SIGKILL);
	next(pid);
	munmap((void *)count, PAGE);
}

static pthread_barrier_t barrier;
static void *short_thread(void *arg)
{
	if (arg) {
		pthread_barrier_wait(&barrier);
		sleep_ms(50);
	}
	syscall(SYS_exit, 3);
	return 0;
}

static void *exec_thread(void *arg)
{
	char *argv[] = { "x", "exit", 0 };
	execv("/proc/self/exe", argv);
	return 0;
}

static void threads(void)
{
	say("--- threads");
	TRACED(pid, "tracee", PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC, {
		pthread_t thread;
		pthread_create(&thread, 0, short_thread, 0);
		pthread_join(thread, 0);
		pthread_create(&thread, 0, exec_thread, 0);
		for (;;)
			pause();
	});
	cont(pid, 0);
	next(pid);
	unsigned long message;
	MUST(trace(PTRACE_GETEVENTMSG, pid, 0, (long)&message));
	pid_t thread = message;
	call_it(thread, "thread");
	next(thread);
	TRY(trace(PTRACE_CONT, thread, 0, 0));
	say_waitid(thread, WEXITED | WNOWAIT);
	TRY(trace(PTRACE_CONT, thread, 0, 0));
	TRY(trace(PTRACE_ATTACH, thread, 0, 0));
	next(thread);
	next(thread);
	cont(pid, 0);
	next(pid);
	MUST(trace(PTRACE_GETEVENTMSG, pid, 0, (long)&message));
	thread = message;
	call_it(thread, "thread");
	next(thread);
	cont(pid, 0);
	cont(thread, 0);
	/* The thread becomes the main one. */
	next(pid);
	MUST(trace(PTRACE_GETEVENTMSG, pid, 0, (long)&message));
	say("was %s", name_of(message));
	TRY(trace(PTRACE_CONT, thread, 0, 0));
	cont(pid, 0);
	next(pid);
	/* A main thread that ends first is told of with its process. */
	pthread_barrier_init(&barrier, 0, 2);
	TRACED(first, "tracee", PTRACE_O_TRACECLONE, {
		pthread_t other;
		pthread_create(&other, 0, short_thread, (void *)1);
		pthread_barrier_wait(&barrier);
		syscall(SYS_exit, 6);
	});
	cont(first, 0);
	next(first);
	MUST(trace(PTRACE_GETEVENTMSG, first, 0, (long)&message));
	thread = message;
	call_it(thread, "thread");
	next(thread);
	cont(first, 0);
	cont(thread, 0);
	next(thread);
	next(first);
}

static volatile int *shared;
static void *idle_thread(void *arg)
{
	shared[0] = syscall(SYS_gettid);
	for (;;)
		pause();
	return arg;
}

/* A process stops while one of its threads stands for a tracer that is not its parent. */
static void stop_of_one_traced(void)
{
	say("--- stop of one traced");
	shared = MUST(mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	pid_t pid = MUST(fork());
	if (pid == 0) {
		pthread_t thread;
		setpgid(0, 0);
		pthread_create(&thread, 0, idle_thread, 0);
		for (;;)
			pause();
	}
	call_it(pid, "process");
	while (!shared[0])
		sleep_ms(5);
	pid_t thread = shared[0];
	call_it(thread, "thread");
	pid_t tracer = MUST(fork());
	if (tracer == 0) {
		MUST(trace(PTRACE_SEIZE, thread, 0, 0));
		MUST(trace(PTRACE_INTERRUPT, thread, 0, 0));
		next(thread);
		shared[1] = 1;
		while (shared[1] == 1)
			sleep_ms(5);
		cont(thread, 0);
		next(thread);
		shared[1] = 3;
		while (shared[1] == 3)
			sleep_ms(5);
		_exit(0);
	}
	call_it(tracer, "tracer");
	while (shared[1] != 1)
		sleep_ms(5);
	kill(pid, SIGSTOP);
	/* Its first thread has stopped: the other one is not to take the signal. */
	until_state(pid, pid, 'T');
	say_waitid(pid, WSTOPPED | WNOHANG);
	shared[1] = 2;
	while (shared[1] != 3)
		sleep_ms(5);
	say_waitid(pid, WSTOPPED);
	shared[1] = 4;
	next(tracer);
	kill(pid, SIGKILL);
	next(pid);
}

static void *waits_elsewhere(void *arg)
{
	pid_t pid = *(pid_t *)arg;
	TRY(trace(PTRACE_CONT, pid, 0, 0));
	errno = 0;
	int got = waitpid(pid, 0, __WALL | __WNOTHREAD | WNOHANG);
	say("wait of another thread: %d %s", got, got < 0 ? strerrorname_np(errno) : "");
	return 0;
}

static void waits(void)
{
	say("--- waits");
	TRACED(pid, "tracee", 0, ;);
	pthread_t thread;
	pthread_create(&thread, 0, waits_elsewhere, &pid);
	pthread_join(thread, 0);
	cont(pid, 0);
	say_waitid(pid, WEXITED | __WNOTHREAD);
	TRY(prctl(PR_SET_PTRACER, 0, 0, 0, 0));
	TRY(prctl(PR_SET_PTRACER, -1, 0, 0, 0));
	TRY(prctl(PR_SET_PTRACER, 999999, 0, 0, 0));
	TRY(prctl(PR_SET_PTRACER, getpid(), 0, 0, 0));
	/* A tracee that is killed wherever it stands. */
	TRACED(second, "tracee", SYSGOOD, getppid());
	MUST(trace(PTRACE_SYSCALL, second, 0, 0));
	next(second);
	kill(second, SIGKILL);
	next(second);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return 8;
	vector[0] = 1, vector[1] = 2;
	alarm(600);
	refusals();
	signals();
	calls();
	restarts();
	registers();
	memory();
	steps();
	breakpoints();
	events();
	seized();
	attached();
	of_others();
	left_stopped();
	threads();
	stop_of_one_traced();
	waits();
	say("done");
	return 0;
}
