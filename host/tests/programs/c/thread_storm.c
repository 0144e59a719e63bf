/* Threads that come and go, and many at the same time. */
#include "say.h"
#include <pthread.h>

static long done;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_here = PTHREAD_COND_INITIALIZER;
static int here, expected;

static void *brief(void *arg)
{
	__sync_fetch_and_add(&done, (long)arg);
	return NULL;
}

static void *waits(void *arg)
{
	pthread_mutex_lock(&lock);
	if (++here == expected)
		pthread_cond_broadcast(&all_here);
	while (here < expected)
		pthread_cond_wait(&all_here, &lock);
	pthread_mutex_unlock(&lock);
	return arg;
}

static void *makes(void *arg)
{
	pthread_t t;
	for (int i = 0; i < 50; i++)
		if (pthread_create(&t, NULL, brief, (void *)1) == 0)
			pthread_join(t, NULL);
	return arg;
}

int main(int argc, char **argv)
{
	int total = argc > 1 ? atoi(argv[1]) : 1000;
	expected = argc > 2 ? atoi(argv[2]) : 300;
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 64 << 10);
	pthread_t t[64];
	for (int i = 0; i < total; i += 50) {
		for (int k = 0; k < 50; k++)
			pthread_create(&t[k], &attr, brief, (void *)1);
		for (int k = 0; k < 50; k++)
			pthread_join(t[k], NULL);
	}
	say("%ld came and went", done);
	pthread_t *many = calloc(expected, sizeof *many);
	int made = 0;
	for (int i = 0; i < expected; i++)
		made += pthread_create(&many[i], &attr, waits, NULL) == 0;
	say("%d made", made);
	for (int i = 0; i < made; i++)
		pthread_join(many[i], NULL);
	say("%d were here at once", here);
	done = 0;
	for (int i = 0; i < 8; i++)
		pthread_create(&t[i], NULL, makes, NULL);
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	say("%ld made by 8 at once", done);
	/* the process ends while they run */
	for (int i = 0; i < 20; i++)
		pthread_create(&t[i], &attr, ({ void *f(void *a) { for (;;) ; return a; } f; }), NULL);
	return 17;
}
