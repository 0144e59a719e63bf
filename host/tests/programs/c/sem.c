/* System V semaphores: values, waiting and its order, what is undone, and when a set goes. */
#include "say.h"
#include "blocked.h"
#include <pthread.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/sem.h>

#ifndef SEM_STAT_ANY
#define SEM_STAT_ANY 20
#endif

union semun {
	int val;
	struct semid_ds *buf;
	unsigned short *array;
	struct seminfo *info;
};

static int id;
static struct semid_ds ds;

static key_t key(int n)
{
	return 0x0ebc0000 + (getpid() & 0xff) * 256 + n;
}

static int get(int n)
{
	return semctl(id, n, GETVAL);
}

static int set(int n, int value)
{
	return semctl(id, n, SETVAL, (union semun){ .val = value });
}

static int op(int n, int change, int flags)
{
	struct sembuf one = { n, change, flags };
	return semop(id, &one, 1);
}

static int two(int n, int a, int m, int b, int flags)
{
	struct sembuf both[2] = { { n, a, flags }, { m, b, flags } };
	return semop(id, both, 2);
}

static void state(void)
{
	memset(&ds, 0xff, sizeof ds);
	MUST(semctl(id, 0, IPC_STAT, (union semun){ .buf = &ds }));
}

static void numbers_and_keys(void)
{
	key_t mine = key(1);
	TRY(semget(mine, 2, 0600));
	TRY(semget(mine, 0, IPC_CREAT | 0600));
	TRY(semget(IPC_PRIVATE, 0, 0600));
	TRY(semget(IPC_PRIVATE, -1, 0600));
	TRY(semget(IPC_PRIVATE, 32001, 0600));
	DO(id = semget(mine, 3, IPC_CREAT | IPC_EXCL | 0640));
	TRY(semget(mine, 3, IPC_CREAT | IPC_EXCL | 0600));
	TRY(semget(mine, 4, IPC_CREAT | 0600));
	TRY(semget(mine, -1, 0));
	HOLDS(semget(mine, 0, 0) == id && semget(mine, 3, IPC_CREAT) == id && semget(mine, 1, IPC_EXCL) == id);
	state();
	HOLDS(ds.sem_perm.__key == mine && ds.sem_ctime != 0 && ds.sem_otime == 0);
	say("mode %o nsems %lu uid %d cgid %d", ds.sem_perm.mode, ds.sem_nsems, ds.sem_perm.uid == geteuid(),
	    ds.sem_perm.cgid == getegid());
	ds.sem_perm.mode = 07123;
	ds.sem_nsems = 1;
	TRY(semctl(id, 0, IPC_SET, (union semun){ .buf = &ds }));
	state();
	say("mode %o nsems %lu", ds.sem_perm.mode, ds.sem_nsems);
	ds.sem_perm.uid = -1;
	TRY(semctl(id, 0, IPC_SET, (union semun){ .buf = &ds }));
	TRY(semctl(id, 7, IPC_RMID));
	TRY(semctl(id, 0, IPC_RMID));
	TRY(semctl(id, 0, GETVAL));
	TRY(op(0, 1, 0));
	TRY(semget(mine, 0, 0));
}

static void what_is_refused(void)
{
	struct sembuf many[501] = { { 0, 0, 0 } };
	unsigned short values[3] = { 1, 2, 32768 };
	struct timespec bad = { 0, 1000000000 }, negative = { -1, 0 };
	id = MUST(semget(IPC_PRIVATE, 3, 0600));
	TRY(semctl(-1, 0, GETVAL));
	TRY(semctl(-1, 0, IPC_INFO, 0));
	TRY(semctl(id + 32768 * 7, 0, GETVAL));
	TRY(semctl(id, 3, GETVAL));
	TRY(semctl(id, -1, GETVAL));
	TRY(semctl(id, 3, SETVAL, (union semun){ .val = 1 }));
	TRY(semctl(id, 0, SETVAL, (union semun){ .val = 32768 }));
	TRY(semctl(id, 0, SETVAL, (union semun){ .val = -1 }));
	TRY(semctl(-5, 0, SETVAL, (union semun){ .val = -1 }));
	TRY(semctl(id, 9, GETPID));
	TRY(semctl(id, 9, GETNCNT));
	TRY(semctl(id, 9, GETZCNT));
	TRY(semctl(id, 0, 99));
	TRY(semctl(id, 0, -1));
	TRY(semctl(id, 0, IPC_STAT, (union semun){ .buf = 0 }));
	TRY(semctl(id, 0, IPC_SET, (union semun){ .buf = 0 }));
	TRY(semctl(id, 0, GETALL, (union semun){ .array = 0 }));
	TRY(semctl(id, 0, SETALL, (union semun){ .array = 0 }));
	TRY(semctl(id, 0, SETALL, (union semun){ .array = values }));
	TRY(get(0));
	TRY(semop(id, many, 0));
	TRY(semop(-1, many, 1));
	TRY(semop(id, 0, 1));
	TRY(semop(id, many, 501));
	TRY(semop(id, many, 500));
	TRY(semop(id, many, (size_t)-1));
	TRY(op(3, 1, 0));
	TRY(op(65535, 1, 0));
	TRY(two(0, 1, 3, 1, 0));
	TRY(op(0, -1, IPC_NOWAIT));
	TRY(op(0, 32767, 0));
	TRY(op(0, 1, 0));
	TRY(op(0, 0, IPC_NOWAIT));
	TRY(op(0, -32768, IPC_NOWAIT));
	TRY(two(0, -7, 1, -1, IPC_NOWAIT));
	TRY(get(0));
	TRY(semtimedop(id, many, 1, &bad));
	TRY(semtimedop(id, many, 1, &negative));
	TRY(semtimedop(id, many, 1, (void *)-1));
	TRY(semtimedop(id, 0, 1, &bad));
	TRY(semtimedop(id, many, 501, &bad));
	TRY(semctl(id, 0, IPC_RMID));
}

