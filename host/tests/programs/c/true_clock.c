/* Setting the guest's clock: who may, which times, and who follows it. */
#include "say.h"
#include "blocked.h"
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/timerfd.h>
#include <sys/timex.h>

static long long ns(struct timespec t) { return t.tv_sec * 1000000000LL + t.tv_nsec; }

static long long clock_ns(int clock)
{
	struct timespec t;
	syscall(SYS_clock_gettime, clock, &t);
	return ns(t);
}

static struct timespec from_now(int clock, long seconds)
{
	struct timespec t;
	clock_gettime(clock, &t);
	t.tv_sec += seconds;
	return t;
}

static void step(long seconds)
{
	struct timespec t = from_now(CLOCK_REALTIME, seconds);
	MUST(clock_settime(CLOCK_REALTIME, &t));
}

static long btime(void)
{
	static char text[1 << 16];
	int fd = MUST(open("/proc/stat", O_RDONLY));
	ssize_t n = MUST(read(fd, text, sizeof text - 1));
	close(fd);
	text[n] = 0;
	char *line = strstr(text, "\nbtime ");
	return line ? atol(line + 7) : -1;
}

static void errors(void)
{
	struct timespec t = from_now(CLOCK_REALTIME, 0), odd = t;
	static const int clocks[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 99, -1 };
	for (unsigned i = 0; i < sizeof clocks / sizeof *clocks; i++) {
		long r = syscall(SYS_clock_settime, clocks[i], &t);
		say("clock_settime of %d: %ld %s", clocks[i], r, r ? strerrorname_np(errno) : "");
	}
	TRY(syscall(SYS_clock_settime, 0, 8));
	odd.tv_nsec = 1000000000;
	TRY(clock_settime(0, &odd));
	odd.tv_nsec = -1;
	TRY(clock_settime(0, &odd));
	odd = (struct timespec){ -1, 0 };
	TRY(clock_settime(0, &odd));
	odd = (struct timespec){ 0, 0 };
	TRY(clock_settime(0, &odd));
	odd = (struct timespec){ 1L << 40, 0 };
	TRY(clock_settime(0, &odd));
	struct timeval v = { t.tv_sec, 1000000 };
	TRY(syscall(SYS_settimeofday, &v, 0));
	v.tv_usec = -1;
	TRY(syscall(SYS_settimeofday, &v, 0));
	v = (struct timeval){ -1, 0 };
	TRY(syscall(SYS_settimeofday, &v, 0));
	TRY(syscall(SYS_settimeofday, 8, 0));
	TRY(syscall(SYS_settimeofday, 0, 8));
	TRY(syscall(SYS_settimeofday, 0, 0));
	int zone[2] = { 901, 0 };
	TRY(syscall(SYS_settimeofday, 0, zone));
	v = (struct timeval){ t.tv_sec, 0 };
	MUST(setresuid(65534, 65534, 0));
	TRY(clock_settime(0, &t));
	odd = (struct timespec){ -1, 0 };
	TRY(clock_settime(0, &odd));
	TRY(syscall(SYS_settimeofday, &v, 0));
	struct timex x = { .modes = ADJ_STATUS };
	TRY(adjtimex(&x));
	x.modes = ADJ_OFFSET_SINGLESHOT;
	TRY(adjtimex(&x));
	x.modes = 0;
	HOLDS(adjtimex(&x) >= 0);
	x.modes = ADJ_OFFSET_SS_READ;
	HOLDS(adjtimex(&x) >= 0);
	MUST(setresuid(0, 0, 0));
}

