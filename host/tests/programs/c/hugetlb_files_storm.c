/* Processes take pages of the pool in every way there is: privately, from files and segments that all of them map, cut
 * and punch, from file systems that come and go, with threads and children, while all change the pool's size and fill
 * memory. A word of a shared page is 0 or what its place says; what is private stays what its owner wrote.
 * Arguments: workers, rounds of each, pages that the pool may have, seed. */
#include "pool.h"
#include "account.h"
#include <pthread.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define STEP 128
#define FILE_PAGES 6
/* The most workers. */
#define WORKERS 64
#define KEY 4711

static __thread sigjmp_buf refuge;
static __thread volatile sig_atomic_t guarded;
static uint64_t state;
static int number, wrong;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static int below(int limit)
{
	return (next() >> 20) % limit;
}

static void complain(const char *what)
{
	printf("worker %d: %s\n", number, what);
	wrong = 1;
}

static void give_up(int signal)
{
	if (guarded)
		siglongjmp(refuge, 1);
	printf("worker %d: signal %d\n", number, signal);
	_exit(2);
}

static uint64_t tag(int file, int page, size_t at)
{
	return ((uint64_t)(file + 1) << 48 | (uint64_t)(page + 1) << 32 | at) * 0x9e3779b97f4a7c15ULL;
}

/* Stores to all of a page of a shared file, or loads all; 0: it was there, 1: it could not be had. */
static int visit(char *map, int file, int page, int store)
{
	volatile uint64_t *words = (uint64_t *)(map + page * HUGE);

	if (sigsetjmp(refuge, 1)) {
		guarded = 0;
		return 1;
	}
	guarded = 1;
	for (size_t at = 0; at < HUGE / 8; at += STEP) {
		if (store) {
			words[at] = tag(file, page, at);
		} else {
			uint64_t word = words[at];

			if (word != 0 && word != tag(file, page, at)) {
				guarded = 0;
				complain("a shared page has another's bytes");
				return 0;
			}
		}
	}
	guarded = 0;
	return 0;
}

/* Stores a seed to a private page, all or nothing; 1: it could not be had. */
static int fill(char *page, uint64_t seed)
{
	volatile uint64_t *words = (uint64_t *)page;

	if (sigsetjmp(refuge, 1)) {
		guarded = 0;
		return 1;
	}
	guarded = 1;
	for (size_t at = 0; at < HUGE / 8; at += STEP)
		words[at] = seed + at;
	guarded = 0;
	return 0;
}

static int holds(const char *page, uint64_t seed)
{
	const uint64_t *words = (const uint64_t *)page;

	for (size_t at = 0; at < HUGE / 8; at += STEP)
		if (words[at] != seed + at)
			return 0;
	return 1;
}

struct half {
	char *map;
	int pages;
	uint64_t seed;
	int lost;
};

static void *fill_all(void *argument)
{
	struct half *half = argument;

	for (int page = 0; page < half->pages; page++)
		half->lost |= fill(half->map + page * HUGE, half->seed + page);
	return NULL;
}