static void values(void)
{
	unsigned short all[3] = { 5, 0, 32767 }, found[3];
	id = MUST(semget(IPC_PRIVATE, 3, 0600));
	HOLDS(get(0) == 0 && get(1) == 0 && get(2) == 0 && semctl(id, 0, GETPID) == 0);
	TRY(semctl(id, 99, SETALL, (union semun){ .array = all }));
	TRY(semctl(id, -99, GETALL, (union semun){ .array = found }));
	HOLDS(!memcmp(all, found, sizeof all));
	HOLDS(semctl(id, 1, GETPID) == getpid());
	struct sembuf three[3] = { { 0, -5, 0 }, { 1, 4, 0 }, { 0, 0, 0 } };
	IN_CHILD("who adds", TRY(semop(id, three, 3)));
	HOLDS(semctl(id, 1, GETPID) != getpid() && semctl(id, 2, GETPID) == getpid());
	say("%d %d %d", get(0), get(1), get(2));
	state();
	HOLDS(ds.sem_otime != 0);
	/* In one call each operation sees those before it. */
	TRY(two(0, 3, 0, -3, IPC_NOWAIT));
	TRY(two(0, -3, 0, 3, IPC_NOWAIT));
	TRY(two(1, -4, 1, 0, IPC_NOWAIT));
	TRY(two(1, 1, 1, 0, IPC_NOWAIT));
	TRY(get(1));
	TRY(semctl(id, 0, IPC_RMID));
}

static void on_alarm(int n)
{
	(void)n;
}

static void timeouts_and_signals(void)
{
	struct sembuf one = { 0, -1, 0 };
	struct timespec none = { 0, 0 }, some = { 0, 30000000 };
	struct sigaction act = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	id = MUST(semget(IPC_PRIVATE, 1, 0600));
	TRY(semtimedop(id, &one, 1, &none));
	double before = now();
	TRY(semtimedop(id, &one, 1, &some));
	HOLDS(now() - before >= 0.03);
	sigaction(SIGUSR1, &act, 0);
	pid_t parent = getpid(), child = MUST(fork());
	if (!child) {
		while (semctl(id, 0, GETNCNT) != 1)
			sched_yield();
		kill(parent, SIGUSR1);
		_exit(0);
	}
	/* It never starts again, whatever the handler's flags. */
	TRY(semop(id, &one, 1));
	MUST(waitpid(child, 0, 0));
	TRY(semctl(id, 0, GETNCNT));
	TRY(get(0));
	TRY(semctl(id, 0, IPC_RMID));
}

/* A child that does two operations and then says who it is. */
static pid_t waiter(const char *name, int out, int n, int a, int m, int b)
{
	pid_t child = MUST(fork());
	if (!child) {
		int r = m < 0 ? op(n, a, 0) : two(n, a, m, b, 0);
		char line[64];
		int length = snprintf(line, sizeof line, "%s: %d %s\n", name, r, r < 0 ? strerrorname_np(errno) : "");
		write(out, line, length);
		_exit(0);
	}
	until_blocked(child);
	return child;
}

static void collect(int from, int count)
{
	char line[64];
	while (count--) {
		int n = 0;
		while (n < 63 && read(from, line + n, 1) == 1 && line[n++] != '\n')
			;
		line[n ? n - 1 : 0] = 0;
		say("%s", line);
	}
}

