/* What filters of calls do: which programs are filters, what each action does, which one counts, who has them. */
#include "say.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/ptrace.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/user.h>
#include <ucontext.h>

extern long ptrace(int, ...);

#define ALLOW SECCOMP_RET_ALLOW
#define ERRNO(n) (SECCOMP_RET_ERRNO | (n))
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* A call's result as the kernel gives it: some errors have no name. */
static long raw(long nr, long a, long b)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(nr), "D"(a), "S"(b), "d"(0) : "rcx", "r11", "memory");
	return result;
}

static long seccomp(unsigned operation, unsigned flags, const void *args)
{
	return syscall(SYS_seccomp, operation, flags, args);
}

static long install(unsigned flags, const struct sock_filter *filter, unsigned short length)
{
	struct sock_fprog program = { length, (struct sock_filter *)filter };
	return seccomp(SECCOMP_SET_MODE_FILTER, flags, &program);
}

#define STMT(code, k) BPF_STMT(code, k)
#define LOAD(at) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at)
#define RET(word) BPF_STMT(BPF_RET | BPF_K, word)
#define RET_A BPF_STMT(BPF_RET | BPF_A, 0)
#define UNLESS(k) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, k, 0, 1)
#define FILTER(flags, ...) ({ struct sock_filter f_[] = { __VA_ARGS__ }; install(flags, f_, COUNT(f_)); })

/* A filter that says this of one call, and nothing of the others. */
static long on(long nr, unsigned word)
{
	return FILTER(0, LOAD(0), UNLESS((unsigned)nr), RET(word), RET(ALLOW));
}

static void lines_of(const char *path)
{
	char text[8192], *at, *next;
	int fd = MUST(open(path, O_RDONLY));
	ssize_t length = MUST(read(fd, text, sizeof text - 1));
	close(fd);
	text[length] = 0;
	for (at = text; at && *at; at = next) {
		next = strchr(at, '\n');
		if (next)
			*next++ = 0;
		if (!strncmp(at, "Seccomp", 7) || !strncmp(at, "NoNewPrivs", 10))
			say("%s", at);
	}
}

static void refusals(void)
{
	say("--- refusals");
	TRY(prctl(PR_GET_SECCOMP));
	TRY(prctl(PR_SET_SECCOMP, 0));
	TRY(prctl(PR_SET_SECCOMP, 3, 0));
	TRY(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 0));
	TRY(seccomp(4, 0, 0));
	TRY(seccomp(-1, 0, 0));
	TRY(seccomp(SECCOMP_SET_MODE_STRICT, 1, 0));
	TRY(seccomp(SECCOMP_SET_MODE_STRICT, 0, "x"));
	TRY(seccomp(SECCOMP_SET_MODE_FILTER, 0, 0));
	TRY(seccomp(SECCOMP_SET_MODE_FILTER, 0, HOLE));
	TRY(seccomp(SECCOMP_SET_MODE_FILTER, 1 << 6, 0));
	TRY(seccomp(SECCOMP_SET_MODE_FILTER, 1u << 31, 0));
	TRY(seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_NEW_LISTENER, 0));
	TRY(seccomp(SECCOMP_SET_MODE_FILTER, 1 << 5, 0));
	for (unsigned flags = 0; flags < 32; flags++)
		if (!(flags & SECCOMP_FILTER_FLAG_NEW_LISTENER)) {
			say("flags %u", flags);
			TRY(seccomp(SECCOMP_SET_MODE_FILTER, flags, HOLE));
		}
	struct sock_filter allow[] = { RET(ALLOW) };
	TRY(install(0, allow, 0));
	TRY(install(0, allow, 4097));
	TRY(install(0, allow, 65535));
	TRY(install(0, 0, 1));
	TRY(install(0, (void *)HOLE, 1));
	TRY(install(0, (void *)HOLE, 0));
	TRY(prctl(PR_GET_SECCOMP));
	IN_CHILD("who has no privileges", {
		MUST(setresgid(1000, 1000, 1000));
		MUST(setresuid(1000, 1000, 1000));
		TRY(seccomp(SECCOMP_SET_MODE_FILTER, 0, HOLE));
		TRY(install(0, allow, 0));
		TRY(install(0, 0, 1));
		TRY(install(0, (void *)HOLE, 1));
		TRY(install(0, allow, 1));
		TRY(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
		TRY(install(0, 0, 1));
		TRY(install(0, allow, 1));
		TRY(prctl(PR_GET_SECCOMP));
	});
	IN_CHILD("who has filters", {
		TRY(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &(struct sock_fprog){ 1, allow }));
		TRY(prctl(PR_GET_SECCOMP));
		TRY(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
		TRY(seccomp(SECCOMP_SET_MODE_STRICT, 0, 0));
		TRY(install(SECCOMP_FILTER_FLAG_LOG | SECCOMP_FILTER_FLAG_SPEC_ALLOW | SECCOMP_FILTER_FLAG_TSYNC_ESRCH, allow, 1));
		lines_of("/proc/self/status");
	});
}

