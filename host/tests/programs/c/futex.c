/* The futex call itself. */
#include "say.h"
#include "blocked.h"
#include <linux/futex.h>
#include <pthread.h>

static long futex(uint32_t *word, int op, uint32_t value, void *timeout, uint32_t *word2, uint32_t value3)
{
	return syscall(SYS_futex, word, op, value, timeout, word2, value3);
}

static uint32_t a, b;
static int woken;
static uint32_t bits_seen;
static pid_t tids[6];

static void *waiter(void *arg)
{
	__atomic_store_n(&tids[(long)arg], gettid(), __ATOMIC_SEQ_CST);
	if (futex(&a, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0) == 0)
		__sync_fetch_and_add(&woken, 1);
	return NULL;
}

static void *bit_waiter(void *arg)
{
	long bit = 1l << (long)arg;
	__atomic_store_n(&tids[(long)arg], gettid(), __ATOMIC_SEQ_CST);
	if (futex(&a, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, NULL, bit) == 0)
		__sync_fetch_and_or(&bits_seen, bit);
	return NULL;
}

/* Waits until the first threads have said their numbers, and sleep. */
static void all_wait(int count)
{
	for (int i = 0; i < count; i++) {
		pid_t tid;
		while (!(tid = __atomic_load_n(&tids[i], __ATOMIC_SEQ_CST)))
			sched_yield();
		until_state(getpid(), tid, 'S');
		tids[i] = 0;
	}
}

static void settle(int *value, int want)
{
	for (int i = 0; i < 300000 && __atomic_load_n(value, __ATOMIC_SEQ_CST) < want; i++)
		sleep_ms(1);
}

