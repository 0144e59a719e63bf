/* Many processes that change one file under locks of each kind, as databases do; some are killed. */
#include "say.h"
#include <pthread.h>
#include <sched.h>
#include <sys/file.h>

#define NAME "counter"
enum { WORKERS = 8, ROUNDS = 60, CELLS = 4, STYLES = 5 };

/* What SQLite locks: one byte each, and a range that readers share. */
enum { PENDING = 0x40000000, RESERVED = PENDING + 1, SHARED = PENDING + 2, SHARED_SIZE = 510 };

static const char *names[STYLES] = { "POSIX", "POSIX without waiting", "open files", "flock", "database" };

/* Known to all processes. */
static struct {
	int inside, wrong;
	int doomed[WORKERS];
	int made[WORKERS];
} *all;

static int lock(int fd, int command, int type, off_t start, off_t length)
{
	struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length };
	return fcntl(fd, command, &l);
}

static void must_lock(int fd, int command, int type, off_t start, off_t length)
{
	while (lock(fd, command, type, start, length) == -1) {
		if (errno != EAGAIN) {
			say("a lock fails: %s", strerrorname_np(errno));
			_exit(9);
		}
		sleep_ms(1);
	}
}

static void add_one(int fd, int cell)
{
	long value = 0;
	MUST(pread(fd, &value, sizeof value, cell * sizeof value));
	if (value % 3 == 0)
		sched_yield();
	value++;
	MUST(pwrite(fd, &value, sizeof value, cell * sizeof value));
}

/* As a database: shared, reserved, pending, exclusive; who cannot go on starts again. */
static void database(int fd, int cell)
{
	for (;; sleep_ms(1)) {
		if (lock(fd, F_SETLK, F_RDLCK, PENDING, 1) == -1)
			continue;
		int shared = lock(fd, F_SETLK, F_RDLCK, SHARED, SHARED_SIZE);
		MUST(lock(fd, F_SETLK, F_UNLCK, PENDING, 1));
		if (shared == -1)
			continue;
		if (lock(fd, F_SETLK, F_WRLCK, RESERVED, 1) == 0) {
			must_lock(fd, F_SETLK, F_WRLCK, PENDING, 1);
			/* Readers leave: no process becomes one while this byte is taken. */
			must_lock(fd, F_SETLK, F_WRLCK, SHARED, SHARED_SIZE);
			add_one(fd, cell);
			MUST(lock(fd, F_SETLK, F_RDLCK, SHARED, SHARED_SIZE));
			MUST(lock(fd, F_SETLK, F_UNLCK, PENDING, 2));
			MUST(lock(fd, F_SETLK, F_UNLCK, 0, 0));
			return;
		}
		MUST(lock(fd, F_SETLK, F_UNLCK, 0, 0));
	}
}

static void work(int style, int number)
{
	int fd = MUST(open(NAME, O_RDWR));
	for (int i = 0; i < ROUNDS; i++) {
		int cell = (i * 7 + number) % CELLS, width = sizeof(long);
		if (style < 3) {
			int command = style == 0 ? F_SETLKW : style == 1 ? F_SETLK : F_OFD_SETLKW;
			int undo = style == 2 ? F_OFD_SETLK : F_SETLK;
			/* A reader's look at all cells now and then. */
			if (i % 8 == 0) {
				must_lock(fd, command, F_RDLCK, 0, 0);
				MUST(lock(fd, undo, F_UNLCK, 0, 0));
			}
			must_lock(fd, command, F_WRLCK, cell * width, width);
			add_one(fd, cell);
			MUST(lock(fd, undo, F_UNLCK, cell * width, width));
		} else if (style == 3) {
			MUST(flock(fd, LOCK_EX));
			add_one(fd, cell);
			MUST(flock(fd, i % 2 ? LOCK_UN : LOCK_SH));
			if (i % 2 == 0)
				MUST(flock(fd, LOCK_UN));
		} else {
			database(fd, cell);
		}
	}
	_exit(0);
}

static void counted(int style)
{
	int fd = MUST(open(NAME, O_RDWR | O_CREAT | O_TRUNC, 0644)), ended = 0, status;
	long cells[CELLS] = { 0 }, sum = 0;
	MUST(pwrite(fd, cells, sizeof cells, 0));
	for (int i = 0; i < WORKERS; i++)
		if (MUST(fork()) == 0)
			work(style, i);
	while (wait(&status) > 0)
		ended += status == 0;
	MUST(pread(fd, cells, sizeof cells, 0));
	for (int i = 0; i < CELLS; i++)
		sum += cells[i];
	say("%s: %d ended well, sum %ld", names[style], ended, sum);
	close(fd);
}

/* Works until it is killed, or has done its rounds. */
static void doomed(int style, int number)
{
	int fd = MUST(open(NAME, O_RDWR));
	for (int i = 0; i < ROUNDS; i++) {
		if (style == 0)
			MUST(lock(fd, F_SETLKW, F_WRLCK, 10, 5));
		else if (style == 1)
			MUST(lock(fd, F_OFD_SETLKW, F_WRLCK, 10, 5));
		else
			MUST(flock(fd, LOCK_EX));
		int before = __atomic_exchange_n(&all->inside, number + 1, __ATOMIC_SEQ_CST);
		if (before && !__atomic_load_n(&all->doomed[before - 1], __ATOMIC_SEQ_CST))
			__atomic_fetch_add(&all->wrong, 1, __ATOMIC_SEQ_CST);
		if (i % 4 == 0)
			sched_yield();
		__atomic_store_n(&all->inside, 0, __ATOMIC_SEQ_CST);
		__atomic_fetch_add(&all->made[number], 1, __ATOMIC_SEQ_CST);
		if (style == 2)
			MUST(flock(fd, LOCK_UN));
		else
			MUST(lock(fd, style ? F_OFD_SETLK : F_SETLK, F_UNLCK, 12, 1));
		if (style != 2)
			MUST(lock(fd, style ? F_OFD_SETLK : F_SETLK, F_UNLCK, 0, 0));
	}
	_exit(0);
}