static void what_there_is(void)
{
	say("--- what there is");
	unsigned actions[] = {
		SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_TRAP, SECCOMP_RET_ERRNO, SECCOMP_RET_USER_NOTIF,
		SECCOMP_RET_TRACE, SECCOMP_RET_LOG, SECCOMP_RET_ALLOW, 1, 0x10000, SECCOMP_RET_ERRNO | 1, 0xffffffff,
	};
	for (unsigned n = 0; n < COUNT(actions); n++) {
		say("action %#x", actions[n]);
		TRY(seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &actions[n]));
	}
	TRY(seccomp(SECCOMP_GET_ACTION_AVAIL, 1, &actions));
	TRY(seccomp(SECCOMP_GET_ACTION_AVAIL, 0, HOLE));
	struct seccomp_notif_sizes sizes;
	TRY(seccomp(SECCOMP_GET_NOTIF_SIZES, 0, &sizes));
	say("sizes %d %d %d", sizes.seccomp_notif, sizes.seccomp_notif_resp, sizes.seccomp_data);
	TRY(seccomp(SECCOMP_GET_NOTIF_SIZES, 1, &sizes));
	TRY(seccomp(SECCOMP_GET_NOTIF_SIZES, 0, HOLE));
}

static void show_file(const char *path)
{
	char text[256];
	int fd = MUST(open(path, O_RDONLY));
	ssize_t length = MUST(read(fd, text, sizeof text - 1));
	close(fd);
	text[length] = 0;
	text[strcspn(text, "\n")] = 0;
	say("%s: %s", path, text);
}

static void store(const char *value)
{
	int fd = MUST(open("/proc/sys/kernel/seccomp/actions_logged", O_WRONLY));
	errno = 0;
	long result = write(fd, value, strlen(value));
	say_result(value, result, errno);
	close(fd);
	show_file("/proc/sys/kernel/seccomp/actions_logged");
}

static void knobs(void)
{
	say("--- knobs");
	show_file("/proc/sys/kernel/seccomp/actions_avail");
	show_file("/proc/sys/kernel/seccomp/actions_logged");
	store("log trap");
	store("allow");
	store("trap allow");
	store("Trap");
	store("trap\n");
	store("kill_process kill_thread trap errno user_notif trace log\n");
}

static void check(const char *what, const struct sock_filter *filter, unsigned short length)
{
	errno = 0;
	pid_t pid = MUST(fork());
	if (pid == 0) {
		errno = 0;
		_exit(install(0, filter, length) ? errno : 0);
	}
	int status;
	MUST(waitpid(pid, &status, 0));
	say("%s: %s", what, WEXITSTATUS(status) ? strerrorname_np(WEXITSTATUS(status)) : "taken");
}

#define CHECK(what, ...) do { struct sock_filter f_[] = { __VA_ARGS__ }; check(what, f_, COUNT(f_)); } while (0)

static void programs(void)
{
	say("--- programs");
	char name[64];
	/* All codes, with a number that suits most of them. */
	for (unsigned code = 0; code < 0x108; code++) {
		struct sock_filter f[] = { STMT(BPF_ST, 4), STMT(code, 4), RET(ALLOW), RET(ALLOW), RET(ALLOW), RET(ALLOW), RET(ALLOW) };
		snprintf(name, sizeof name, "code %#x", code);
		check(name, f, COUNT(f));
	}
	for (unsigned at = 0; at < 72; at++) {
		snprintf(name, sizeof name, "load at %u", at);
		CHECK(name, LOAD(at), RET(ALLOW));
	}
	CHECK("load at -4", LOAD(-4), RET(ALLOW));
	CHECK("load at SKF_AD_OFF", LOAD(SKF_AD_OFF), RET(ALLOW));
	CHECK("no return", STMT(BPF_LD | BPF_IMM, 0));
	CHECK("code after the return", RET(ALLOW), LOAD(0));
	CHECK("returns A", RET_A);
	CHECK("jump to the end", STMT(BPF_JMP | BPF_JA, 0), RET(ALLOW));
	CHECK("jump behind the end", STMT(BPF_JMP | BPF_JA, 1), RET(ALLOW));
	CHECK("jump back", STMT(BPF_JMP | BPF_JA, -1), RET(ALLOW));
	CHECK("branches to the end", BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 1), RET(ALLOW), RET(ALLOW));
	CHECK("true behind the end", BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 2, 0), RET(ALLOW), RET(ALLOW));
	CHECK("false behind the end", BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2), RET(ALLOW), RET(ALLOW));
	CHECK("division by 0", STMT(BPF_ALU | BPF_DIV | BPF_K, 0), RET(ALLOW));
	CHECK("division by X, 0", STMT(BPF_ALU | BPF_DIV | BPF_X, 0), RET(ALLOW));
	CHECK("shift by 31", STMT(BPF_ALU | BPF_LSH | BPF_K, 31), RET(ALLOW));
	CHECK("shift by 32", STMT(BPF_ALU | BPF_LSH | BPF_K, 32), RET(ALLOW));
	CHECK("shift right by 32", STMT(BPF_ALU | BPF_RSH | BPF_K, 32), RET(ALLOW));
	CHECK("shift by X, 32", STMT(BPF_ALU | BPF_RSH | BPF_X, 32), RET(ALLOW));
	CHECK("memory 15", STMT(BPF_ST, 15), RET(ALLOW));
	CHECK("memory 16", STMT(BPF_ST, 16), RET(ALLOW));
	CHECK("memory of X 16", STMT(BPF_STX, 16), RET(ALLOW));
	CHECK("recalled before", STMT(BPF_LD | BPF_MEM, 0), RET(ALLOW));
	CHECK("another recalled", STMT(BPF_ST, 1), STMT(BPF_LDX | BPF_MEM, 0), RET(ALLOW));
	CHECK("kept on one way", BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1), STMT(BPF_ST, 0), STMT(BPF_LD | BPF_MEM, 0), RET(ALLOW));
	CHECK("kept on both ways", BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2), STMT(BPF_ST, 0), STMT(BPF_JMP | BPF_JA, 1),
		STMT(BPF_STX, 0), STMT(BPF_LD | BPF_MEM, 0), RET(ALLOW));
	CHECK("recalled on no way", STMT(BPF_JMP | BPF_JA, 1), STMT(BPF_LD | BPF_MEM, 0), RET(ALLOW));
	CHECK("recalled after a return", RET(ALLOW), STMT(BPF_LD | BPF_MEM, 0), RET(ALLOW));
}