static void steps(void)
{
	long long mono = clock_ns(CLOCK_MONOTONIC), boot = clock_ns(CLOCK_BOOTTIME);
	long long kernel = clock_ns(CLOCK_REALTIME), tai = clock_ns(CLOCK_TAI);
	long before = btime();
	step(5000);
	HOLDS(clock_ns(CLOCK_REALTIME) - kernel >= 5000000000000LL);
	HOLDS(clock_ns(CLOCK_REALTIME) - kernel < 6000000000000LL);
	HOLDS(clock_ns(CLOCK_TAI) - tai >= 5000000000000LL);
	HOLDS(clock_ns(CLOCK_REALTIME_COARSE) - kernel >= 4999000000000LL);
	HOLDS(clock_ns(CLOCK_MONOTONIC) - mono < 1000000000000LL);
	HOLDS(clock_ns(CLOCK_BOOTTIME) - boot < 1000000000000LL);
	/* The vDSO says the same. */
	struct timespec t;
	struct timeval v;
	clock_gettime(CLOCK_REALTIME, &t);
	HOLDS(ns(t) - kernel >= 5000000000000LL);
	gettimeofday(&v, 0);
	HOLDS(v.tv_sec >= t.tv_sec);
	HOLDS(time(0) >= t.tv_sec - 1);
	HOLDS(labs(btime() - before - 5000) <= 1);
	int fd = MUST(open("clock-file", O_CREAT | O_RDWR, 0600));
	struct stat s;
	fstat(fd, &s);
	HOLDS(s.st_mtime >= t.tv_sec - 1);
	close(fd);
	unlink("clock-file");
	struct timeval back = { time(0) - 5000, 0 };
	TRY(syscall(SYS_settimeofday, &back, 0));
	HOLDS(clock_ns(CLOCK_REALTIME) - kernel < 1000000000000LL);
	HOLDS(clock_ns(CLOCK_MONOTONIC) >= mono);
}

/* Waits whose end the clock passes when it is set: each must end, though the time is hours away. */
static int words[3];
static volatile int ready, over;

static void *sleeper(void *arg)
{
	struct timespec t = from_now(CLOCK_REALTIME, 3600);
	long which = (long)arg, r = -1;
	__sync_fetch_and_add(&ready, 1);
	if (which == 0)
		r = clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, 0);
	else if (which == 1)
		r = syscall(SYS_futex, &words[0], FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &t, 0, ~0) ? errno : 0;
	else if (which == 2) {
		pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
		pthread_cond_t c = PTHREAD_COND_INITIALIZER;
		pthread_mutex_lock(&m);
		r = pthread_cond_timedwait(&c, &m, &t);
	}
	__sync_fetch_and_add(&over, 1);
	return (void *)r;
}

static void waits(void)
{
	pthread_t threads[3];
	for (long i = 0; i < 3; i++)
		pthread_create(&threads[i], 0, sleeper, (void *)i);
	while (ready < 3)
		sched_yield();
	sleep_ms(50);
	HOLDS(over == 0);
	/* A step that does not pass their time leaves them asleep. */
	step(600);
	sleep_ms(50);
	HOLDS(over == 0);
	step(3600);
	for (int i = 0; i < 3; i++) {
		void *r;
		pthread_join(threads[i], &r);
		say("wait %d ends with %ld", i, (long)r);
	}
	step(-4200);
	/* Back again: a wait does not end before its time on the clock. The child steps to 10 s
	   before that time, and back by 2 s before the 10 s are over. */
	struct timespec t = from_now(CLOCK_REALTIME, 3600);
	double began = now();
	pid_t child = MUST(fork());
	if (child == 0) {
		until_in_call(getppid(), getppid(), SYS_clock_nanosleep);
		struct timespec early = { t.tv_sec - 10, t.tv_nsec }, earlier = { t.tv_sec - 12, t.tv_nsec };
		MUST(clock_settime(CLOCK_REALTIME, &early));
		MUST(clock_settime(CLOCK_REALTIME, &earlier));
		_exit(0);
	}
	TRY(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, 0));
	HOLDS(clock_ns(CLOCK_REALTIME) >= ns(t));
	HOLDS(now() - began >= 11.9);
	int status;
	MUST(waitpid(child, &status, 0));
	step(-3588);
}