static void order(void)
{
	int p[2];
	MUST(pipe(p));
	id = MUST(semget(IPC_PRIVATE, 2, 0600));
	waiter("a wants 2", p[1], 0, -2, -1, 0);
	waiter("b wants 1", p[1], 0, -1, -1, 0);
	waiter("c wants 2", p[1], 0, -2, -1, 0);
	say("%d wait to take, %d for zero", semctl(id, 0, GETNCNT), semctl(id, 0, GETZCNT));
	TRY(op(0, 1, 0));
	collect(p[0], 1);
	TRY(op(0, 2, 0));
	collect(p[0], 1);
	TRY(set(0, 5));
	collect(p[0], 1);
	TRY(get(0));

	/* A lock: zero, then one. */
	TRY(set(0, 1));
	waiter("d locks", p[1], 0, 0, 0, 1);
	waiter("e waits for zero", p[1], 0, 0, -1, 0);
	waiter("f locks and lets g go", p[1], 0, 0, 1, 1);
	waiter("g", p[1], 1, -1, -1, 0);
	say("%d %d %d %d", semctl(id, 0, GETNCNT), semctl(id, 0, GETZCNT), semctl(id, 1, GETNCNT), semctl(id, 1, GETZCNT));
	TRY(op(0, -1, 0));
	say("d holds it: %d, %d wait", get(0), semctl(id, 0, GETZCNT));
	int both = 0;
	/* d and e are told in one go, and may say so in either order. */
	while (both < 2) {
		char c;
		if (read(p[0], &c, 1) == 1 && c == '\n')
			both++;
	}
	TRY(op(0, -1, 0));
	say("%d %d", get(0), get(1));
	both = 0;
	while (both < 2) {
		char c;
		if (read(p[0], &c, 1) == 1 && c == '\n')
			both++;
	}
	/* Which operation a call waits for. */
	TRY(set(0, 0));
	TRY(set(1, 0));
	waiter("h", p[1], 0, -1, 1, -1);
	say("%d %d", semctl(id, 0, GETNCNT), semctl(id, 1, GETNCNT));
	TRY(op(0, 1, 0));
	say("%d %d value %d", semctl(id, 0, GETNCNT), semctl(id, 1, GETNCNT), get(0));
	/* It goes, and those that wait are told. */
	TRY(semctl(id, 0, IPC_RMID));
	collect(p[0], 1);
	while (wait(0) > 0)
		;
}

static void *undo_in_thread(void *unused)
{
	(void)unused;
	TRY(op(0, -1, SEM_UNDO));
	return 0;
}


static void undone(void)
{
	id = MUST(semget(IPC_PRIVATE, 2, 0600));
	TRY(set(0, 10));
	IN_CHILD("who takes 3", { TRY(op(0, -3, SEM_UNDO)); TRY(get(0)); });
	TRY(get(0));
	IN_CHILD("who is killed", { TRY(two(0, -3, 1, 2, SEM_UNDO)); raise(SIGKILL); });
	say("%d %d", get(0), get(1));
	IN_CHILD("who sets", { TRY(op(0, -3, SEM_UNDO)); TRY(set(0, 4)); });
	TRY(get(0));
	IN_CHILD("whose parent sets", { TRY(op(0, -3, SEM_UNDO)); IN_CHILD("other", TRY(set(0, 1))); });
	TRY(get(0));
	TRY(set(0, 32767));
	IN_CHILD("whose undo is too much", { TRY(op(0, -5, SEM_UNDO)); TRY(op(0, 4, 0)); TRY(op(0, -1, 0)); });
	TRY(get(0));
	TRY(set(0, 5));
	IN_CHILD("whose undo would be negative", { TRY(op(0, 3, SEM_UNDO)); TRY(op(0, -8, 0)); });
	TRY(get(0));
	IN_CHILD("who leaves bounds", {
		TRY(set(0, 0));
		TRY(op(0, 32767, SEM_UNDO));
		TRY(op(0, -32767, 0));
		TRY(op(0, 2, SEM_UNDO));
		TRY(get(0));
	});
	TRY(set(0, 9));
	/* A child of fork has nothing to undo. */
	IN_CHILD("a parent", { TRY(op(0, -1, SEM_UNDO)); IN_CHILD("a child", TRY(get(0))); TRY(get(0)); });
	TRY(get(0));
	/* Threads share it, until the last one ends. */
	IN_CHILD("two threads", {
		pthread_t other;
		pthread_create(&other, 0, undo_in_thread, 0);
		pthread_join(other, 0);
		TRY(get(0));
	});
	TRY(get(0));
	/* Exec keeps it. */
	IN_CHILD("who executes", {
		char number[16];
		snprintf(number, sizeof number, "%d", id);
		op(0, -2, SEM_UNDO);
		execl("/proc/self/exe", "sem", "value", number, (char *)0);
	});
	TRY(get(0));
	IN_CHILD("who unshares", { TRY(op(0, -2, SEM_UNDO)); TRY(unshare(CLONE_SYSVSEM)); TRY(get(0)); });
	/* A process waits for what is undone. */
	int p[2];
	MUST(pipe(p));
	TRY(set(0, 1));
	pid_t holder = MUST(fork());
	if (!holder) {
		char c;
		op(0, -1, SEM_UNDO);
		write(p[1], "!", 1);
		pause();
	}
	char c;
	read(p[0], &c, 1);
	waiter("who waits for one that is killed", p[1], 0, -1, -1, 0);
	kill(holder, SIGKILL);
	collect(p[0], 1);
	while (wait(0) > 0)
		;
	/* Undo of a set that is gone. */
	IN_CHILD("who removes it", { TRY(op(1, 1, SEM_UNDO)); TRY(semctl(id, 0, IPC_RMID)); });
}