/* How many of this filter there may be. */
static void fill(const char *what, const struct sock_filter *filter, unsigned short length)
{
	IN_CHILD(what, {
		int count = 0;
		while (count < 10000 && install(0, filter, length) == 0)
			count++;
		int error = errno;
		say("%s: %d, then %s", what, count, strerrorname_np(error));
		lines_of("/proc/self/status");
	});
}

static void limits(void)
{
	say("--- limits");
	static struct sock_filter f[4096];
	for (int n = 0; n < 4096; n++)
		f[n] = (struct sock_filter)RET(ALLOW);
	fill("of 4096 returns", f, 4096);
	fill("of 100 returns", f, 100);
	for (int n = 0; n < 1000; n++)
		f[n] = (struct sock_filter)STMT(BPF_MISC | BPF_TAX, 0);
	f[1000] = (struct sock_filter)RET(ALLOW);
	fill("of 1000 moves", f, 1001);
	/* No call gets to the divisions, which would be by zero. */
	for (int n = 1; n < 1000; n++)
		f[n] = (struct sock_filter)STMT(BPF_ALU | BPF_DIV | BPF_X, 0);
	f[0] = (struct sock_filter)STMT(BPF_JMP | BPF_JA, 999);
	fill("of 999 divisions", f, 1001);
	for (int n = 0; n < 1000; n++)
		f[n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 5, 0, 0);
	fill("of 1000 branches to one place", f, 1001);
	f[1001] = (struct sock_filter)RET(ALLOW);
	for (int n = 0; n < 1000; n++)
		f[n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 5, 0, 1);
	fill("of 1000 branches with one jump", f, 1002);
	for (int n = 0; n < 1000; n++)
		f[n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 5, 0, 1);
	fill("of 1000 branches by bits", f, 1002);
	f[1002] = (struct sock_filter)RET(ALLOW);
	for (int n = 0; n < 1000; n++)
		f[n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 0x80000000, 1, 2);
	fill("of 1000 branches by large numbers", f, 1003);
}

/* What a program says that ends with A, of a call with these arguments. */
static void says(const char *what, const struct sock_filter *filter, unsigned short length)
{
	int words[2];
	MUST(pipe(words));
	pid_t pid = MUST(fork());
	if (pid == 0) {
		if (install(0, filter, length))
			_exit(1);
		long result = raw(SYS_getpgid, 0x1122334455667788, 0x99aabbccddeeff00);
		write(words[1], &result, sizeof result);
		_exit(0);
	}
	int status;
	long result = 1;
	MUST(waitpid(pid, &status, 0));
	close(words[1]);
	read(words[0], &result, sizeof result);
	close(words[0]);
	say("%s: %ld", what, result);
}

/* The lowest 12 bits of A are the error. Other calls than the one are let through. */
#define SAYS(what, ...) do { struct sock_filter f_[] = { LOAD(0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgid, 1, 0), RET(ALLOW), \
	__VA_ARGS__, STMT(BPF_ALU | BPF_AND | BPF_K, 0xfff), STMT(BPF_ALU | BPF_OR | BPF_K, SECCOMP_RET_ERRNO), RET_A }; \
	says(what, f_, COUNT(f_)); } while (0)
#define A(k) STMT(BPF_LD | BPF_IMM, k)
#define X(k) STMT(BPF_LDX | BPF_IMM, k)
#define OP(op, k) STMT(BPF_ALU | (op), k)