int main(void)
{
	struct timespec soon = { 0, 10000000 }, bad = { 0, 1000000000 }, past = { 1, 0 };
	TRY(futex(&a, FUTEX_WAIT, 1, NULL, NULL, 0));
	TRY(futex(&a, FUTEX_WAIT, 0, &soon, NULL, 0));
	TRY(futex(&a, FUTEX_WAIT_PRIVATE, 0, &soon, NULL, 0));
	TRY(futex(&a, FUTEX_WAIT, 0, &bad, NULL, 0));
	TRY(futex(&a, FUTEX_WAIT, 0, (void *)8, NULL, 0));
	TRY(futex(&a, FUTEX_WAIT_BITSET, 0, &past, NULL, ~0u));
	TRY(futex(&a, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &past, NULL, ~0u));
	TRY(futex(&a, FUTEX_WAIT_BITSET, 0, &past, NULL, 0));
	TRY(futex((uint32_t *)((char *)&a + 1), FUTEX_WAIT, 0, &soon, NULL, 0));
	TRY(futex((uint32_t *)8, FUTEX_WAIT, 0, &soon, NULL, 0));
	TRY(futex((uint32_t *)0x7ffffffff000, FUTEX_WAIT, 0, &soon, NULL, 0));
	TRY(futex((uint32_t *)0xffff800000000000, FUTEX_WAKE, 1, NULL, NULL, 0));
	TRY(futex(&a, FUTEX_WAKE, 1, NULL, NULL, 0));
	TRY(futex(&a, FUTEX_WAKE_BITSET, 1, NULL, NULL, 0));
	TRY(futex(&a, 99, 1, NULL, NULL, 0));

	pthread_t t[6];
	for (long i = 0; i < 6; i++)
		pthread_create(&t[i], NULL, waiter, (void *)i);
	all_wait(6);
	TRY(futex(&a, FUTEX_WAKE_PRIVATE, 2, NULL, NULL, 0));
	settle(&woken, 2);
	say("woken %d", woken);
	TRY(futex(&a, FUTEX_CMP_REQUEUE_PRIVATE, 1, (void *)2, &b, 5));
	TRY(futex(&a, FUTEX_CMP_REQUEUE_PRIVATE, 1, (void *)2, &b, 0));
	settle(&woken, 3);
	say("woken %d", woken);
	TRY(futex(&a, FUTEX_REQUEUE_PRIVATE, 0, (void *)1, &a, 0));
	TRY(futex(&a, FUTEX_REQUEUE_PRIVATE, 0, (void *)100, &b, 0));
	TRY(futex(&a, FUTEX_WAKE_PRIVATE, 100, NULL, NULL, 0));
	a = 5;
	/* b: set 4 to 7, and wake one more if it was 4 */
	b = 4;
	TRY(futex(&a, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, &b, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 4)));
	say("b is %u", b);
	settle(&woken, 4);
	TRY(futex(&a, FUTEX_WAKE_OP_PRIVATE, 1, (void *)100, &b, FUTEX_OP(FUTEX_OP_OR, 8, FUTEX_OP_CMP_LT, 3)));
	say("b is %u", b);
	TRY(futex(&b, FUTEX_WAKE_PRIVATE, 100, NULL, NULL, 0));
	for (int i = 0; i < 6; i++)
		pthread_join(t[i], NULL);
	say("woken %d", woken);

	/* An unknown test changes the word and wakes no thread, an unknown operation does neither. A count of 0 wakes one. */
	a = b = woken = 0;
	for (long i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, waiter, (void *)i);
	all_wait(2);
	TRY(futex(&a, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, &b, FUTEX_OP(FUTEX_OP_ADD, 3, 6, 0)));
	say("b is %u", b);
	TRY(futex(&a, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, &b, FUTEX_OP(5, 3, FUTEX_OP_CMP_EQ, 3)));
	say("b is %u", b);
	TRY(futex(&a, FUTEX_WAKE_OP_PRIVATE, 0, (void *)0, &b, FUTEX_OP(FUTEX_OP_SET, 4, FUTEX_OP_CMP_EQ, 4)));
	say("b is %u", b);
	TRY(futex(&a, FUTEX_WAKE_PRIVATE, 100, NULL, NULL, 0));
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	say("woken %d", woken);

	a = 0;
	for (long i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, bit_waiter, (void *)i);
	all_wait(4);
	TRY(futex(&a, FUTEX_WAKE_BITSET_PRIVATE, 100, NULL, NULL, 5));
	pthread_join(t[0], NULL);
	pthread_join(t[2], NULL);
	say("bits %x", bits_seen);
	TRY(futex(&a, FUTEX_WAKE_PRIVATE, 100, NULL, NULL, 0));
	pthread_join(t[1], NULL);
	pthread_join(t[3], NULL);

	/* between processes, by a shared page and by a file mapped at two places */
	uint32_t *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child = MUST(fork());
	if (child == 0)
		_exit(futex(shared, FUTEX_WAIT, 0, NULL, NULL, 0) == 0 ? 3 : 4);
	for (int i = 0; i < 150000 && futex(shared, FUTEX_WAKE, 1, NULL, NULL, 0) == 0; i++)
		sleep_ms(2);
	int status;
	MUST(waitpid(child, &status, 0));
	say_status("shared", status);
	int fd = MUST(open("word", O_RDWR | O_CREAT | O_TRUNC, 0600));
	ftruncate(fd, PAGE);
	uint32_t *one = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	uint32_t *two = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	child = MUST(fork());
	if (child == 0)
		_exit(futex(one, FUTEX_WAIT, 0, NULL, NULL, 0) == 0 ? 3 : 4);
	for (int i = 0; i < 150000 && futex(two, FUTEX_WAKE, 1, NULL, NULL, 0) == 0; i++)
		sleep_ms(2);
	MUST(waitpid(child, &status, 0));
	say_status("file", status);
	unlink("word");

	/* a robust mutex whose owner died */
	pthread_mutexattr_t attr;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_t *m = (void *)(shared + 16);
	pthread_mutex_init(m, &attr);
	IN_CHILD("owner", { pthread_mutex_lock(m); _exit(0); });
	say("%s", strerrorname_np(pthread_mutex_lock(m)));
	TRY(pthread_mutex_consistent(m));
	TRY(pthread_mutex_unlock(m));
	IN_CHILD("killed owner", { pthread_mutex_lock(m); raise(SIGKILL); });
	say("%s", strerrorname_np(pthread_mutex_lock(m)));

	/* a signal interrupts */
	signal(SIGALRM, ({ void f(int s) { (void)s; } f; }));
	struct sigaction act = { .sa_handler = ({ void f(int s) { (void)s; } f; }) };
	sigaction(SIGALRM, &act, NULL);
	alarm_once_asleep(30);
	TRY(futex(&a, FUTEX_WAIT, 0, NULL, NULL, 0));
	return 0;
}