static void all_together(void)
{
	struct seminfo before, after, limits;
	union semun to = { .info = &before };
	MUST(semctl(0, 0, SEM_INFO, to));
	id = MUST(semget(key(2), 7, IPC_CREAT | 0642));
	to.info = &after;
	int highest = MUST(semctl(0, 0, SEM_INFO, to));
	HOLDS(after.semusz == before.semusz + 1 && after.semaem == before.semaem + 7);
	to.info = &limits;
	HOLDS(semctl(0, 0, IPC_INFO, to) == highest);
	say("%d %d %d %d %d %d %d %d %d %d", limits.semmap, limits.semmni, limits.semmns, limits.semmnu, limits.semmsl,
	    limits.semopm, limits.semume, limits.semusz, limits.semvmx, limits.semaem);
	int found = 0, any = 0;
	for (int i = 0; i <= highest; i++) {
		union semun one = { .buf = &ds };
		int its = semctl(i, 0, SEM_STAT, one);
		found += its == id && ds.sem_nsems == 7;
		any += its >= 0 && semctl(i, 0, SEM_STAT_ANY, one) == its;
	}
	HOLDS(found == 1 && any >= 1);
	TRY(semctl(highest + 1, 0, SEM_STAT, (union semun){ .buf = &ds }));
	char line[512];
	FILE *file = fopen("/proc/sysvipc/sem", "r");
	fgets(line, sizeof line, file);
	say("[%s", line);
	while (fgets(line, sizeof line, file)) {
		unsigned k, number, mode, nsems, uid, gid, cuid, cgid;
		unsigned long otime, ctime;
		int n = sscanf(line, "%u %u %o %u %u %u %u %u %lu %lu", &k, &number, &mode, &nsems, &uid, &gid, &cuid, &cgid,
			       &otime, &ctime);
		if (number != id)
			continue;
		HOLDS(n == 10 && k == (unsigned)key(2) && ctime);
		say("%o %u %lu length %zu", mode, nsems, otime, strlen(line));
	}
	fclose(file);
	TRY(semctl(id, 0, IPC_RMID));
}

/* Many processes, one counter. */
static void contended(void)
{
	enum { CHILDREN = 8, TURNS = 300 };
	volatile int *shared = MUST(mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	id = MUST(semget(IPC_PRIVATE, 2, 0600));
	set(0, 1);
	for (int i = 0; i < CHILDREN; i++)
		if (!MUST(fork())) {
			for (int n = 0; n < TURNS; n++) {
				op(0, -1, SEM_UNDO);
				int seen = *shared;
				if (n % 16 == 0)
					sched_yield();
				*shared = seen + 1;
				op(0, 1, SEM_UNDO);
			}
			_exit(0);
		}
	while (wait(0) > 0)
		;
	say("%d of %d, value %d", *shared, CHILDREN * TURNS, get(0));
	TRY(semctl(id, 0, IPC_RMID));
}

int main(int n, char **words)
{
	if (n == 3) {
		id = atoi(words[2]);
		say("%s: %d", words[1], get(0));
		return 0;
	}
	/* On the host, what other processes have would be counted, too. Root can be apart. */
	unshare(CLONE_NEWIPC);
	numbers_and_keys();
	what_is_refused();
	values();
	timeouts_and_signals();
	order();
	undone();
	all_together();
	contended();
	return 0;
}