static void arithmetic(void)
{
	say("--- arithmetic");
	SAYS("the call", LOAD(0));
	SAYS("the architecture", LOAD(4));
	SAYS("the architecture's upper half", LOAD(4), OP(BPF_RSH, 16));
	for (int word = 4; word < 8; word++)
		for (int shift = 0; shift < 32; shift += 8)
			SAYS("a byte of an argument", LOAD(4 * word), OP(BPF_RSH, shift), OP(BPF_AND, 0xff));
	SAYS("the length", STMT(BPF_LD | BPF_W | BPF_LEN, 0));
	SAYS("the length in X", STMT(BPF_LDX | BPF_W | BPF_LEN, 0), STMT(BPF_MISC | BPF_TXA, 0));
	SAYS("sum", A(5), OP(BPF_ADD, -3));
	SAYS("sum with X", A(5), X(-3), OP(BPF_ADD | BPF_X, 0));
	SAYS("difference", A(5), OP(BPF_SUB, 7), OP(BPF_RSH, 24));
	SAYS("product", A(0x10001), OP(BPF_MUL, 0x10001), OP(BPF_RSH, 8));
	SAYS("quotient", A(-1), OP(BPF_DIV, 3), OP(BPF_RSH, 20));
	SAYS("quotient by X", A(-1), X(0x80000000), OP(BPF_DIV | BPF_X, 0));
	SAYS("exclusive", A(0xff), X(0xf0f), OP(BPF_XOR | BPF_X, 0));
	SAYS("exclusive with a constant", A(0xff), OP(BPF_XOR, 0xf0f));
	SAYS("shift by 33 in X", A(3), X(33), OP(BPF_LSH | BPF_X, 0));
	SAYS("shift right by 33 in X", A(12), X(33), OP(BPF_RSH | BPF_X, 0));
	SAYS("negation", A(1), OP(BPF_NEG, 0), OP(BPF_RSH, 21));
	SAYS("memory", A(77), STMT(BPF_ST, 3), A(1), STMT(BPF_LD | BPF_MEM, 3));
	SAYS("memory of X", X(78), STMT(BPF_STX, 15), X(1), STMT(BPF_LDX | BPF_MEM, 15), STMT(BPF_MISC | BPF_TXA, 0));
	SAYS("to X", A(79), STMT(BPF_MISC | BPF_TAX, 0), A(1), STMT(BPF_MISC | BPF_TXA, 0));
	SAYS("at first", OP(BPF_MUL, 0), OP(BPF_OR | BPF_X, 0));
	unsigned tests[] = { BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET };
	unsigned values[] = { 0, 1, 5, 6, 0x80000000, 0xffffffff };
	for (unsigned t = 0; t < COUNT(tests); t++)
		for (unsigned v = 0; v < COUNT(values); v++) {
			say("test %#x of %#x", tests[t], values[v]);
			SAYS("by 5", A(values[v]), BPF_JUMP(BPF_JMP | tests[t] | BPF_K, 5, 1, 0), STMT(BPF_JMP | BPF_JA, 1), A(1), OP(BPF_AND, 1));
			SAYS("by X", A(values[v]), X(0x80000000), BPF_JUMP(BPF_JMP | tests[t] | BPF_X, 0, 1, 0), A(2), OP(BPF_AND, 3));
		}
	IN_CHILD("who divides by zero", {
		FILTER(0, LOAD(0), UNLESS(SYS_getpgid), STMT(BPF_ALU | BPF_DIV | BPF_X, 0), RET(ALLOW));
		raw(SYS_getpgid, 0, 0);
	});
}

static void actions(void)
{
	say("--- actions");
	unsigned errors[] = { 0, 1, 38, 133, 4094, 4095, 4096, 65535 };
	for (unsigned n = 0; n < COUNT(errors); n++)
		IN_CHILD("who fails", {
			MUST(on(SYS_getpgid, ERRNO(errors[n])));
			say("error %u: %ld", errors[n], raw(SYS_getpgid, 0, 0));
		});
	IN_CHILD("who is noted", {
		MUST(on(SYS_getpgid, SECCOMP_RET_LOG | 7));
		HOLDS(raw(SYS_getpgid, 0, 0) == getpgrp());
	});
	IN_CHILD("who has no listener", {
		MUST(on(SYS_getpgid, SECCOMP_RET_USER_NOTIF | 7));
		TRY(raw(SYS_getpgid, 0, 0));
	});
	IN_CHILD("who has no tracer", {
		MUST(on(SYS_getpgid, SECCOMP_RET_TRACE | 7));
		TRY(raw(SYS_getpgid, 0, 0));
	});
	IN_CHILD("who calls what there is not", {
		MUST(on(9999, ERRNO(3)));
		MUST(on(-1, ERRNO(4)));
		TRY(raw(9999, 0, 0));
		TRY(raw(9998, 0, 0));
		TRY(raw(-1, 0, 0));
		TRY(raw(0xffffffff, 0, 0));
		TRY(raw(-2, 0, 0));
	});
	unsigned ends[] = { SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_TRAP, 0x80010000, 0x10000, 0x7ffd0000, 0xffffffff, 77 };
	for (unsigned n = 0; n < COUNT(ends); n++) {
		say("word %#x", ends[n]);
		IN_CHILD("who is ended", {
			MUST(on(SYS_getpgid, ends[n]));
			say("%ld", raw(SYS_getpgid, 0, 0));
		});
	}
}

static void precedence(void)
{
	say("--- precedence");
	unsigned words[] = { SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_TRAP, ERRNO(5), ERRNO(6), SECCOMP_RET_USER_NOTIF,
		SECCOMP_RET_TRACE, SECCOMP_RET_LOG, ALLOW };
	for (unsigned a = 0; a < COUNT(words); a++)
		for (unsigned b = 0; b < COUNT(words); b++) {
			say("%#x, then %#x", words[a], words[b]);
			IN_CHILD("child", {
				struct rlimit none = { 0, 0 };
				setrlimit(RLIMIT_CORE, &none);
				MUST(on(SYS_setsid, words[a]));
				MUST(on(SYS_setsid, words[b]));
				long result = raw(SYS_setsid, 0, 0);
				say("%ld", result > 0 ? 1 : result);
			});
		}
}

static volatile long trapped_address, trapped_result = 12345;

static void on_trap(int signal, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	say("signal %d, code %d, error %d, call %d, architecture %#x", signal, info->si_code, info->si_errno, info->si_syscall, info->si_arch);
	HOLDS((long)info->si_call_addr == registers[REG_RIP]);
	HOLDS(((unsigned char *)info->si_call_addr)[-2] == 0x0f && ((unsigned char *)info->si_call_addr)[-1] == 0x05);
	say("rax %lld, rdi %lld, rsi %lld, error %lld, trap %lld", registers[REG_RAX], registers[REG_RDI], registers[REG_RSI],
		registers[REG_ERR], registers[REG_TRAPNO]);
	registers[REG_RAX] = trapped_result;
}

