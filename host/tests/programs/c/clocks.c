/* Clocks, sleeps and timers. */
#include "say.h"
#include <sys/resource.h>
#include <sys/times.h>

static volatile int fired, value;
static void on_timer(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	fired++;
	value = info->si_value.sival_int;
}

static int64_t ns(clockid_t clock)
{
	struct timespec t;
	return clock_gettime(clock, &t) ? -1 : t.tv_sec * 1000000000l + t.tv_nsec;
}

int main(void)
{
	clockid_t clocks[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID,
		CLOCK_MONOTONIC_RAW, CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME };
	for (int i = 0; i < 8; i++) {
		int64_t a = ns(clocks[i]), b = ns(clocks[i]);
		struct timespec res;
		say("clock %d: %s, resolution %s", clocks[i], a >= 0 && b >= a ? "advances" : "FAILS",
			clock_getres(clocks[i], &res) ? "fails" : res.tv_sec == 0 ? "known" : "odd");
	}
	int64_t last = ns(CLOCK_MONOTONIC), back = 0;
	for (int i = 0; i < 100000; i++) {
		int64_t t = ns(CLOCK_MONOTONIC);
		back += t < last;
		last = t;
	}
	say("%ld steps back", back);
	TRY(clock_gettime(99, &(struct timespec){ 0 }));
	TRY(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, (void *)8));
	struct timeval tv;
	time_t earlier = time(NULL);
	int64_t first = ns(CLOCK_REALTIME) / 1000000000;
	TRY(gettimeofday(&tv, NULL));
	HOLDS(tv.tv_sec >= earlier && tv.tv_sec <= time(NULL) + 1);
	HOLDS(tv.tv_sec >= first && tv.tv_sec <= ns(CLOCK_REALTIME) / 1000000000);
	HOLDS(tv.tv_sec > 1600000000);

	double t = now();
	sleep_ms(20);
	HOLDS(now() - t >= 0.02);
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += 15000000;
	if (until.tv_nsec >= 1000000000)
		until.tv_sec++, until.tv_nsec -= 1000000000;
	TRY(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL));
	HOLDS(ns(CLOCK_MONOTONIC) >= until.tv_sec * 1000000000l + until.tv_nsec);
	TRY(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &(struct timespec){ 1, 0 }, NULL));
	TRY(nanosleep(&(struct timespec){ 0, 0 }, NULL));
	TRY(nanosleep(&(struct timespec){ 0, 1000000000 }, NULL));
	TRY(nanosleep(&(struct timespec){ -1, 0 }, NULL));
	TRY(syscall(SYS_nanosleep, (void *)8, NULL));
	TRY(usleep(1000));
	/* A guest also counts the time for which its host keeps it waiting, which is seldom long. */
	int64_t cpu, slept = 40000000;
	for (int tries = 0; tries < 100 && slept >= 40000000; tries++) {
		cpu = ns(CLOCK_PROCESS_CPUTIME_ID);
		sleep_ms(50);
		slept = ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	}
	HOLDS(slept < 40000000);
	cpu = ns(CLOCK_PROCESS_CPUTIME_ID);
	for (volatile int i = 0; i < 3000000; i++)
		;
	HOLDS(ns(CLOCK_PROCESS_CPUTIME_ID) - cpu > 100000);
	int64_t own = ns(CLOCK_THREAD_CPUTIME_ID);
	HOLDS(own <= ns(CLOCK_PROCESS_CPUTIME_ID) + 50000000);
	struct tms tms;
	HOLDS(times(&tms) > 0 && tms.tms_utime >= 0);
	struct rusage u;
	TRY(getrusage(RUSAGE_SELF, &u));
	HOLDS(u.ru_utime.tv_sec + u.ru_utime.tv_usec + u.ru_stime.tv_usec > 0);
	HOLDS(u.ru_maxrss > 0 && u.ru_minflt > 0);
	TRY(getrusage(RUSAGE_CHILDREN, &u));
	TRY(getrusage(7, &u));
	IN_CHILD("busy", for (volatile int i = 0; i < 30000000; i++));
	TRY(getrusage(RUSAGE_CHILDREN, &u));
	HOLDS(u.ru_utime.tv_sec * 1000000 + u.ru_utime.tv_usec > 1000);

	struct itimerval it = { { 0, 10000 }, { 0, 10000 } }, old;
	signal(SIGALRM, ({ void f(int s) { (void)s; fired++; } f; }));
	TRY(setitimer(ITIMER_REAL, &it, NULL));
	TRY(getitimer(ITIMER_REAL, &old));
	HOLDS(old.it_interval.tv_usec == 10000 && old.it_value.tv_usec <= 10000);
	while (fired < 5)
		sleep_ms(1);
	it = (struct itimerval){ 0 };
	TRY(setitimer(ITIMER_REAL, &it, &old));
	HOLDS(old.it_interval.tv_usec == 10000);
	fired = 0;
	sleep_ms(40);
	say("fired %d after it was stopped", fired);
	TRY(setitimer(9, &it, NULL));
	it.it_value.tv_usec = 1000000;
	TRY(setitimer(ITIMER_REAL, &it, NULL));

	timer_t timer;
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 4711 };
	struct sigaction a = { .sa_sigaction = on_timer, .sa_flags = SA_SIGINFO };
	sigaction(SIGUSR1, &a, NULL);
	TRY(timer_create(CLOCK_MONOTONIC, &ev, &timer));
	struct itimerspec spec = { { 0, 5000000 }, { 0, 5000000 } }, left;
	TRY(timer_settime(timer, 0, &spec, NULL));
	while (fired < 3)
		sleep_ms(1);
	say("value %d", value);
	TRY(timer_gettime(timer, &left));
	HOLDS(left.it_interval.tv_nsec == 5000000);
	HOLDS(timer_getoverrun(timer) >= 0);
	TRY(timer_delete(timer));
	TRY(timer_delete((timer_t)77));
	fired = 0;
	sleep_ms(20);
	say("fired %d after it was deleted", fired);
	/* many sleepers wake in the order of their times */
	int p[2];
	MUST(pipe(p));
	char order[7] = "";
	/* On a busy machine, one that woke may be kept from writing until the next one has. */
	for (int tries = 0; tries < 50 && strcmp(order, "543210"); tries++) {
		/* Forks take time, too, so all of them wait for moments that are set before. */
		double start = now() + 0.2;
		for (int i = 0; i < 6; i++)
			if (MUST(fork()) == 0) {
				double at = start + (6 - i) * 0.12;
				until = (struct timespec){ at, (at - (time_t)at) * 1e9 };
				clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
				char c = '0' + i;
				MUST(write(p[1], &c, 1));
				_exit(0);
			}
		while (wait(NULL) > 0)
			;
		MUST(read(p[0], order, 6));
	}
	say("order %s", order);
	setenv("TZ", "UTC", 1);
	time_t fixed = 1700000000;
	char text[50];
	strftime(text, 50, "%F %T %Z", gmtime(&fixed));
	say("%s", text);
	return 0;
}