/* Promised memory that two threads touch at the same time; moved, parted, shared with a child, advised away. */
static void private_memory(void)
{
	int pages = 1 + below(5), status;
	char *map = mmap(NULL, pages * HUGE, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_HUGETLB | MAP_PRIVATE, -1, 0);
	struct half half = {map, pages, next(), 0}, other = half;
	pthread_t thread;

	if (map == MAP_FAILED)
		return;
	int both = !pthread_create(&thread, NULL, fill_all, &half);
	fill_all(&other);
	if (both)
		pthread_join(thread, NULL);
	if (half.lost || other.lost)
		complain("a promised page is not there");
	if (below(2)) {
		char *room = mmap(NULL, (pages + 1) * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		char *target = (char *)(((uintptr_t)room + HUGE - 1) & ~(HUGE - 1));

		if (room != MAP_FAILED) {
			if (mremap(map, pages * HUGE, pages * HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target)
				map = target;
			else
				complain(errno == ENOMEM ? "no memory to move a mapping" : "a mapping does not move");
			if (target > room)
				munmap(room, target - room);
			munmap(target + pages * HUGE, room + HUGE - target);
		}
	}
	pid_t child = below(2) ? fork() : -1;
	if (child == 0) {
		/* The parent may take its pages back: then a signal ends the child. */
		signal(SIGBUS, SIG_DFL);
		for (int page = 0; page < pages; page++)
			if (!holds(map + page * HUGE, half.seed + page))
				_exit(1);
		if (below(2))
			fill(map, 5);
		_exit(0);
	}
	if (pages > 2 && below(2)) {
		munmap(map + HUGE, HUGE);
		if (!holds(map, half.seed) || !holds(map + 2 * HUGE, half.seed + 2))
			complain("a neighbour of what was unmapped changed");
	} else {
		for (int page = 0; page < pages; page++)
			if (fill(map + page * HUGE, half.seed + page))
				complain("an owner's store fails");
		for (int page = 0; page < pages; page++)
			if (!holds(map + page * HUGE, half.seed + page))
				complain("a private page changed");
	}
	if (below(3) == 0)
		madvise(map, HUGE, MADV_DONTNEED);
	if (child > 0 && waitpid(child, &status, 0) == child && status != 0 &&
	    !(WIFSIGNALED(status) && (WTERMSIG(status) == SIGBUS || WTERMSIG(status) == SIGKILL)))
		complain("a child sees other bytes");
	munmap(map, pages * HUGE);
}

/* A file that all workers cut, punch, extend and map. */
static void shared_file(int fd, int file)
{
	int first = below(FILE_PAGES), pages = 1 + below(FILE_PAGES - first);
	int private = below(4) == 0;
	char *map = mmap(NULL, pages * HUGE, PROT_READ | PROT_WRITE,
			 (private ? MAP_PRIVATE : MAP_SHARED) | (below(2) ? MAP_NORESERVE : 0), fd, first * HUGE);

	for (int turn = 0; turn < 6; turn++) {
		int page = below(FILE_PAGES);

		switch (below(7)) {
		case 0:
			if (ftruncate(fd, page * HUGE))
				complain("a file cannot be cut");
			break;
		case 1:
			fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, page * HUGE + below(2) * 4096,
				  (1 + below(3)) * HUGE);
			break;
		case 2:
			fallocate(fd, 0, page * HUGE, (1 + below(FILE_PAGES - page)) * HUGE);
			break;
		case 3:
			if (map != MAP_FAILED)
				madvise(map, pages * HUGE, below(2) ? MADV_DONTNEED : MADV_REMOVE);
			break;
		default:
			if (map != MAP_FAILED)
				/* The map begins at a page of the file: its tags do, too. */
				visit(map - first * HUGE, file, first + below(pages), below(2));
		}
	}
	if (map != MAP_FAILED)
		munmap(map, pages * HUGE);
}

static void segment(void)
{
	int id = shmget(KEY + below(3), (1 + below(3)) * HUGE, IPC_CREAT | SHM_HUGETLB | 0600);
	struct shmid_ds status;

	if (id < 0)
		return;
	char *map = shmat(id, NULL, 0);

	if (map != (char *)-1) {
		/* Which of the three it is: the key says. */
		if (!shmctl(id, IPC_STAT, &status)) {
			int file = 100 + status.shm_perm.__key;

			if (status.shm_perm.__key != IPC_PRIVATE)
				for (size_t page = 0; page < status.shm_segsz / HUGE; page++)
					visit(map, file & 0xfff, page, below(2));
		}
		if (below(4) == 0 && fork() == 0)
			_exit(0);
		shmdt(map);
	}
	if (below(3) == 0)
		shmctl(id, IPC_RMID, NULL);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

static void file_system(void)
{
	static const char *const options[] = {"", "size=4M", "size=8M,min_size=4M", "min_size=2M", "size=50%,nr_inodes=5"};
	char place[32], name[48];

	snprintf(place, sizeof place, "/storm%d", number);
	mkdir(place, 0700);
	if (mount("none", place, "hugetlbfs", 0, options[below(5)]))
		return;
	snprintf(name, sizeof name, "%s/f", place);
	int fd = open(name, O_CREAT | O_RDWR, 0600);

	if (fd < 0)
		complain("no file in a new file system");
	shared_file(fd, 50 + number);
	if (below(2))
		unlink(name);
	char *map = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	close(fd);
	if (umount2(place, MNT_DETACH))
		complain("a file system does not go");
	if (map != MAP_FAILED) {
		visit(map, 50 + number, 0, 1);
		munmap(map, HUGE);
	}
}

/* Ordinary memory, as much as there is or less. */
static void ordinary(void)
{
	size_t bytes = (size_t)(1 + below(24)) << 20;
	uint64_t seed = next(), *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (words == MAP_FAILED)
		return;
	for (size_t at = 0; at < bytes / 8; at += 512)
		words[at] = seed ^ at;
	for (size_t at = 0; at < bytes / 8; at += 512)
		if (words[at] != (seed ^ at)) {
			complain("an ordinary page changed");
			break;
		}
	munmap(words, bytes);
}

static int worker(int rounds, int most, int common, int memory)
{
	for (int round = 0; round < rounds; round++) {
		switch (below(9)) {
		case 0:
			write_knob(POOL, below(most + 1));
			break;
		case 1:
			write_knob(OVERCOMMIT, below(most / 2));
			break;
		case 2:
			file_system();
			break;
		case 3:
			segment();
			break;
		case 4:
			ordinary();
			break;
		case 5:
			shared_file(memory, 1);
			break;
		case 6:
			shared_file(common, 0);
			break;
		default:
			private_memory();
		}
	}
	while (wait(NULL) > 0)
		;
	return wrong;
}

static int storm(int workers, int rounds, int most, uint64_t seed)
{
	int status, bad = 0;
	pid_t ended, pids[WORKERS];

	mkdir("/storm", 0700);
	if (mount("none", "/storm", "hugetlbfs", 0, ""))
		perror("mount");
	int common = open("/storm/common", O_CREAT | O_RDWR, 0600), memory = memfd_create("common", MFD_HUGETLB);
	for (number = 0; number < workers; number++)
		if ((pids[number] = fork()) == 0) {
			state = (seed + number + 1) * 0x9e3779b97f4a7c15ULL;
			_exit(worker(rounds, most, common, memory));
		}
	/* Where memory is full the kernel ends one. Its children may have the files open. */
	while ((ended = wait(&status)) > 0)
		for (int worker = 0; worker < workers; worker++)
			if (pids[worker] == ended && status != 0 && status != SIGKILL) {
				printf("a worker ended with %x\n", status);
				bad = 1;
			}
	/* Its own file system is mounted still. */
	for (int worker = 0; worker < workers; worker++) {
		char place[32];

		snprintf(place, sizeof place, "/storm%d", worker);
		while (umount2(place, MNT_DETACH) == 0)
			;
	}
	close(common);
	close(memory);
	if (umount2("/storm", 0))
		perror("umount");
	for (int key = KEY; key < KEY + 3; key++)
		shmctl(shmget(key, 0, 0), IPC_RMID, NULL);
	write_knob(OVERCOMMIT, 0);
	write_knob(POOL, 0);
	counters(bad ? "WRONG" : "right");
	return bad;
}

int main(int argc, char **argv)
{
	int workers = argc > 1 ? atoi(argv[1]) : 4, rounds = argc > 2 ? atoi(argv[2]) : 40;
	int most = argc > 3 ? atoi(argv[3]) : 40, bad = 0;
	uint64_t seed = argc > 4 ? strtoull(argv[4], NULL, 0) : 1;
	struct sigaction action = {.sa_handler = give_up};

	if (workers > WORKERS)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGBUS, &action, NULL);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	struct account before = take_account();
	bad |= storm(workers, rounds / 4, most, seed);
	bad |= storm(workers, rounds, most, seed + 1000);
	return bad | settle(&before);
}