static void traps(void)
{
	say("--- traps");
	struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	IN_CHILD("who handles it", {
		MUST(sigaction(SIGSYS, &action, 0));
		MUST(on(SYS_getpgid, SECCOMP_RET_TRAP | 0xabcd));
		say("%ld", raw(SYS_getpgid, 11, 22));
		trapped_result = -ENOENT;
		TRY(syscall(SYS_getpgid, 33, 44));
	});
	IN_CHILD("who traps a call that there is not", {
		MUST(sigaction(SIGSYS, &action, 0));
		MUST(on(-5, SECCOMP_RET_TRAP));
		say("%ld", raw(-5, 11, 22));
	});
	IN_CHILD("who ignores it", {
		signal(SIGSYS, SIG_IGN);
		MUST(on(SYS_getpgid, SECCOMP_RET_TRAP));
		raw(SYS_getpgid, 0, 0);
	});
	IN_CHILD("who blocks it", {
		sigset_t set;
		sigemptyset(&set);
		sigaddset(&set, SIGSYS);
		sigprocmask(SIG_BLOCK, &set, 0);
		MUST(sigaction(SIGSYS, &action, 0));
		MUST(on(SYS_getpgid, SECCOMP_RET_TRAP));
		raw(SYS_getpgid, 0, 0);
	});
	IN_CHILD("who handles it and is killed", {
		MUST(sigaction(SIGSYS, &action, 0));
		MUST(on(SYS_getpgid, SECCOMP_RET_KILL_PROCESS));
		raw(SYS_getpgid, 0, 0);
	});
	IN_CHILD("who handles it and is killed as a thread", {
		MUST(sigaction(SIGSYS, &action, 0));
		MUST(on(SYS_getpgid, SECCOMP_RET_KILL_THREAD));
		raw(SYS_getpgid, 0, 0);
	});
}

static void cores(void)
{
	say("--- cores");
	unsigned words[] = { SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_TRAP };
	for (unsigned n = 0; n < COUNT(words); n++) {
		pid_t pid = MUST(fork());
		if (pid == 0) {
			struct rlimit much = { 1 << 30, 1 << 30 };
			MUST(setrlimit(RLIMIT_CORE, &much));
			mkdir("/tmp/cores", 0700);
			MUST(chdir("/tmp/cores"));
			MUST(on(SYS_getpgid, words[n]));
			raw(SYS_getpgid, 0, 0);
			_exit(0);
		}
		int status;
		MUST(waitpid(pid, &status, 0));
		say("word %#x: signal %d, core %d", words[n], WTERMSIG(status), !!WCOREDUMP(status));
		unlink("/tmp/cores/core");
	}
}

static int to_thread[2], from_thread[2];

static void send_byte(int fd) { MUST(write(fd, "x", 1)); }
static void take_byte(int fd) { char c; MUST(read(fd, &c, 1)); }

static void start(pthread_t *thread, void *(*body)(void *), void *with)
{
	MUST(pipe(to_thread));
	MUST(pipe(from_thread));
	if (pthread_create(thread, 0, body, with))
		_exit(97);
}

static void *calls_once(void *with)
{
	send_byte(from_thread[1]);
	take_byte(to_thread[0]);
	say("the thread's call: %ld", raw(SYS_getsid, -1, 0));
	(void)with;
	return 0;
}

static void *confines_itself(void *word)
{
	MUST(on(SYS_getsid, (unsigned)(long)word));
	return calls_once(0);
}

static void *is_strict(void *with)
{
	char c;
	MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
	syscall(SYS_write, from_thread[1], "x", 1);
	syscall(SYS_read, to_thread[0], &c, 1);
	syscall(SYS_getppid);
	(void)with;
	return 0;
}

static void *ends_at_once(void *with) { return with; }

/* Starts a thread, and waits until it has gone on to its end. */
static void to_its_end(void *(*body)(void *), long with)
{
	pthread_t thread;
	start(&thread, body, (void *)with);
	take_byte(from_thread[0]);
	send_byte(to_thread[1]);
	pthread_join(thread, 0);
}

static void kills(void)
{
	say("--- threads that are killed");
	IN_CHILD("the process", {
		to_its_end(confines_itself, SECCOMP_RET_KILL_THREAD);
		say("one is left");
	});
	IN_CHILD("the process", {
		to_its_end(confines_itself, SECCOMP_RET_KILL_PROCESS);
		say("one is left");
	});
	IN_CHILD("the process whose last thread is killed", {
		to_its_end(confines_itself, SECCOMP_RET_KILL_THREAD);
		MUST(on(SYS_getsid, SECCOMP_RET_KILL_THREAD));
		raw(SYS_getsid, 0, 0);
	});
	IN_CHILD("the process whose last thread is killed while another ends", {
		pthread_t thread;
		for (int i = 0; i < 20; i++) {
			start(&thread, ends_at_once, 0);
			if (i < 19)
				pthread_join(thread, 0);
		}
		MUST(on(SYS_getsid, SECCOMP_RET_KILL_THREAD));
		pthread_join(thread, 0);
		raw(SYS_getsid, 0, 0);
	});
	IN_CHILD("the process whose thread was strict", {
		char path[64];
		to_its_end(is_strict, 0);
		say("one is left");
		snprintf(path, sizeof path, "/proc/%d/status", getpid());
		lines_of(path);
	});
}

