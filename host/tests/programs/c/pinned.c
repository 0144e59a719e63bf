/* Pages that the kernel or another process reads and writes while their owner stores to them and
   forks: every store and every write stays. Argument: seconds. */
#include "say.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#define BOTH (PROT_READ | PROT_WRITE)
#define PAGES 8
/* Words of a page: the owner's, and where each writer begins. */
#define OWN 0
#define WRITERS 2
#define WRITER(n) (64 + 192 * (n))
#define WORDS 128

static volatile uint64_t *memory;
static struct shared {
	atomic_int stop;
	atomic_long lost;
} *shared;

/* Writes runs of words to a process's memory, and reads each back. */
static void write_to(pid_t owner, int number)
{
	static uint64_t sent[WORDS], found[WORDS];
	for (uint64_t value = 1; !atomic_load(&shared->stop); value++) {
		volatile uint64_t *to = memory + value % PAGES * (PAGE / 8) + WRITER(number);
		struct iovec here = { sent, sizeof sent }, there = { (void *)to, sizeof sent };
		for (int i = 0; i < WORDS; i++)
			sent[i] = value;
		if (process_vm_writev(owner, &here, 1, &there, 1, 0) != sizeof sent)
			_exit(2);
		here.iov_base = found;
		if (process_vm_readv(owner, &here, 1, &there, 1, 0) != sizeof sent)
			_exit(3);
		if (memcmp(sent, found, sizeof sent))
			atomic_fetch_add(&shared->lost, 1);
	}
	_exit(0);
}

static void read_from(pid_t owner)
{
	static char buffer[PAGES * PAGE];
	struct iovec here = { buffer, sizeof buffer }, there = { (void *)memory, sizeof buffer };
	while (!atomic_load(&shared->stop))
		if (process_vm_readv(owner, &here, 1, &there, 1, 0) != sizeof buffer)
			_exit(4);
	_exit(0);
}

static void *fork_on(void *unused)
{
	while (!atomic_load(&shared->stop)) {
		pid_t child = MUST(fork());
		if (child == 0)
			_exit(0);
		MUST(waitpid(child, 0, 0));
	}
	return unused;
}

static void storm(double seconds, int forks)
{
	pid_t owner = getpid(), children[WRITERS + 1];
	int count = 0, failed = 0;
	long lost = 0;
	pthread_t thread;
	atomic_store(&shared->stop, 0);
	atomic_store(&shared->lost, 0);
	for (int number = 0; number < WRITERS; number++)
		if ((children[count++] = MUST(fork())) == 0)
			write_to(owner, number);
	if ((children[count++] = MUST(fork())) == 0)
		read_from(owner);
	if (forks)
		pthread_create(&thread, 0, fork_on, 0);
	uint64_t stored[PAGES] = { 0 };
	for (int page = 0; page < PAGES; page++)
		memory[page * (PAGE / 8) + OWN] = 0;
	for (double end = now() + seconds; now() < end;)
		for (int i = 0; i < 20000; i++) {
			volatile uint64_t *word = memory + i % PAGES * (PAGE / 8) + OWN;
			lost += *word != stored[i % PAGES];
			*word = ++stored[i % PAGES];
		}
	atomic_store(&shared->stop, 1);
	if (forks)
		pthread_join(thread, 0);
	while (count-- > 0) {
		int status;
		MUST(waitpid(children[count], &status, 0));
		failed += status != 0;
	}
	say("%s forks: %ld stores lost, %ld writes lost, %d children failed", forks ? "with" : "without", lost,
	    atomic_load(&shared->lost), failed);
}

int main(int count, char **words)
{
	double seconds = count > 1 ? atof(words[1]) : 2;
	memory = MUST(mmap(0, PAGES * PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	shared = MUST(mmap(0, PAGE, BOTH, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	storm(seconds, 0);
	storm(seconds, 1);
	return 0;
}
