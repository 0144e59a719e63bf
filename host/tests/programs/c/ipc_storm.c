/* Many processes use semaphores and message queues of both kinds, wait, are interrupted, killed, and
   have what they wait at removed: `ipc_storm PROCESSES ROUNDS [SEED]`. In the end what was undone is
   undone, nothing is left, and its memory is back. `ipc_storm fill` makes queues until there is no room. */
#include "say.h"
#include <limits.h>
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>

#define SLOTS 4
#define VALUE 3

static int *sets, *queues;
static unsigned long *wrong;

static unsigned next(unsigned *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

static void check(int holds, const char *what)
{
	if (!holds) {
		__atomic_add_fetch(wrong, 1, __ATOMIC_RELAXED);
		say("wrong: %s, %s", what, strerrorname_np(errno));
	}
}

static int is_one_of(int error, const int *allowed)
{
	for (; *allowed; allowed++)
		if (error == *allowed)
			return 1;
	return 0;
}

#define ENDS(call, ...) do { const int allowed_[] = { EINVAL, EIDRM, EINTR, EAGAIN, ##__VA_ARGS__, 0 }; \
	check((call) != -1 || is_one_of(errno, allowed_), #call); } while (0)

static int new_set(void)
{
	int id = semget(IPC_PRIVATE, 3, 0600);
	unsigned short values[3] = { VALUE, VALUE, VALUE };
	check(id >= 0 && semctl(id, 0, SETALL, values) == 0, "semget");
	return id;
}

static int new_queue(void)
{
	int id = msgget(IPC_PRIVATE, 0600);
	struct msqid_ds ds;
	check(id >= 0 && msgctl(id, IPC_STAT, &ds) == 0, "msgget");
	ds.msg_qbytes = 40;
	check(msgctl(id, IPC_SET, &ds) == 0, "IPC_SET");
	return id;
}

static void replace(int *slot, int fresh, int (*remove)(int))
{
	check(remove(__atomic_exchange_n(slot, fresh, __ATOMIC_SEQ_CST)) == 0, "IPC_RMID");
}

static int remove_set(int id)
{
	return semctl(id, 0, IPC_RMID);
}

static int remove_queue(int id)
{
	return msgctl(id, IPC_RMID, 0);
}

static void nothing(int n)
{
	(void)n;
}

static void work(unsigned seed, int rounds, mqd_t posix)
{
	struct { long type; char text[64]; } message = { 1, "text" };
	struct sigaction act = { .sa_handler = nothing };
	/* A process that waits is interrupted before long. */
	struct itimerval often = { { 0, 3000 }, { 0, 3000 } };
	sigaction(SIGALRM, &act, 0);
	setitimer(ITIMER_REAL, &often, 0);
	for (int round = 0; round < rounds; round++) {
		int set = __atomic_load_n(&sets[next(&seed) % SLOTS], __ATOMIC_SEQ_CST);
		int queue = __atomic_load_n(&queues[next(&seed) % SLOTS], __ATOMIC_SEQ_CST);
		struct sembuf ops[3];
		int count = next(&seed) % 3 + 1;
		for (int i = 0; i < count; i++)
			ops[i] = (struct sembuf){ next(&seed) % 3, -(int)(next(&seed) % 3), SEM_UNDO };
		/* What a killed one gave would be taken away again from what may not be there. */
		int may_die = next(&seed) % 100 == 0;
		struct timespec soon = { 0, 500000 };
		switch (next(&seed) % 8) {
		case 0:
			if (next(&seed) % 8 == 0)
				replace(&sets[next(&seed) % SLOTS], new_set(), remove_set);
			if (next(&seed) % 8 == 0)
				replace(&queues[next(&seed) % SLOTS], new_queue(), remove_queue);
			break;
		case 1:
		case 2:
			if (semtimedop(set, ops, count, next(&seed) % 2 ? 0 : &soon) < 0) {
				ENDS(-1);
				break;
			}
			if (may_die)
				raise(SIGKILL);
			/* Back, each with what it took. */
			for (int i = 0; i < count; i++)
				ops[i].sem_op = -ops[i].sem_op;
			for (int i = 0; i < count; i++)
				if (ops[i].sem_op)
					while (semop(set, ops + i, 1) < 0 && errno == EINTR)
						;
			break;
		case 3:
			message.type = next(&seed) % 4 + 1;
			ENDS(msgsnd(queue, &message, next(&seed) % 30, 0));
			break;
		case 4:
			ENDS(msgrcv(queue, &message, 64, (long)(next(&seed) % 9) - 4, MSG_NOERROR));
			break;
		case 5:
			ENDS(msgrcv(queue, &message, 10, 0, IPC_NOWAIT), ENOMSG, E2BIG);
			break;
		case 6:
			ENDS(mq_send(posix, message.text, next(&seed) % 32, next(&seed) % 3));
			break;
		case 7:
			ENDS(mq_receive(posix, message.text, 64, 0));
			break;
		}
	}
	_exit(0);
}

static void end_all(void)
{
	int status, bad = 0, ended = 0;
	while (wait(&status) > 0) {
		ended++;
		bad += !(WIFEXITED(status) && !WEXITSTATUS(status)) && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	say("%d ended, %d of them badly, %lu calls went wrong", ended, bad, *wrong);
}

static long free_kib(void)
{
	char line[128];
	long kib = -1;
	FILE *file = fopen("/proc/meminfo", "r");
	while (fgets(line, sizeof line, file))
		if (sscanf(line, "MemFree: %ld", &kib) == 1)
			break;
	fclose(file);
	return kib;
}

/* What the CPUs hold in reserve counts as free, once they have given it back. */
static long settled_free_kib(long wanted)
{
	int knob = MUST(open("/proc/sys/vm/drop_caches", O_WRONLY));
	long kib = 0;
	for (int turn = 0; turn < 5000 && kib < wanted; turn++) {
		MUST(write(knob, "3", 1));
		sleep_ms(20);
		kib = free_kib();
	}
	close(knob);
	return kib;
}

static void fill(void)
{
	static struct { long type; char text[8192]; } message = { 1 };
	static int made[40000];
	memset(made, 1, sizeof made);
	long before = settled_free_kib(1);
	int n = 0, full = 0;
	while (n < 40000 && (made[n] = msgget(IPC_PRIVATE, 0600)) >= 0) {
		int id = made[n++];
		while (msgsnd(id, &message, 8192, IPC_NOWAIT) == 0)
			;
		if (errno == ENOMEM)
			break;
	}
	full = errno == ENOMEM;
	long took = before - free_kib();
	say("no memory: %d, some was taken: %d", full, took > 4096);
	TRY(semget(IPC_PRIVATE, 32000, 0600));
	for (int i = 0; i < n; i++)
		check(remove_queue(made[i]) == 0, "IPC_RMID");
	long left = before - settled_free_kib(before - 512);
	if (left > 512)
		say("%ld KiB are not back of %ld", left, took);
	int id;
	DO(id = semget(IPC_PRIVATE, 32000, 0600));
	TRY(semctl(id, 0, IPC_RMID));
	/* A POSIX queue counts for what it can hold, until its name is gone and no process has it
	 * open. */
	struct rlimit limit;
	struct mq_attr hundred = { .mq_maxmsg = 10, .mq_msgsize = 100 }, one = { .mq_maxmsg = 1, .mq_msgsize = 1 };
	MUST(getrlimit(RLIMIT_MSGQUEUE, &limit));
	say("limit %lu", limit.rlim_cur);
	limit.rlim_cur = 10 * (100 + 48 + 48);
	IN_CHILD("who has a limit", {
		MUST(setrlimit(RLIMIT_MSGQUEUE, &limit));
		mqd_t q = MUST(mq_open("/a", O_RDWR | O_CREAT, 0600, &hundred));
		TRY(mq_open("/b", O_RDWR | O_CREAT, 0600, &one));
		TRY(mq_unlink("/a"));
		TRY(mq_open("/b", O_RDWR | O_CREAT, 0600, &one));
		TRY(mq_close(q));
		hundred.mq_msgsize++;
		TRY(mq_open("/a", O_RDWR | O_CREAT, 0600, &hundred));
		DO(mq_open("/b", O_RDWR | O_CREAT, 0600, &one));
		TRY(mq_unlink("/b"));
	});
	/* As many POSIX queues as the limit lets one have, and again. */
	for (int turn = 0; turn < 2; turn++) {
		char name[32];
		struct mq_attr attr = { .mq_maxmsg = 10, .mq_msgsize = 8192 };
		int queues = 0;
		for (;; queues++) {
			snprintf(name, sizeof name, "/fill%d", queues);
			mqd_t q = mq_open(name, O_RDWR | O_CREAT, 0600, &attr);
			if (q < 0)
				break;
			mq_close(q);
		}
		say("%d queues, %s", queues, strerrorname_np(errno));
		while (queues--) {
			snprintf(name, sizeof name, "/fill%d", queues);
			check(mq_unlink(name) == 0, "mq_unlink");
		}
	}
}

int main(int argc, char **argv)
{
	char *shared = MUST(mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	wrong = (void *)shared;
	if (argc == 2) {
		fill();
		return *wrong != 0;
	}
	int processes = atoi(argv[1]), rounds = atoi(argv[2]);
	unsigned seed = argc > 3 ? atoi(argv[3]) : 1;
	sets = (int *)(shared + 64);
	queues = (int *)(shared + 128);
	struct seminfo sem_before, sem_after;
	struct msginfo msg_before, msg_after;
	semctl(0, 0, SEM_INFO, &sem_before);
	msgctl(0, MSG_INFO, (void *)&msg_before);
	for (int i = 0; i < SLOTS; i++) {
		sets[i] = new_set();
		queues[i] = new_queue();
	}
	char name[32];
	snprintf(name, sizeof name, "/storm-%d", getpid());
	struct mq_attr attr = { .mq_maxmsg = 3, .mq_msgsize = 32 };
	mqd_t posix = MUST(mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attr));
	MUST(mq_unlink(name));
	for (int i = 0; i < processes; i++)
		if (!MUST(fork()))
			work(seed * 1000 + i, rounds, posix);
	end_all();
	int other = 0;
	for (int i = 0; i < SLOTS; i++) {
		for (int n = 0; n < 3; n++)
			other += semctl(sets[i], n, GETVAL) != VALUE || semctl(sets[i], n, GETNCNT) || semctl(sets[i], n, GETZCNT);
		MUST(remove_set(sets[i]));
		MUST(remove_queue(queues[i]));
	}
	semctl(0, 0, SEM_INFO, &sem_after);
	msgctl(0, MSG_INFO, (void *)&msg_after);
	say("%d semaphores were not undone, %d sets, %d semaphores, %d queues, %d messages are left", other,
	    sem_after.semusz - sem_before.semusz, sem_after.semaem - sem_before.semaem, msg_after.msgpool - msg_before.msgpool,
	    msg_after.msgmap - msg_before.msgmap);
	return *wrong != 0;
}