static void strict(void)
{
	say("--- strict");
	IN_CHILD("who exits", {
		MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
		say("it writes");
		syscall(SYS_exit, 3);
	});
	IN_CHILD("who exits with its group", {
		MUST(seccomp(SECCOMP_SET_MODE_STRICT, 0, 0));
		say("it writes");
	});
	IN_CHILD("who asks for its mode", {
		MUST(seccomp(SECCOMP_SET_MODE_STRICT, 0, 0));
		prctl(PR_GET_SECCOMP);
	});
	IN_CHILD("who reads", {
		char c;
		int fd = MUST(open("/dev/zero", O_RDONLY));
		MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0));
		say("%zd", read(fd, &c, 1));
		syscall(SYS_exit, c);
	});
	int gate[2], ready[2];
	MUST(pipe(gate));
	MUST(pipe(ready));
	pid_t pid = MUST(fork());
	if (pid == 0) {
		char c;
		MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
		syscall(SYS_write, ready[1], "x", 1);
		syscall(SYS_read, gate[0], &c, 1);
		syscall(SYS_exit, 4);
	}
	take_byte(ready[0]);
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/status", pid);
	lines_of(path);
	send_byte(gate[1]);
	int status;
	MUST(waitpid(pid, &status, 0));
	say_status("who was looked at", status);
}

static void inheritance(char *self)
{
	say("--- who has them");
	IN_CHILD("parent", {
		lines_of("/proc/self/status");
		MUST(on(SYS_getsid, ERRNO(9)));
		MUST(on(SYS_getpgid, ERRNO(10)));
		lines_of("/proc/self/status");
		IN_CHILD("child", {
			lines_of("/proc/self/status");
			TRY(syscall(SYS_getsid, 0));
			TRY(prctl(PR_GET_SECCOMP));
			MUST(on(SYS_getsid, ERRNO(11)));
			TRY(syscall(SYS_getsid, 0));
			execl("/proc/self/exe", self, "again", (char *)0);
		});
		TRY(syscall(SYS_getsid, 0));
		pthread_t thread;
		start(&thread, calls_once, 0);
		take_byte(from_thread[0]);
		MUST(on(SYS_getsid, ERRNO(12)));
		send_byte(to_thread[1]);
		pthread_join(thread, 0);
		TRY(syscall(SYS_getsid, 0));
	});
	IN_CHILD("who may not execute", {
		MUST(on(SYS_execve, ERRNO(EPERM)));
		TRY(execl("/proc/self/exe", self, "again", (char *)0));
	});
	TRY(prctl(PR_GET_SECCOMP));
}

static void again(void)
{
	lines_of("/proc/self/status");
	TRY(syscall(SYS_getsid, 0));
	TRY(syscall(SYS_getpgid, 0));
}

static volatile pid_t its_number;

static void *is_looked_at(void *own)
{
	its_number = syscall(SYS_gettid);
	if (own)
		MUST(on(SYS_getsid, (unsigned)(long)own));
	send_byte(from_thread[1]);
	take_byte(to_thread[0]);
	say("the thread's call: %ld", raw(SYS_getsid, -1, 0));
	TRY(prctl(PR_GET_SECCOMP));
	TRY(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
	return 0;
}

#define ON_ALL(flags, word) FILTER(SECCOMP_FILTER_FLAG_TSYNC | (flags), LOAD(0), UNLESS(SYS_getsid), RET(word), RET(ALLOW))

static void of_thread(void)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/task/%d/status", its_number);
	lines_of(path);
}

/* A thread that was joined may be on its way out still, with its filters. */
static void until_gone(void)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/task/%d", its_number);
	while (access(path, F_OK) == 0)
		usleep(1000);
}

static void all_threads(void)
{
	say("--- all threads");
	pthread_t thread;
	IN_CHILD("who is alone", {
		TRY(ON_ALL(0, ERRNO(5)));
		TRY(syscall(SYS_getsid, 0));
	});
	IN_CHILD("who has a free thread", {
		start(&thread, is_looked_at, 0);
		take_byte(from_thread[0]);
		of_thread();
		MUST(on(SYS_getppid, ERRNO(4)));
		of_thread();
		TRY(ON_ALL(0, ERRNO(5)));
		of_thread();
		send_byte(to_thread[1]);
		pthread_join(thread, 0);
		TRY(syscall(SYS_getsid, 0));
	});
	IN_CHILD("who gets no new privileges", {
		start(&thread, is_looked_at, 0);
		take_byte(from_thread[0]);
		MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
		of_thread();
		TRY(ON_ALL(0, ERRNO(5)));
		of_thread();
		send_byte(to_thread[1]);
		pthread_join(thread, 0);
	});
	IN_CHILD("who has inherited filters", {
		MUST(on(SYS_getppid, ERRNO(4)));
		start(&thread, is_looked_at, 0);
		take_byte(from_thread[0]);
		MUST(on(SYS_getpgid, ERRNO(4)));
		TRY(ON_ALL(0, ERRNO(5)));
		of_thread();
		send_byte(to_thread[1]);
		pthread_join(thread, 0);
	});
	IN_CHILD("who has a thread with filters of its own", {
		MUST(on(SYS_getppid, ERRNO(4)));
		start(&thread, is_looked_at, (void *)(long)ERRNO(7));
		take_byte(from_thread[0]);
		HOLDS(ON_ALL(0, ERRNO(5)) == its_number);
		TRY(ON_ALL(SECCOMP_FILTER_FLAG_TSYNC_ESRCH, ERRNO(5)));
		of_thread();
		lines_of("/proc/self/status");
		send_byte(to_thread[1]);
		pthread_join(thread, 0);
		until_gone();
		HOLDS(syscall(SYS_getsid, 0) >= 0);
		TRY(ON_ALL(0, ERRNO(5)));
		TRY(syscall(SYS_getsid, 0));
	});
	IN_CHILD("who has a strict thread", {
		start(&thread, is_strict, 0);
		take_byte(from_thread[0]);
		HOLDS(ON_ALL(0, ERRNO(5)) > 0);
		TRY(ON_ALL(SECCOMP_FILTER_FLAG_TSYNC_ESRCH, ERRNO(5)));
		send_byte(to_thread[1]);
		pthread_join(thread, 0);
	});
}

