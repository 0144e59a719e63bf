/* The kernel log as syslog(2) reads it, and how the wall clock is steered. */
#include "say.h"
#include "blocked.h"
#include <sys/klog.h>
#include <sys/timex.h>

static char log[1 << 20];

static void note(const char *line)
{
	int f = MUST(open("/dev/kmsg", O_WRONLY));
	MUST(write(f, line, strlen(line)));
	close(f);
}

/* Lines of ours in what was read, without their times. */
static void say_ours(const char *name, int bytes)
{
	if (bytes < 0) {
		say("%s: %s", name, strerrorname_np(errno));
		return;
	}
	log[bytes] = 0;
	int count = 0;
	for (char *line = log, *end; (end = strchr(line, '\n')); line = end + 1) {
		*end = 0;
		char *text = strstr(line, "] ours");
		if (!text)
			continue;
		char *time = strchr(line, '[');
		say("%s: %.*s[%s %s", name, time ? (int)(time - line) : 0, line, time && text - time == 13 ? "time" : "no time", text);
		count++;
	}
	say("%s: %d lines", name, count);
}

static int unread(void) { return klogctl(9, 0, 0); }

static void reads(void)
{
	HOLDS(klogctl(10, 0, 0) >= 16384);
	note("<3>ours one\n");
	note("ours two\n");
	note("<14>ours three\n");
	note("<163>ours four\n");
	say_ours("all", klogctl(3, log, sizeof log - 1));
	say_ours("once more", klogctl(3, log, sizeof log - 1));
	/* The newest that fit. */
	say_ours("the end", klogctl(3, log, 60));
	HOLDS(klogctl(3, log, 60) <= 60);
	say_ours("too short", klogctl(3, log, 5));
	TRY(klogctl(3, log, 0));
	TRY(klogctl(3, log, -1));
	TRY(klogctl(3, 0, 10));
	TRY(klogctl(2, 0, 10));
	TRY(klogctl(2, log, 0));
	TRY(klogctl(3, (char *)8, 100));
	TRY(klogctl(11, log, 100));
	TRY(klogctl(-1, log, 100));
	TRY(klogctl(0, 0, 0));
	TRY(klogctl(1, 0, 0));
	say_ours("read and forgotten", klogctl(4, log, sizeof log - 1));
	say_ours("afterwards", klogctl(3, log, sizeof log - 1));
	note("<6>ours five\n");
	say_ours("new", klogctl(3, log, sizeof log - 1));
	TRY(klogctl(5, 0, 0));
	say_ours("forgotten", klogctl(3, log, sizeof log - 1));
	/* What was forgotten can still be read by those who read in turn. */
	HOLDS(unread() > 0);
	int all = 0, n;
	while (unread() > 0 && (n = klogctl(2, log + all, 1000)) > 0)
		all += n;
	say_ours("in turn", all);
	TRY(unread());
	note("<6>ours six\n");
	n = unread();
	HOLDS(n > 20 && n < 60);
	TRY(klogctl(2, log, 3));
	HOLDS(!memcmp(log, "<14", 3));
	int rest = klogctl(2, log + 3, 1000);
	HOLDS(rest == n - 3);
	say_ours("in pieces", rest + 3);
	/* Who reads what is not there waits for it. */
	pid_t child = MUST(fork());
	if (child == 0) {
		until_in_call(getppid(), getppid(), SYS_syslog);
		sleep_ms(300);
		note("<6>ours seven\n");
		_exit(0);
	}
	double start = now();
	/* The kernel may say something meanwhile. */
	do {
		n = MUST(klogctl(2, log, 1000));
		log[n] = 0;
	} while (!strstr(log, "] ours"));
	HOLDS(now() - start > 0.2);
	say_ours("waited", n);
	MUST(waitpid(child, 0, 0));
	IN_CHILD("interrupted", alarm(1); while (klogctl(2, log, 1000) > 0));
}

