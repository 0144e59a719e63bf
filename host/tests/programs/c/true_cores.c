/* Core files: who leaves one, what it is called, and what is in it. */
#include "say.h"
#include "blocked.h"
#include <dirent.h>
#include <elf.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/procfs.h>
#include <sys/resource.h>

static char *memory, *untouched, *hidden, *shared, *large;
#define LARGE (6u << 20)
static int initialised[2048] = { 42 };

static void *thread_waits(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static void *thread_spins(void *arg)
{
	for (;;)
		;
	return arg;
}

/* The files of this directory that begin with a word, except for the number of the process. */
static void say_files(const char *start, pid_t child)
{
	DIR *d = opendir(".");
	char number[16], names[8][300];
	int count = 0;
	sprintf(number, "%d", child);
	for (struct dirent *e; (e = readdir(d));) {
		if (strncmp(e->d_name, start, strlen(start)) || count == 8)
			continue;
		struct stat st;
		MUST(stat(e->d_name, &st));
		char *at = strstr(e->d_name, number);
		if (at)
			sprintf(names[count], "%.*s<pid>%s, mode %o", (int)(at - e->d_name), e->d_name, at + strlen(number), st.st_mode);
		else
			sprintf(names[count], "%s, mode %o", e->d_name, st.st_mode);
		say("file %s", names[count]);
		unlink(e->d_name);
		count++;
	}
	closedir(d);
	if (!count)
		say("no file");
}

static void limit_core(rlim_t bytes)
{
	struct rlimit limit = { bytes, RLIM_INFINITY };
	MUST(setrlimit(RLIMIT_CORE, &limit));
}

static int end_of(pid_t child)
{
	int status;
	siginfo_t info = { 0 };
	MUST(waitid(P_PID, child, &info, WEXITED | WNOWAIT));
	MUST(waitpid(child, &status, 0));
	say("signal %d, core %d, code %d, si_status %d", WTERMSIG(status), !!WCOREDUMP(status), info.si_code, info.si_status);
	return status;
}

static void set(const char *path, const char *value)
{
	int f = open(path, O_WRONLY);
	int n = write(f, value, strlen(value));
	say("%s := %s: %s", path, value, n == (int)strlen(value) ? "done" : strerrorname_np(errno));
	close(f);
}

static void show(const char *path)
{
	char text[256];
	int f = open(path, O_RDONLY), n = read(f, text, sizeof text - 1);
	text[n < 0 ? 0 : n] = 0;
	close(f);
	if (n > 0 && text[n - 1] == '\n')
		text[n - 1] = 0;
	say("%s is '%s'", path, text);
}

/* A child that ends itself by a signal. */
static void ends_by(int signal, rlim_t bytes, int dumpable)
{
	pid_t child = MUST(fork());
	if (child == 0) {
		limit_core(bytes);
		if (prctl(PR_SET_DUMPABLE, dumpable))
			_exit(1);
		raise(signal);
		_exit(0);
	}
	end_of(child);
	say_files("core", child);
}

struct core { char *bytes; size_t size; Elf64_Ehdr *e; Elf64_Phdr *p; };

static struct core read_core(const char *name)
{
	struct core c = { 0 };
	struct stat st;
	int f = MUST(open(name, O_RDONLY));
	MUST(fstat(f, &st));
	c.size = st.st_size;
	c.bytes = mmap(0, c.size, PROT_READ, MAP_PRIVATE, f, 0);
	close(f);
	c.e = (void *)c.bytes;
	c.p = (void *)(c.bytes + c.e->e_phoff);
	return c;
}

/* The bytes at an address of the process, or why there are none. */
static const char *at(struct core c, const void *address, const char **why)
{
	for (int i = 0; i < c.e->e_phnum; i++) {
		uint64_t a = (uint64_t)address;
		if (c.p[i].p_type != PT_LOAD || a < c.p[i].p_vaddr || a >= c.p[i].p_vaddr + c.p[i].p_memsz)
			continue;
		a -= c.p[i].p_vaddr;
		*why = a < c.p[i].p_filesz ? (c.p[i].p_offset + a < c.size ? "there" : "cut off") : "not in the file";
		return !strcmp(*why, "there") ? c.bytes + c.p[i].p_offset + a : 0;
	}
	*why = "no area";
	return 0;
}

static void say_bytes(struct core c, const char *name, const void *address)
{
	const char *why, *bytes = at(c, address, &why);
	say("%s: %s %d", name, why, bytes ? *bytes : -1);
}

static void say_note(Elf64_Nhdr *n, pid_t child)
{
	char *d = (char *)(n + 1) + ((n->n_namesz + 3) & ~3);
	if (n->n_type == NT_PRSTATUS) {
		struct elf_prstatus *s = (void *)d;
		struct user_regs_struct { unsigned long long r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, orig_rax, rip, cs; } *r = (void *)s->pr_reg;
		say("NT_PRSTATUS of %u bytes: signal %d %d, main thread %d, parent ours %d, user code %d", n->n_descsz, s->pr_cursig,
			s->pr_info.si_signo, s->pr_pid == child, s->pr_ppid == getpid(), (r->cs & 3) == 3);
		if (s->pr_pid == child)
			say("r12 %llx r13 %llx", r->r12, r->r13);
	} else if (n->n_type == NT_PRPSINFO) {
		struct elf_prpsinfo *p = (void *)d;
		say("NT_PRPSINFO of %u bytes: %s, '%c', pid ours %d, nice %d", n->n_descsz, p->pr_fname, p->pr_sname, p->pr_pid == child, p->pr_nice);
	} else if (n->n_type == NT_SIGINFO) {
		siginfo_t *s = (void *)d;
		say("NT_SIGINFO of %u bytes: signal %d code %d address %p", n->n_descsz, s->si_signo, s->si_code, s->si_addr);
	} else if (n->n_type == NT_AUXV) {
		Elf64_auxv_t *a = (void *)d;
		for (; a->a_type; a++)
			if (a->a_type == AT_PAGESZ)
				say("NT_AUXV says pages have %lu bytes", (long)a->a_un.a_val);
	} else if (n->n_type == NT_FILE) {
		long *w = (void *)d, count = w[0];
		const char *name = (char *)(w + 2 + 3 * count), *last = strrchr(name, '/');
		say("NT_FILE: unit %ld, some %d, first %s at page %ld", w[1], count > 0, last ? last + 1 : name, w[4]);
	} else if (n->n_type == NT_FPREGSET) {
		say("NT_FPREGSET of %u bytes", n->n_descsz);
	}
}

/* Says what the notes tell, or only what they tell of the process as a whole. */
static void say_core(struct core c, pid_t child, int whole)
{
	HOLDS(!memcmp(c.e->e_ident, ELFMAG "\2\1\1", 7) && c.e->e_type == ET_CORE && c.e->e_machine == EM_X86_64);
	int threads = 0;
	for (int i = 0; i < c.e->e_phnum; i++) {
		if (c.p[i].p_type != PT_NOTE)
			continue;
		for (uint64_t o = c.p[i].p_offset; o < c.p[i].p_offset + c.p[i].p_filesz;) {
			Elf64_Nhdr *n = (void *)(c.bytes + o);
			threads += n->n_type == NT_PRSTATUS;
			if (whole || n->n_type == NT_PRPSINFO)
				say_note(n, child);
			o += sizeof *n + ((n->n_namesz + 3) & ~3) + ((n->n_descsz + 3) & ~3);
		}
	}
	say("%d threads", threads);
}

static void ends_by_fault(rlim_t bytes, const char *filter, int with_threads)
{
	pid_t child = MUST(fork());
	if (child == 0) {
		limit_core(bytes);
		if (filter)
			set("/proc/self/coredump_filter", filter);
		pthread_t t;
		for (int i = 0; i < with_threads; i++)
			pthread_create(&t, 0, i % 2 ? thread_spins : thread_waits, 0);
		sleep_ms(50);
		asm volatile("mov $0x1234, %%r12; mov $0x5678, %%r13; movb $0, 0x10" ::: "r12", "r13", "memory");
	}
	end_of(child);
	struct core c = read_core("core");
	HOLDS(c.size <= bytes);
	if (bytes != RLIM_INFINITY) {
		say_files("core", child);
		return;
	}
	say_core(c, child, 1);
	say_bytes(c, "memory", memory);
	say_bytes(c, "memory's hole", memory + 8 * PAGE);
	say_bytes(c, "memory's end", memory + 63 * PAGE);
	say_bytes(c, "untouched", untouched);
	say_bytes(c, "hidden", hidden);
	say_bytes(c, "without rights", hidden + PAGE * 4);
	say_bytes(c, "shared", shared);
	long right = 0;
	for (size_t o = 0; o < LARGE; o += PAGE) {
		const char *why, *bytes = at(c, large + o, &why);
		right += bytes && *(long *)(bytes + 64) == (long)(o + 1);
	}
	say("large: %ld pages", right);
	say_bytes(c, "data", (char *)initialised);
	say_bytes(c, "data that was not touched", (char *)(initialised + 1500));
	say_bytes(c, "code", (char *)((uint64_t)ends_by_fault & ~(uint64_t)(PAGE - 1)) );
	say_bytes(c, "stack", (char *)&child);
	unlink("core");
}

static int main_ends;

/* Waits until the main thread has left its CPU for good. It can be joined, and is a zombie, a
   little before that. */
static void until_main_is_gone(void)
{
	char text[256];
	until_state(getpid(), getpid(), 'Z');
	do
		of_task(getpid(), getpid(), "syscall", text, sizeof text);
	while (!strcmp(text, "running\n"));
}

static void *thread_faults(void *main_thread)
{
	if (main_ends) {
		pthread_join(*(pthread_t *)main_thread, 0);
		until_main_is_gone();
	}
	MUST(prctl(PR_SET_NAME, "another"));
	MUST(setpriority(PRIO_PROCESS, MUST(syscall(SYS_gettid)), 9));
	asm volatile("movb $0, 0x10" ::: "memory");
	return 0;
}

/* Another thread than the main one faults: what the file tells of the process is the main thread's. */
static void another_faults(void)
{
	for (main_ends = 0; main_ends < 2; main_ends++) {
		pid_t child = MUST(fork());
		if (child == 0) {
			static pthread_t main_thread;
			pthread_t t;
			limit_core(RLIM_INFINITY);
			MUST(prctl(PR_SET_NAME, "the main one"));
			MUST(setpriority(PRIO_PROCESS, 0, 4));
			main_thread = pthread_self();
			pthread_create(&t, 0, thread_faults, &main_thread);
			if (main_ends)
				pthread_exit(0);
			pthread_join(t, 0);
		}
		end_of(child);
		say_core(read_core("core"), child, 0);
		unlink("core");
	}
}

static void names(void)
{
	const char *patterns[] = { "core.%p", "/tmp/w/core-%e-%s-%u-%g%%", "core_%h%z%", "core_%d_%f_%C_", "none/core", "core", "" };
	char host[64];
	gethostname(host, sizeof host);
	MUST(sethostname("a/host", 6));
	for (unsigned i = 0; i < sizeof patterns / sizeof *patterns; i++) {
		if (*patterns[i])
			set("/proc/sys/kernel/core_pattern", patterns[i]);
		else
			set("/proc/sys/kernel/core_uses_pid", "1");
		ends_by(SIGQUIT, RLIM_INFINITY, 1);
	}
	set("/proc/sys/kernel/core_pattern", "core.%p");
	ends_by(SIGQUIT, RLIM_INFINITY, 1);
	set("/proc/sys/kernel/core_uses_pid", "0");
	set("/proc/sys/kernel/core_pattern", "core");
	/* What has the name already. */
	MUST(symlink("elsewhere", "core"));
	ends_by(SIGQUIT, RLIM_INFINITY, 1);
	HOLDS(access("elsewhere", F_OK) != 0);
	MUST(mkdir("core", 0755));
	ends_by(SIGQUIT, RLIM_INFINITY, 1);
	rmdir("core");
	MUST(sethostname(host, strlen(host)));
}

/* A core file that takes a while, and a SIGKILL while it is written. */
static void killed_meanwhile(void)
{
	size_t bytes = 96 << 20;
	pid_t child = MUST(fork());
	if (child == 0) {
		limit_core(RLIM_INFINITY);
		char *m = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memset(m, 1, bytes);
		pthread_t t;
		for (int i = 0; i < 3; i++)
			pthread_create(&t, 0, i % 2 ? thread_spins : thread_waits, 0);
		abort();
	}
	/* Until it has begun. */
	struct stat st;
	while (stat("core", &st) == -1 || st.st_size == 0)
		sched_yield();
	MUST(kill(child, SIGTERM));
	MUST(kill(child, SIGKILL));
	int status;
	MUST(waitpid(child, &status, 0));
	say("ended by signal %d", WTERMSIG(status));
	unlink("core");
}

int main(void)
{
	setvbuf(stdout, 0, _IONBF, 0);
	say("== files");
	show("/proc/sys/kernel/core_pattern");
	show("/proc/sys/kernel/core_uses_pid");
	show("/proc/self/coredump_filter");
	set("/proc/self/coredump_filter", "0x10ff");
	show("/proc/self/coredump_filter");
	set("/proc/self/coredump_filter", "012");
	show("/proc/self/coredump_filter");
	set("/proc/self/coredump_filter", "word");
	set("/proc/self/coredump_filter", "+0x33");
	set("/proc/self/coredump_filter", "-1");
	set("/proc/self/coredump_filter", "4294967296");
	IN_CHILD("child", show("/proc/self/coredump_filter"));
	set("/proc/self/coredump_filter", "51");

	say("== signals");
	int signals[] = { SIGSEGV, SIGABRT, SIGQUIT, SIGILL, SIGTRAP, SIGFPE, SIGBUS, SIGSYS, SIGXCPU, SIGXFSZ, SIGTERM, SIGUSR1, SIGRTMIN };
	for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++)
		ends_by(signals[i], RLIM_INFINITY, 1);
	say("== none");
	ends_by(SIGSEGV, 0, 1);
	ends_by(SIGSEGV, 4095, 1);
	ends_by(SIGSEGV, RLIM_INFINITY, 0);

	say("== other numbers");
	IN_CHILD("same", setuid(0); setresgid(-1, 0, 7); say("dumpable %d", prctl(PR_GET_DUMPABLE)));
	IN_CHILD("user", setresuid(-1, 1000, -1); say("dumpable %d", prctl(PR_GET_DUMPABLE)));
	IN_CHILD("group", setegid(1000); say("dumpable %d", prctl(PR_GET_DUMPABLE)));
	IN_CHILD("files", setfsuid(1000); say("dumpable %d", prctl(PR_GET_DUMPABLE)));

	say("== contents");
	prctl(PR_SET_NAME, "named");
	int rw = PROT_READ | PROT_WRITE, private = MAP_PRIVATE | MAP_ANONYMOUS;
	memory = mmap(0, 64 * PAGE, rw, private, -1, 0);
	memory[0] = 11, memory[63 * PAGE] = 12;
	untouched = mmap((char *)0x200000000000, 16 * PAGE, rw, private, -1, 0);
	hidden = mmap((char *)0x210000000000, 8 * PAGE, rw, private, -1, 0);
	hidden[0] = 13, hidden[4 * PAGE] = 14;
	MUST(madvise(hidden, 4 * PAGE, MADV_DONTDUMP));
	MUST(mprotect(hidden + 4 * PAGE, 4 * PAGE, PROT_NONE));
	shared = mmap(0, 4 * PAGE, rw, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	shared[0] = 15;
	/* Some of it is in huge pages, and some of these a child's, too. */
	large = mmap(0, LARGE, rw, private, -1, 0);
	for (size_t o = 0; o < LARGE; o += PAGE)
		*(long *)(large + o + 64) = o + 1;
	ends_by_fault(RLIM_INFINITY, 0, 0);
	ends_by_fault(RLIM_INFINITY, 0, 4);
	ends_by_fault(RLIM_INFINITY, "0", 0);
	ends_by_fault(RLIM_INFINITY, "2", 1);
	ends_by_fault(RLIM_INFINITY, "4", 0);
	ends_by_fault(RLIM_INFINITY, "16", 0);
	MUST(madvise(hidden, 4 * PAGE, MADV_DODUMP));
	ends_by_fault(RLIM_INFINITY, "1", 0);
	ends_by_fault(16384, 0, 2);

	say("== another thread");
	another_faults();
	say("== names");
	names();
	say("== killed");
	killed_meanwhile();
	return 0;
}
