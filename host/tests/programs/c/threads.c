/* POSIX threads: mutexes, conditions, barriers, thread-local storage, cancellation. */
#include "say.h"
#include <pthread.h>
#include <semaphore.h>

enum { THREADS = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static long counter, once_count, destroyed;
static __thread long own = 7;

static void *add(void *arg)
{
	for (int i = 0; i < 20000; i++) {
		pthread_mutex_lock(&lock);
		counter += (long)arg;
		pthread_mutex_unlock(&lock);
		own++;
	}
	return (void *)own;
}

static void mutexes(void)
{
	pthread_t t[THREADS];
	for (long i = 0; i < THREADS; i++)
		TRY(pthread_create(&t[i], NULL, add, (void *)(i + 1)));
	long sum = 0;
	for (int i = 0; i < THREADS; i++) {
		void *result;
		pthread_join(t[i], &result);
		sum += (long)result;
	}
	say("counter %ld, own values sum to %ld, mine is %ld", counter, sum, own);
	pthread_mutexattr_t attr;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_t m;
	pthread_mutex_init(&m, &attr);
	TRY(pthread_mutex_lock(&m));
	say("%s", strerrorname_np(pthread_mutex_lock(&m)));
	TRY(pthread_mutex_unlock(&m));
	say("%s", strerrorname_np(pthread_mutex_unlock(&m)));
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&m, &attr);
	TRY(pthread_mutex_lock(&m) | pthread_mutex_lock(&m) | pthread_mutex_unlock(&m) | pthread_mutex_unlock(&m));
	struct timespec t0 = { 1, 0 };
	pthread_mutex_init(&m, NULL);
	pthread_mutex_lock(&m);
	say("%s", strerrorname_np(pthread_mutex_timedlock(&m, &t0)));
	say("%s", strerrorname_np(pthread_mutex_trylock(&m)));
}

static int turn;

static void *take_turns(void *arg)
{
	long me = (long)arg;
	for (int round = 0; round < 500; round++) {
		pthread_mutex_lock(&lock);
		while (turn != me)
			pthread_cond_wait(&changed, &lock);
		turn = (turn + 1) % THREADS;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void conditions(void)
{
	pthread_t t[THREADS];
	for (long i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, take_turns, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	say("turn is %d again", turn);
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 20000000;
	if (until.tv_nsec >= 1000000000)
		until.tv_sec++, until.tv_nsec -= 1000000000;
	pthread_mutex_lock(&lock);
	say("%s", strerrorname_np(pthread_cond_timedwait(&changed, &lock, &until)));
	pthread_mutex_unlock(&lock);
}

static long steps[THREADS], serial;

static void *in_step(void *arg)
{
	long me = (long)arg;
	for (int round = 0; round < 200; round++) {
		steps[me]++;
		if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			serial++;
		for (int i = 0; i < THREADS; i++)
			if (steps[i] != steps[me])
				return "out of step";
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

static void barriers(void)
{
	pthread_barrier_init(&barrier, NULL, THREADS);
	pthread_t t[THREADS];
	for (long i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, in_step, (void *)i);
	int bad = 0;
	for (int i = 0; i < THREADS; i++) {
		void *result;
		pthread_join(t[i], &result);
		bad += result != NULL;
	}
	say("%ld steps, %ld serial, %d out of step", steps[0], serial, bad);
}

static void *read_or_write(void *arg)
{
	static long a, b;
	long wrong = 0;
	for (int i = 0; i < 2000; i++) {
		if ((long)arg < 2) {
			pthread_rwlock_wrlock(&rwlock);
			a++;
			sched_yield();
			b++;
		} else {
			pthread_rwlock_rdlock(&rwlock);
			wrong += a != b;
		}
		pthread_rwlock_unlock(&rwlock);
	}
	return (void *)wrong;
}

static void count_once(void) { once_count++; }
static void destroy(void *value) { __sync_fetch_and_add(&destroyed, (long)value); }

static void *keyed(void *arg)
{
	pthread_once(&once, count_once);
	pthread_setspecific(key, arg);
	sched_yield();
	return pthread_getspecific(key) == arg ? NULL : "lost";
}

static sem_t ready, go;
static int cleaned;
static void clean(void *arg) { (void)arg; cleaned++; }

static void *cancelled(void *arg)
{
	pthread_cleanup_push(clean, arg);
	sem_post(&ready);
	sem_wait(&go);
	pthread_cleanup_pop(0);
	return NULL;
}

static void *sleeper(void *arg)
{
	sem_post(&ready);
	for (;;)
		sleep(100);
	return arg;
}

static void *deep(void *arg)
{
	volatile char page[8 * PAGE];
	page[0] = page[sizeof page - 1] = 1;
	long n = (long)arg;
	return n ? (char *)deep((void *)(n - 1)) + page[0] : NULL;
}

static void *exits(void *arg) { pthread_exit((char *)arg + 1); }

int main(void)
{
	pthread_t t[THREADS], one;
	void *result;
	mutexes();
	conditions();
	barriers();
	long wrong = 0;
	for (long i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, read_or_write, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], &result), wrong += (long)result;
	say("%ld torn reads", wrong);
	pthread_key_create(&key, destroy);
	for (long i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, keyed, (void *)(i + 1));
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], &result), wrong += result != NULL;
	say("once %ld, destroyed %ld, lost %ld", once_count, destroyed, wrong);

	sem_init(&ready, 0, 0);
	sem_init(&go, 0, 0);
	pthread_create(&one, NULL, cancelled, NULL);
	sem_wait(&ready);
	TRY(pthread_cancel(one));
	TRY(pthread_join(one, &result));
	HOLDS(result == PTHREAD_CANCELED && cleaned == 1);
	pthread_create(&one, NULL, sleeper, NULL);
	sem_wait(&ready);
	TRY(pthread_cancel(one));
	TRY(pthread_join(one, &result));
	TRY(sem_trywait(&ready));

	pthread_attr_t attr;
	pthread_attr_init(&attr);
	TRY(pthread_attr_setstacksize(&attr, 4 << 20));
	TRY(pthread_create(&one, &attr, deep, (void *)100));
	TRY(pthread_join(one, &result));
	say("depth %ld", (long)result);
	pthread_create(&one, NULL, exits, (void *)41);
	pthread_join(one, &result);
	say("exits with %ld", (long)result);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	TRY(pthread_create(&one, &attr, keyed, (void *)100));
	for (int i = 0; i < 60000 && destroyed < 136; i++)
		sleep_ms(5);
	say("destroyed %ld", destroyed);

	/* a process ends as a whole, whichever thread ends it */
	IN_CHILD("thread that exits", {
		void *f(void *a) { _exit(5); return a; }
		pthread_create(&one, NULL, f, NULL);
		pause();
	});
	IN_CHILD("thread that crashes", {
		void *f(void *a) { *(volatile int *)16 = 1; return a; }
		pthread_create(&one, NULL, f, NULL);
		pause();
	});
	IN_CHILD("first thread that ends", {
		void *f(void *a) { sleep_ms(50); _exit(6); return a; }
		pthread_create(&one, NULL, f, NULL);
		pthread_exit(NULL);
	});
	IN_CHILD("fork in a thread", {
		void *f(void *a) { IN_CHILD("child of a thread", _exit(own)); return a; }
		pthread_create(&one, NULL, f, NULL);
		pthread_join(one, NULL);
	});
	HOLDS(syscall(SYS_gettid) == getpid());
	return 0;
}