static void timer_files(void)
{
	int wall = MUST(timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK));
	int told = MUST(timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK));
	int mono = MUST(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	struct itimerspec set = { { 0, 0 }, from_now(CLOCK_REALTIME, 3600) }, got;
	uint64_t times = 0;
	TRY(timerfd_settime(wall, TFD_TIMER_ABSTIME, &set, 0));
	TRY(timerfd_settime(told, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &set, 0));
	struct itimerspec span = { { 0, 0 }, { 3600, 0 } };
	TRY(timerfd_settime(mono, TFD_TIMER_CANCEL_ON_SET, &span, 0));
	struct pollfd fds[3] = { { wall, POLLIN }, { told, POLLIN }, { mono, POLLIN } };
	TRY(poll(fds, 3, 0));
	step(600);
	TRY(poll(fds, 3, 0));
	say("ready: %x %x %x", fds[0].revents, fds[1].revents, fds[2].revents);
	timerfd_gettime(wall, &got);
	HOLDS(got.it_value.tv_sec > 2000 && got.it_value.tv_sec <= 3000);
	TRY(read(told, &times, 8));
	TRY(read(told, &times, 8));
	TRY(poll(fds, 3, 0));
	step(600);
	TRY(timerfd_settime(told, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &set, 0));
	TRY(timerfd_settime(told, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &set, 0));
	TRY(read(told, &times, 8));
	pid_t child = MUST(fork());
	if (child == 0) {
		sleep_ms(50);
		step(3600);
		_exit(0);
	}
	TRY(poll(fds, 1, -1));
	TRY(read(wall, &times, 8));
	say("times %lu", (unsigned long)times);
	TRY(read(mono, &times, 8));
	/* What has expired stays so when the clock goes back. */
	set.it_value = from_now(CLOCK_REALTIME, 50);
	TRY(timerfd_settime(wall, TFD_TIMER_ABSTIME, &set, 0));
	step(100);
	TRY(poll(fds, 1, -1));
	step(-200);
	TRY(poll(fds, 1, 0));
	TRY(read(wall, &times, 8));
	say("times %lu", (unsigned long)times);
	TRY(read(wall, &times, 8));
	/* One that repeats expires again at the same time of the clock. */
	for (int back = 40; back <= 200; back += 160) {
		set = (struct itimerspec){ { 20, 0 }, from_now(CLOCK_REALTIME, 50) };
		TRY(timerfd_settime(wall, TFD_TIMER_ABSTIME, &set, 0));
		step(100);
		TRY(poll(fds, 1, -1));
		step(-back);
		TRY(poll(fds, 1, 0));
		TRY(read(wall, &times, 8));
		say("times %lu", (unsigned long)times);
		timerfd_gettime(wall, &got);
		say("again in %ld", (long)(got.it_value.tv_sec + 2) / 5 * 5);
		step(back - 100);
		TRY(poll(fds, 1, 0));
	}
	MUST(fcntl(wall, F_SETFL, 0));
	set = (struct itimerspec){ { 20, 0 }, from_now(CLOCK_REALTIME, 50) };
	TRY(timerfd_settime(wall, TFD_TIMER_ABSTIME, &set, 0));
	step(100);
	TRY(poll(fds, 1, -1));
	step(-100);
	TRY(read(wall, &times, 8));
	int status;
	MUST(waitpid(child, &status, 0));
	step(-4800);
	close(wall);
	close(told);
	close(mono);
}

static void timers(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, 0);
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	timer_t timer;
	MUST(timer_create(CLOCK_REALTIME, &event, &timer));
	struct itimerspec at = { { 0, 0 }, from_now(CLOCK_REALTIME, 3600) }, got;
	TRY(timer_settime(timer, TIMER_ABSTIME, &at, 0));
	step(600);
	timer_gettime(timer, &got);
	HOLDS(got.it_value.tv_sec > 2000 && got.it_value.tv_sec <= 3000);
	step(3600);
	siginfo_t info;
	TRY(sigwaitinfo(&set, &info));
	step(-4200);
	timer_delete(timer);
	/* A span does not follow the clock. */
	MUST(timer_create(CLOCK_REALTIME, &event, &timer));
	at.it_value = (struct timespec){ 3600, 0 };
	TRY(timer_settime(timer, 0, &at, 0));
	step(600);
	timer_gettime(timer, &got);
	HOLDS(got.it_value.tv_sec > 3000);
	step(-600);
	/* 2^31 seconds are a time as any other. */
	long far = 0x7fffffff - from_now(CLOCK_REALTIME, 0).tv_sec;
	step(far);
	at.it_value = (struct timespec){ 0x80000001, 0 };
	TRY(timer_settime(timer, TIMER_ABSTIME, &at, 0));
	TRY(sigwaitinfo(&set, &info));
	HOLDS(from_now(CLOCK_REALTIME, 0).tv_sec >= 0x80000001);
	step(-far);
	timer_delete(timer);
}