static void killed(int style)
{
	static const char *of[] = { "POSIX", "open files", "flock" };
	memset(all, 0, sizeof *all);
	int fd = MUST(open(NAME, O_RDWR)), status, odd = 0;
	pid_t pids[WORKERS];
	for (int i = 0; i < WORKERS; i++)
		if ((pids[i] = MUST(fork())) == 0)
			doomed(style, i);
	for (int i = 0; i < WORKERS; i += 2) {
		/* In the middle of its work, wherever that is. */
		while (__atomic_load_n(&all->made[i], __ATOMIC_SEQ_CST) < 3 + i)
			sleep_ms(1);
		__atomic_store_n(&all->doomed[i], 1, __ATOMIC_SEQ_CST);
		kill(pids[i], SIGKILL);
	}
	for (int i = 0; i < WORKERS; i++) {
		MUST(waitpid(pids[i], &status, 0));
		odd += i % 2 ? status != 0 : !(status == 0 || WIFSIGNALED(status));
	}
	say("%s: %d ended oddly, %d met another inside", of[style], odd, all->wrong);
	TRY(lock(fd, F_SETLK, F_WRLCK, 0, 0));
	TRY(lock(fd, F_OFD_SETLK, F_UNLCK, 0, 0));
	TRY(flock(fd, LOCK_EX | LOCK_NB));
	close(fd);
}

/* All of a crowd waits for one lock, is killed while it does, or gets it. */
static void crowd(void)
{
	enum { CROWD = 60 };
	int fd = MUST(open(NAME, O_RDWR)), status, got = 0, ended = 0;
	pid_t pids[CROWD];
	MUST(lock(fd, F_SETLK, F_WRLCK, 0, 0));
	for (int i = 0; i < CROWD; i++)
		if ((pids[i] = MUST(fork())) == 0) {
			int own = open(NAME, O_RDWR);
			_exit(lock(own, F_SETLKW, i % 3 ? F_RDLCK : F_WRLCK, i, 10) == 0 ? 0 : 1);
		}
	sleep_ms(20);
	for (int i = 0; i < CROWD; i += 2)
		kill(pids[i], SIGKILL);
	for (int i = 0; i < CROWD; i += 2) {
		MUST(waitpid(pids[i], &status, 0));
		ended += WIFSIGNALED(status);
	}
	MUST(lock(fd, F_SETLK, F_UNLCK, 0, 0));
	for (int i = 1; i < CROWD; i += 2) {
		MUST(waitpid(pids[i], &status, 0));
		got += status == 0;
	}
	say("a crowd: %d killed, %d got their locks", ended, got);
	close(fd);
}

static void find(int fd)
{
	int found = 0;
	for (int i = 0; i < 5000; i += 50) {
		struct flock l = { .l_type = F_RDLCK, .l_start = 10L * i + 3, .l_len = 10 };
		MUST(fcntl(fd, F_GETLK, &l));
		found += l.l_type == F_WRLCK && l.l_start == 10L * i && l.l_len == 5;
	}
	say("%d found", found);
}

/* Thousands of ranges of one owner, and files without number. */
static void many(void)
{
	int fd = MUST(open(NAME, O_RDWR));
	for (int i = 0; i < 5000; i++)
		MUST(lock(fd, F_SETLK, F_WRLCK, 10L * ((i * 7919L) % 5000), 5));
	IN_CHILD("looker", find(fd));
	for (int i = 0; i < 5000; i += 2)
		MUST(lock(fd, F_SETLK, F_WRLCK, 10L * i, 10));
	close(fd);
	TRY(lock(fd = MUST(open(NAME, O_RDWR)), F_SETLK, F_WRLCK, 0, 0));
	close(fd);
	char name[32];
	int fds[200];
	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof name, "many%d", i);
		fds[i] = MUST(open(name, O_RDWR | O_CREAT, 0644));
		MUST(flock(fds[i], LOCK_EX));
		MUST(lock(fds[i], F_SETLK, F_WRLCK, i, 1));
		unlink(name);
	}
	for (int i = 0; i < 200; i++)
		close(fds[i]);
	say("many files");
}

static void *closer(void *number)
{
	int *fd = number;
	for (int i = 0; i < 300; i++) {
		int copy = open(NAME, O_RDWR);
		if (copy != -1)
			close(copy);
	}
	return NULL;
}

/* A close by one thread while another one locks: nothing stays locked in the end. */
static void races(void)
{
	pthread_t thread;
	int fd = MUST(open(NAME, O_RDWR));
	pthread_create(&thread, NULL, closer, &fd);
	for (int i = 0; i < 300; i++) {
		int r = lock(fd, F_SETLK, F_WRLCK, i, 1);
		if (r == -1 && errno != EBADF)
			say("odd: %s", strerrorname_np(errno));
	}
	pthread_join(thread, NULL);
	close(MUST(open(NAME, O_RDWR)));
	IN_CHILD("looker", {
		int own = open(NAME, O_RDWR);
		TRY(lock(own, F_SETLK, F_WRLCK, 0, 0));
	});
	close(fd);
}

int main(void)
{
	all = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int style = 0; style < STYLES; style++)
		counted(style);
	for (int style = 0; style < 3; style++)
		killed(style);
	crowd();
	many();
	races();
	unlink(NAME);
	return 0;
}