static void say_printk(const char *what)
{
	char text[64] = "";
	int f = MUST(open("/proc/sys/kernel/printk", O_RDONLY));
	text[MUST(read(f, text, sizeof text - 1)) - 1] = 0;
	close(f);
	say("%s: %s", what, text);
}

/* The level from which on the console shows messages: 6 turns it off, 7 on again, 8 sets it. */
static void console_levels(void)
{
	int levels[4];
	FILE *f = fopen("/proc/sys/kernel/printk", "r");
	for (int i = 0; i < 4; i++)
		MUST(fscanf(f, "%d", &levels[i]));
	fclose(f);
	static const int steps[] = { 7, 85, 6, 6, 7, 7, 6, 83, 7, 88, 6, 7, 81, 6, 7 };
	TRY(klogctl(8, 0, 4));
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
		int action = steps[i] < 10 ? steps[i] : steps[i] / 10;
		say("action %d of %d: %d", action, steps[i] % 10, klogctl(action, 0, steps[i] < 10 ? 0 : steps[i] % 10));
		say_printk("printk");
	}
	MUST(klogctl(8, 0, levels[0]));
}

/* Keys of the sysrq trigger that change little: the level, sync, and unknown ones, which write the keys to the log. */
static void keys(void)
{
	int level = 0;
	FILE *printk = fopen("/proc/sys/kernel/printk", "r");
	MUST(fscanf(printk, "%d", &level));
	fclose(printk);
	int f = MUST(open("/proc/sysrq-trigger", O_WRONLY));
	TRY(write(f, "3", 1));
	say_printk("printk");
	MUST(klogctl(8, 0, level));
	MUST(klogctl(5, 0, 0));
	TRY(write(f, "h\n", 2));
	int n = MUST(klogctl(3, log, sizeof log - 1));
	log[n] = 0;
	char *help = strstr(log, "sysrq: HELP : loglevel(0-9) ");
	HOLDS(help && strstr(help, " crash(c) ") && strstr(help, " sync(s)"));
	TRY(write(f, "s\n", 2));
	close(f);
}

static void steering(void)
{
	struct timex t = { .modes = 0, .offset = 77, .tick = 77, .tai = 77, .status = 77 };
	struct timespec before, after;
	clock_gettime(CLOCK_REALTIME, &before);
	TRY(adjtimex(&t));
	clock_gettime(CLOCK_REALTIME, &after);
	HOLDS(before.tv_sec <= t.time.tv_sec && t.time.tv_sec <= after.tv_sec && t.time.tv_usec < 1000000);
	say("offset %ld freq %ld maxerror %ld esterror %ld status %#x constant %ld precision %ld tolerance %ld tick %ld", t.offset,
		t.freq, t.maxerror, t.esterror, t.status, t.constant, t.precision, t.tolerance, t.tick);
	say("pulses %ld %ld %d %ld %ld %ld %ld %ld, tai %d", t.ppsfreq, t.jitter, t.shift, t.stabil, t.jitcnt, t.calcnt, t.errcnt,
		t.stbcnt, t.tai);
	t.modes = ADJ_OFFSET_SS_READ;
	TRY(adjtimex(&t));
	say("left %ld", t.offset);
	t.modes = 0x8000;
	TRY(adjtimex(&t));
	t.modes = 0xa000;
	TRY(adjtimex(&t));
	t.modes = 0;
	TRY(syscall(SYS_adjtimex, 0));
	TRY(syscall(SYS_adjtimex, 8));
	int clocks[] = { 0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 99 };
	for (unsigned i = 0; i < sizeof clocks / sizeof *clocks; i++) {
		errno = 0;
		int r = clock_adjtime(clocks[i], &t);
		say("clock %d: %d %s", clocks[i], r, r < 0 ? strerrorname_np(errno) : "");
	}
	TRY(syscall(SYS_clock_adjtime, 1, 0));
	TRY(syscall(SYS_clock_adjtime, 99, 0));
}

int main(void)
{
	say("== log"); reads();
	say("== console"); console_levels();
	say("== keys"); keys();
	say("== clock"); steering();
	return 0;
}