static long trace(long request, pid_t pid, unsigned long address, unsigned long data)
{
	return syscall(SYS_ptrace, request, pid, address, data);
}

static void say_stop(int status)
{
	if (WIFSTOPPED(status) && status >> 16)
		say("stops: event %d, signal %d", status >> 16, WSTOPSIG(status));
	else if (WIFSTOPPED(status) && WSTOPSIG(status) & 0x80)
		say("stops at a call");
	else
		say_status("tracee", status);
}

static int next(pid_t pid)
{
	int status = 0;
	MUST(waitpid(pid, &status, __WALL));
	say_stop(status);
	return status;
}

static void resume(long request, pid_t pid) { MUST(trace(request, pid, 0, 0)); }

static struct user_regs_struct regs_of(pid_t pid)
{
	struct user_regs_struct regs;
	MUST(trace(PTRACE_GETREGS, pid, 0, (long)&regs));
	return regs;
}

static void look(pid_t pid)
{
	unsigned long message = 0;
	TRY(trace(PTRACE_GETEVENTMSG, pid, 0, (long)&message));
	struct user_regs_struct regs = regs_of(pid);
	say("message %lu, call %lld, rax %lld, rdi %lld", message, (long long)regs.orig_rax, (long long)regs.rax, (long long)regs.rdi);
	struct ptrace_syscall_info info;
	memset(&info, 0xee, sizeof info);
	TRY(trace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, (long)&info));
	say("kind %d, architecture %#x, call %lld, argument %lld, data %#x", info.op, info.arch, (long long)info.seccomp.nr,
		(long long)info.seccomp.args[0], info.op == PTRACE_SYSCALL_INFO_SECCOMP ? info.seccomp.ret_data : 0);
	siginfo_t signal;
	TRY(trace(PTRACE_GETSIGINFO, pid, 0, (long)&signal));
	say("signal %d, code %#x", signal.si_signo, signal.si_code);
}

static void set_call(pid_t pid, long nr, long rax)
{
	struct user_regs_struct regs = regs_of(pid);
	regs.orig_rax = nr;
	regs.rax = rax;
	MUST(trace(PTRACE_SETREGS, pid, 0, (long)&regs));
}

/* Makes a child that is traced and stands by a SIGSTOP of its own; it goes on in `body`. */
#define TRACED(options, ...) \
	pid_t pid = MUST(fork()); \
	if (pid == 0) { MUST(trace(PTRACE_TRACEME, 0, 0, 0)); raise(SIGSTOP); __VA_ARGS__; _exit(0); } \
	next(pid); \
	TRY(trace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD | (options)));

#define SEES PTRACE_O_TRACESECCOMP

static void goes_on(pid_t pid)
{
	resume(PTRACE_CONT, pid);
	next(pid);
}

