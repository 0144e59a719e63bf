/* Mappings that take the place of others while threads use them: each access finds the old one or the new one.
 * Argument: "huge" for mappings of the pool of huge pages. */
#include "say.h"
#include <pthread.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/uio.h>

#define PAGES 64
#define BYTES (PAGES * PAGE)
#define BOTH (PROT_READ | PROT_WRITE)
#define TIMES 3000

#define HUGE_BYTES (8ul << 21)

static volatile char *place;
static unsigned long bytes = BYTES;
static int times = TIMES;
static volatile int over;
static volatile long faults;

static void fault(int number, siginfo_t *info, void *context)
{
	(void)context;
	say("signal %d, code %d", number, info->si_code);
	_exit(1);
}

/* Stores, which make faults wherever the mapping is new. */
static void *stores(void *seed)
{
	unsigned at = (unsigned)(long)seed;
	while (!over) {
		at = at * 1103515245 + 12345;
		place[(at >> 4) % bytes] = (char)at;
	}
	return 0;
}

/* Calls of the kernel that look at the mapping; counts those that find nothing. */
static void *looks(void *unused)
{
	(void)unused;
	char buffer[PAGE];
	unsigned char there[PAGES];
	while (!over) {
		struct iovec own = { buffer, sizeof buffer }, other = { (char *)place + PAGE, sizeof buffer };
		faults += mincore((char *)place, BYTES, there) != 0;
		faults += process_vm_readv(getpid(), &own, 1, &other, 1, 0) != sizeof buffer;
		faults += madvise((char *)place, BYTES, MADV_NORMAL) != 0;
		faults += msync((char *)place, BYTES, MS_ASYNC) != 0;
		faults += syscall(SYS_futex, place + 8, 1 /* wake */, 1, 0, 0, 0) < 0;
	}
	return 0;
}

static void beside(const char *name, void (*replace)(int turn))
{
	pthread_t threads[3];
	over = 0;
	faults = 0;
	for (long i = 0; i < 2; i++)
		pthread_create(&threads[i], 0, stores, (void *)(i + 1));
	pthread_create(&threads[2], 0, looks, 0);
	for (int turn = 0; turn < times; turn++)
		replace(turn);
	over = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], 0);
	say("%s: %ld calls found nothing", name, faults);
}

static void private(int turn)
{
	(void)turn;
	MUST(mmap((void *)place, BYTES, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
}

static void shared(int turn)
{
	(void)turn;
	MUST(mmap((void *)place, BYTES, BOTH, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
}

/* A part, of areas that lie beside each other. */
static void parts(int turn)
{
	size_t from = turn % (PAGES - 8) * PAGE;
	MUST(mmap((char *)place + from, 8 * PAGE, BOTH, (turn & 1 ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
}

static void moved(int turn)
{
	(void)turn;
	char *from = MUST(mmap(0, BYTES, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	MUST(mremap(from, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, place));
}

static void huge(int turn)
{
	(void)turn;
	MUST(mmap((void *)place, bytes, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_FIXED, -1, 0));
}

static int segment;

static void attached(int turn)
{
	(void)turn;
	MUST(shmat(segment, (void *)place, SHM_REMAP));
}

int main(int count, char **words)
{
	struct sigaction action = { .sa_sigaction = fault, .sa_flags = SA_SIGINFO };
	sigaction(SIGSEGV, &action, 0);
	sigaction(SIGBUS, &action, 0);
	if (count > 1 && !strcmp(words[1], "huge")) {
		bytes = HUGE_BYTES;
		times = 100;
		place = MUST(mmap(0, bytes, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0));
		beside("huge", huge);
		return 0;
	}
	place = MUST(mmap(0, BYTES, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	segment = MUST(shmget(IPC_PRIVATE, BYTES, 0600));
	beside("private", private);
	beside("shared", shared);
	beside("parts", parts);
	beside("moved", moved);
	beside("attached", attached);
	MUST(shmctl(segment, IPC_RMID, 0));
	return 0;
}