static void steering(void)
{
	struct timex x = { 0 }, y;
	HOLDS(adjtimex(&x) >= 0);
	say("tick %ld, tolerance %ld", x.tick, x.tolerance);
	x.modes = ADJ_OFFSET | ADJ_FREQUENCY | ADJ_MAXERROR | ADJ_ESTERROR | ADJ_STATUS | ADJ_TIMECONST | ADJ_TICK;
	HOLDS(adjtimex(&x) >= 0);
	x.modes = ADJ_TICK;
	x.tick = 8999;
	TRY(adjtimex(&x));
	x.tick = 11001;
	TRY(adjtimex(&x));
	x.modes = 0x8000;
	TRY(adjtimex(&x));
	x.modes = ADJ_MAXERROR | ADJ_ESTERROR | ADJ_NANO;
	x.maxerror = 1234;
	x.esterror = 567;
	HOLDS(adjtimex(&x) >= 0);
	y = (struct timex){ 0 };
	HOLDS(adjtimex(&y) >= 0);
	HOLDS(y.maxerror >= 1234 && y.maxerror < 1000000);
	say("estimated error %ld, nanoseconds %d", y.esterror, !!(y.status & STA_NANO));
	x = (struct timex){ .modes = ADJ_TAI, .constant = 37 };
	HOLDS(adjtimex(&x) >= 0);
	HOLDS(llabs(clock_ns(CLOCK_TAI) - clock_ns(CLOCK_REALTIME) - 37000000000LL) < 30000000000LL);
	x.constant = 0;
	HOLDS(adjtimex(&x) >= 0 && x.tai == 0);
	long long before = clock_ns(CLOCK_REALTIME);
	x = (struct timex){ .modes = ADJ_SETOFFSET | ADJ_NANO, .time = { 100, 999999999 } };
	HOLDS(syscall(SYS_clock_adjtime, CLOCK_REALTIME, &x) >= 0);
	HOLDS(clock_ns(CLOCK_REALTIME) - before >= 100000000000LL);
	x = (struct timex){ .modes = ADJ_SETOFFSET | ADJ_MICRO, .time = { -101, 1 } };
	HOLDS(adjtimex(&x) >= 0);
	HOLDS(clock_ns(CLOCK_REALTIME) - before < 90000000000LL);
	x = (struct timex){ .modes = ADJ_SETOFFSET, .time = { 1, 1000000 } };
	TRY(adjtimex(&x));
	x = (struct timex){ 0 };
	TRY(syscall(SYS_clock_adjtime, CLOCK_MONOTONIC, &x));
	TRY(syscall(SYS_clock_adjtime, 99, &x));
	TRY(syscall(SYS_clock_adjtime, CLOCK_REALTIME, 8));
	TRY(syscall(SYS_adjtimex, 8));
}

/* What the wall clock gains in a second, in 1/1000, and whether that is `about` so much whenever the clocks were read. */
static int gains(int about)
{
	long long raw[4], wall[2];
	for (int i = 0; i < 2; i++) {
		raw[2 * i] = clock_ns(CLOCK_MONOTONIC_RAW);
		wall[i] = clock_ns(CLOCK_REALTIME);
		raw[2 * i + 1] = clock_ns(CLOCK_MONOTONIC_RAW);
		if (!i)
			sleep_ms(1000);
	}
	double gone = wall[1] - wall[0], least = raw[2] - raw[1], most = raw[3] - raw[0];
	return gone >= least * (1000 + about - 40) / 1000 && gone <= most * (1000 + about + 40) / 1000;
}

