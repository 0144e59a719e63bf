/* Many processes attach, fork, store, remap, detach, remove and die at once: `shm_storm PROCESSES
   ROUNDS [SEED]`. In the end nothing is left, and what stayed attached kept its bytes. */
#include "say.h"
#include <sys/ipc.h>
#include <sys/shm.h>

#define SEGMENTS 8
#define MOST (32 * PAGE)

static int *ids;
static unsigned long *wrong;

static unsigned next(unsigned *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

static void check(int holds)
{
	if (!holds)
		__atomic_add_fetch(wrong, 1, __ATOMIC_RELAXED);
}

static void work(unsigned seed, int rounds)
{
	for (int round = 0; round < rounds; round++) {
		int slot = next(&seed) % SEGMENTS;
		int id = __atomic_load_n(&ids[slot], __ATOMIC_SEQ_CST);
		/* Segments come and go; who loses the race takes its own away again. */
		if (next(&seed) % 8 == 0) {
			int fresh = shmget(IPC_PRIVATE, (next(&seed) % 32 + 1) * PAGE, 0600);
			check(fresh >= 0);
			if (__atomic_compare_exchange_n(&ids[slot], &id, fresh, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
				check(id < 0 || shmctl(id, IPC_RMID, 0) == 0);
			else
				check(shmctl(fresh, IPC_RMID, 0) == 0);
			continue;
		}
		if (id < 0)
			continue;
		char *at = shmat(id, 0, 0);
		if (at == (void *)-1) {
			check(errno == EINVAL || errno == EIDRM);
			continue;
		}
		struct shmid_ds ds;
		check(shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_nattch >= 1);
		unsigned long size = ds.shm_segsz;
		/* Each process has bytes of its own in each page. */
		char *mine = at + next(&seed) % (size / PAGE) * PAGE + getpid() % PAGE;
		*mine = round;
		switch (next(&seed) % 5) {
		case 0: {
			pid_t child = fork();
			if (!child) {
				check(*mine == (char)round);
				*mine = round + 1;
				_exit(0);
			}
			check(child > 0 && waitpid(child, 0, 0) == child);
			check(*mine == (char)(round + 1));
			break;
		}
		case 1: {
			pid_t child = fork();
			if (!child)
				for (;;)
					*mine = round;
			kill(child, SIGKILL);
			check(waitpid(child, 0, 0) == child);
			break;
		}
		case 2:
			check(munmap(at, PAGE) == 0);
			if (size > PAGE)
				check(shmdt(at) == 0);
			continue;
		case 3: {
			char *more = shmat(id, 0, SHM_RDONLY);
			check(more != (void *)-1 && more[mine - at] == (char)round);
			check(shmdt(more) == 0);
			break;
		}
		}
		check(shmdt(at) == 0);
	}
}

int main(int n, char **words)
{
	int processes = atoi(words[1]), rounds = atoi(words[2]);
	unsigned seed = n > 3 ? atoi(words[3]) : 1;
	struct shm_info before, after;
	MUST(shmctl(0, SHM_INFO, (void *)&before));
	ids = MUST(mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	wrong = (void *)(ids + SEGMENTS + 8);
	for (int i = 0; i < SEGMENTS; i++)
		ids[i] = -1;
	for (int i = 0; i < processes; i++)
		if (!fork()) {
			work(seed * 1000 + i, rounds);
			_exit(0);
		}
	int ended = 0, status;
	while (wait(&status) > 0)
		ended += status == 0;
	for (int i = 0; i < SEGMENTS; i++)
		if (ids[i] >= 0)
			check(shmctl(ids[i], IPC_RMID, 0) == 0);
	MUST(shmctl(0, SHM_INFO, (void *)&after));
	say("%d ended well, %lu went wrong, %d segments and %ld pages are left", ended, *wrong,
	    after.used_ids - before.used_ids, after.shm_tot - before.shm_tot);
	return 0;
}