static void traced(void)
{
	say("--- traced calls");
	{
		TRACED(SEES, MUST(on(SYS_getsid, SECCOMP_RET_TRACE | 0x1234)); say("%ld", raw(SYS_getsid, -1, 0)));
		goes_on(pid);
		look(pid);
		goes_on(pid);
	}
	{
		TRACED(0, MUST(on(SYS_getsid, SECCOMP_RET_TRACE | 0x1234)); say("%ld", raw(SYS_getsid, -1, 0)));
		goes_on(pid);
	}
	{
		say("another call");
		TRACED(SEES, MUST(on(SYS_getsid, SECCOMP_RET_TRACE)); say("%ld", raw(SYS_getsid, -1, 0)));
		goes_on(pid);
		set_call(pid, SYS_sched_yield, -38);
		goes_on(pid);
	}
	{
		say("a refused call");
		TRACED(SEES, MUST(on(SYS_getsid, SECCOMP_RET_TRACE)); MUST(on(SYS_sched_yield, ERRNO(66))); say("%ld", raw(SYS_getsid, -1, 0)));
		goes_on(pid);
		set_call(pid, SYS_sched_yield, -38);
		goes_on(pid);
	}
	{
		say("a call that kills");
		TRACED(SEES, MUST(on(SYS_getsid, SECCOMP_RET_TRACE)); MUST(on(SYS_sched_yield, SECCOMP_RET_KILL_PROCESS)); say("%ld", raw(SYS_getsid, -1, 0)));
		goes_on(pid);
		set_call(pid, SYS_sched_yield, -38);
		goes_on(pid);
	}
	{
		say("another traced call");
		TRACED(SEES, MUST(on(SYS_getsid, SECCOMP_RET_TRACE)); MUST(on(SYS_sched_yield, SECCOMP_RET_TRACE)); say("%ld", raw(SYS_getsid, -1, 0)));
		goes_on(pid);
		set_call(pid, SYS_sched_yield, -38);
		goes_on(pid);
	}
	{
		say("no call");
		TRACED(SEES, MUST(on(SYS_getsid, SECCOMP_RET_TRACE)); say("%ld", raw(SYS_getsid, -1, 0)));
		goes_on(pid);
		set_call(pid, -1, 4711);
		goes_on(pid);
	}
	{
		say("from call to call");
		TRACED(SEES, MUST(on(SYS_getsid, SECCOMP_RET_TRACE | 7)); raise(SIGSTOP); raw(SYS_getsid, -1, 0));
		goes_on(pid);
		/* The end of kill(), or whatever raises a signal, and perhaps more calls, before the one that counts. */
		for (int n = 0; n < 20; n++) {
			int status;
			resume(PTRACE_SYSCALL, pid);
			MUST(waitpid(pid, &status, __WALL));
			if (regs_of(pid).orig_rax == SYS_getsid) {
				say_stop(status);
				break;
			}
		}
		look(pid);
		resume(PTRACE_SYSCALL, pid);
		next(pid);
		look(pid);
		resume(PTRACE_SYSCALL, pid);
		next(pid);
		look(pid);
		goes_on(pid);
	}
	{
		say("a call taken away before filters");
		TRACED(SEES, MUST(on(SYS_getsid, SECCOMP_RET_TRACE | 7)); MUST(on(-1, ERRNO(99))); raise(SIGSTOP); say("%ld", raw(SYS_getsid, -1, 0)));
		goes_on(pid);
		for (int n = 0; n < 20; n++) {
			resume(PTRACE_SYSCALL, pid);
			MUST(waitpid(pid, 0, __WALL));
			if (regs_of(pid).orig_rax == SYS_getsid)
				break;
		}
		set_call(pid, -1, 4711);
		goes_on(pid);
	}
	{
		say("an error at a call's end");
		TRACED(SEES, MUST(on(SYS_getsid, ERRNO(77))); raise(SIGSTOP); say("%ld", raw(SYS_getsid, -1, 0)));
		goes_on(pid);
		for (int n = 0; n < 20; n++) {
			resume(PTRACE_SYSCALL, pid);
			MUST(waitpid(pid, 0, __WALL));
			if (regs_of(pid).orig_rax == SYS_getsid)
				break;
		}
		look(pid);
		resume(PTRACE_SYSCALL, pid);
		next(pid);
		look(pid);
		goes_on(pid);
	}
	{
		say("a trap");
		TRACED(SEES, MUST(on(SYS_getsid, SECCOMP_RET_TRAP | 55)); say("%ld", raw(SYS_getsid, -1, 0)));
		goes_on(pid);
		siginfo_t info;
		MUST(trace(PTRACE_GETSIGINFO, pid, 0, (long)&info));
		say("signal %d, code %d, error %d, call %d, architecture %#x", info.si_signo, info.si_code, info.si_errno, info.si_syscall, info.si_arch);
		struct user_regs_struct regs = regs_of(pid);
		HOLDS((unsigned long)info.si_call_addr == regs.rip);
		say("rax %lld, call %lld", (long long)regs.rax, (long long)regs.orig_rax);
		goes_on(pid);
	}
	{
		say("a kill");
		TRACED(SEES | PTRACE_O_TRACEEXIT, MUST(on(SYS_getsid, SECCOMP_RET_KILL_PROCESS)); say("%ld", raw(SYS_getsid, -1, 0)));
		goes_on(pid);
		goes_on(pid);
	}
	{
		say("suspended");
		TRACED(SEES | PTRACE_O_SUSPEND_SECCOMP, MUST(on(SYS_getsid, ERRNO(5))); say("%ld", raw(SYS_getsid, -1, 0)));
		goes_on(pid);
	}
	{
		say("looked at");
		struct sock_filter got[8];
		struct seccomp_metadata data;
		TRACED(SEES, MUST(on(SYS_getsid, SECCOMP_RET_TRACE));
			MUST(FILTER(SECCOMP_FILTER_FLAG_LOG, STMT(BPF_LD | BPF_W | BPF_LEN, 9), RET(ALLOW))); raw(SYS_getsid, -1, 0));
		TRY(trace(PTRACE_SECCOMP_GET_FILTER, pid, 0, 0));
		goes_on(pid);
		for (int n = -1; n < 3; n++) {
			memset(got, 0, sizeof got);
			say("filter %d", n);
			TRY(trace(PTRACE_SECCOMP_GET_FILTER, pid, n, 0));
			TRY(trace(PTRACE_SECCOMP_GET_FILTER, pid, n, (long)got));
			for (int i = 0; i < 4; i++)
				say("%#x %d %d %#x", got[i].code, got[i].jt, got[i].jf, got[i].k);
			data = (struct seccomp_metadata){ n, 99 };
			TRY(trace(PTRACE_SECCOMP_GET_METADATA, pid, sizeof data, (long)&data));
			say("number %lld, flags %lld", (long long)data.filter_off, (long long)data.flags);
		}
		TRY(trace(PTRACE_SECCOMP_GET_FILTER, pid, 0, (long)HOLE));
		TRY(trace(PTRACE_SECCOMP_GET_METADATA, pid, 8, (long)&data));
		TRY(trace(PTRACE_SECCOMP_GET_METADATA, pid, 7, (long)&data));
		TRY(trace(PTRACE_SECCOMP_GET_METADATA, pid, 16, (long)HOLE));
		goes_on(pid);
	}
	IN_CHILD("who has filters and traces", {
		TRACED(SEES, raise(SIGSTOP));
		MUST(on(SYS_getsid, ERRNO(5)));
		TRY(trace(PTRACE_SECCOMP_GET_FILTER, pid, 0, 0));
		TRY(trace(PTRACE_SECCOMP_GET_METADATA, pid, 7, 0));
		TRY(trace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_SUSPEND_SECCOMP));
		goes_on(pid);
	});
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		again();
		return 0;
	}
	refusals();
	what_there_is();
	knobs();
	programs();
	limits();
	arithmetic();
	actions();
	precedence();
	traps();
	cores();
	kills();
	strict();
	inheritance(argv[0]);
	all_threads();
	traced();
	return 0;
}