static void slewing(void)
{
	HOLDS(gains(0));
	struct timex x = { .modes = ADJ_TICK, .tick = 11000 };
	HOLDS(adjtimex(&x) >= 0 && x.tick == 11000);
	HOLDS(gains(100));
	/* The vDSO and the kernel say the same, and neither goes back. */
	int back = 0;
	for (int i = 0; i < 20000; i++) {
		struct timespec t;
		long long before = clock_ns(CLOCK_REALTIME);
		clock_gettime(CLOCK_REALTIME, &t);
		back += ns(t) < before || clock_ns(CLOCK_REALTIME) < ns(t);
	}
	say("went back %d times", back);
	/* A wait ends when the clock shows its time, not before. */
	struct timespec t = from_now(CLOCK_REALTIME, 1);
	TRY(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, 0));
	HOLDS(clock_ns(CLOCK_REALTIME) >= ns(t));
	x = (struct timex){ .modes = ADJ_TICK, .tick = 9000 };
	HOLDS(adjtimex(&x) >= 0);
	HOLDS(gains(-100));
	t = from_now(CLOCK_REALTIME, 1);
	TRY(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, 0));
	HOLDS(clock_ns(CLOCK_REALTIME) >= ns(t));
	int fd = MUST(timerfd_create(CLOCK_REALTIME, 0));
	struct itimerspec set = { { 0, 0 }, from_now(CLOCK_REALTIME, 1) };
	MUST(timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &set, 0));
	uint64_t times = 0;
	x.tick = 10000;
	HOLDS(adjtimex(&x) >= 0 && x.tick == 10000);
	TRY(read(fd, &times, 8));
	HOLDS(clock_ns(CLOCK_REALTIME) >= ns(set.it_value));
	close(fd);
	HOLDS(gains(0));
	x = (struct timex){ .modes = ADJ_FREQUENCY, .freq = 100 << 16 };
	HOLDS(adjtimex(&x) >= 0);
	say("frequency %ld", x.freq);
	x.freq = 1000 << 16;
	HOLDS(adjtimex(&x) >= 0);
	say("frequency %ld", x.freq);
	x.freq = -1L << 62;
	TRY(adjtimex(&x));
	x.freq = 0;
	HOLDS(adjtimex(&x) >= 0 && x.freq == 0);
	struct timeval by = { 1, 0 }, left;
	TRY(adjtime(&by, &left));
	say("left %ld.%06ld", (long)left.tv_sec, (long)left.tv_usec);
	TRY(adjtime(0, &left));
	HOLDS(left.tv_sec == 1 || left.tv_sec == 0 && left.tv_usec > 900000);
	by = (struct timeval){ -1, 0 };
	TRY(adjtime(&by, 0));
	TRY(adjtime(0, &left));
	HOLDS(left.tv_sec == -1 || left.tv_sec == 0 && left.tv_usec < -900000);
	by = (struct timeval){ 0, 0 };
	TRY(adjtime(&by, 0));
	TRY(adjtime(0, &left));
	say("left %ld.%06ld", (long)left.tv_sec, (long)left.tv_usec);
	HOLDS(gains(0));
}

/* A leap second: a second comes twice, and CLOCK_TAI goes on. */
static void leap(void)
{
	struct timespec t = from_now(CLOCK_REALTIME, 0), end;
	end = (struct timespec){ t.tv_sec + 86400 - t.tv_sec % 86400, 0 };
	t = (struct timespec){ end.tv_sec - 6, 0 };
	long long mono = clock_ns(CLOCK_MONOTONIC);
	MUST(clock_settime(CLOCK_REALTIME, &t));
	struct timex x = { .modes = ADJ_STATUS, .status = STA_INS };
	HOLDS(adjtimex(&x) >= 0);
	HOLDS(x.status & STA_INS);
	/* With the leap second a wait for one second after midnight takes a second more. */
	end.tv_sec += 1;
	TRY(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &end, 0));
	HOLDS(clock_ns(CLOCK_REALTIME) >= ns(end));
	HOLDS(clock_ns(CLOCK_MONOTONIC) - mono >= 7900000000LL);
	x = (struct timex){ 0 };
	HOLDS(adjtimex(&x) >= 0);
	say("tai %d", x.tai);
	x = (struct timex){ .modes = ADJ_STATUS, .status = STA_PLL };
	HOLDS(adjtimex(&x) >= 0);
	x.status = 0;
	HOLDS(adjtimex(&x) >= 0);
	x = (struct timex){ .modes = ADJ_TAI };
	HOLDS(adjtimex(&x) >= 0 && x.tai == 0);
}

int main(void)
{
	alarm(600);
	long long offset = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
	errors();
	steps();
	waits();
	timer_files();
	timers();
	steering();
	slewing();
	leap();
	/* As it was, for who runs next. */
	long long right = clock_ns(CLOCK_MONOTONIC) + offset;
	struct timespec t = { right / 1000000000, right % 1000000000 };
	TRY(clock_settime(CLOCK_REALTIME, &t));
	return 0;
}
