/* System V message queues: types, sizes, waiting, and when a queue goes. */
#include "say.h"
#include "blocked.h"
#include <limits.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/msg.h>

#ifndef MSG_COPY
#define MSG_COPY 040000
#endif
#ifndef MSG_STAT_ANY
#define MSG_STAT_ANY 13
#endif

struct message {
	long type;
	char text[16384];
};

static int id;
static struct msqid_ds ds;
static struct message m;

static key_t key(int n)
{
	return 0x0ebd0000 + (getpid() & 0xff) * 256 + n;
}

static void state(void)
{
	memset(&ds, 0xff, sizeof ds);
	MUST(msgctl(id, IPC_STAT, &ds));
}

static int put(long type, const char *text, int flags)
{
	m.type = type;
	strcpy(m.text, text);
	return msgsnd(id, &m, strlen(text), flags);
}

/* Receives and says what. */
static void take(size_t room, long type, int flags)
{
	memset(&m, 0, sizeof m);
	errno = 0;
	ssize_t n = msgrcv(id, &m, room, type, flags);
	if (n < 0)
		say("room %zu type %ld flags %#x: %s", room, type, flags, strerrorname_np(errno));
	else
		say("room %zu type %ld flags %#x: %zd bytes of type %ld, %s", room, type, flags, n, m.type, m.text);
}

static void numbers_and_keys(void)
{
	key_t mine = key(1);
	TRY(msgget(mine, 0600));
	DO(id = msgget(mine, IPC_CREAT | IPC_EXCL | 0640));
	TRY(msgget(mine, IPC_CREAT | IPC_EXCL | 0600));
	HOLDS(msgget(mine, 0) == id && msgget(mine, IPC_CREAT) == id && msgget(mine, IPC_EXCL) == id);
	state();
	HOLDS(ds.msg_perm.__key == mine && ds.msg_ctime != 0 && ds.msg_stime == 0 && ds.msg_rtime == 0);
	say("mode %o %lu bytes of %lu, %lu messages, %d %d", ds.msg_perm.mode, ds.__msg_cbytes, ds.msg_qbytes,
	    ds.msg_qnum, ds.msg_lspid, ds.msg_lrpid);
	ds.msg_perm.mode = 07123;
	ds.msg_qnum = 7;
	ds.msg_qbytes = 1000;
	TRY(msgctl(id, IPC_SET, &ds));
	state();
	say("mode %o %lu bytes of %lu, %lu messages", ds.msg_perm.mode, ds.__msg_cbytes, ds.msg_qbytes, ds.msg_qnum);
	TRY(msgctl(id, IPC_RMID, 0));
	TRY(msgctl(id, IPC_RMID, 0));
	TRY(put(1, "x", 0));
	TRY(msgget(mine, 0));
	/* New queues do not get the number of the old one. */
	for (int i = 0; i < 3; i++) {
		int fresh = MUST(msgget(IPC_PRIVATE, 0600));
		HOLDS(fresh != id);
		TRY(msgctl(id, IPC_RMID, 0));
		MUST(msgctl(fresh, IPC_RMID, 0));
	}
}

static void what_is_refused(void)
{
	id = MUST(msgget(IPC_PRIVATE, 0600));
	m.type = 1;
	TRY(msgsnd(-1, &m, 1, 0));
	TRY(msgsnd(id + 32768 * 7, &m, 1, 0));
	TRY(msgsnd(id, &m, 8193, 0));
	TRY(msgsnd(id, &m, -1, 0));
	TRY(msgsnd(id, 0, 1, 0));
	TRY(msgsnd(id, (void *)-4, 1, 0));
	TRY(put(0, "x", 0));
	TRY(put(-1, "x", 0));
	TRY(put(LONG_MIN, "x", 0));
	TRY(msgrcv(-1, &m, 1, 0, IPC_NOWAIT));
	TRY(msgrcv(id, &m, -1, 0, IPC_NOWAIT));
	TRY(msgrcv(id, &m, 1, 0, IPC_NOWAIT));
	TRY(msgrcv(id, &m, 1, 0, MSG_COPY));
	TRY(msgrcv(id, &m, 1, 0, MSG_COPY | IPC_NOWAIT | MSG_EXCEPT));
	TRY(msgctl(-1, IPC_STAT, &ds));
	TRY(msgctl(id, IPC_STAT, 0));
	TRY(msgctl(id, IPC_SET, 0));
	TRY(msgctl(id, 99, &ds));
	TRY(msgctl(id, -1, &ds));
	/* What cannot be written is gone. */
	TRY(put(1, "lost", 0));
	TRY(msgrcv(id, 0, 10, 0, 0));
	state();
	say("%lu messages", ds.msg_qnum);
	TRY(msgctl(id, IPC_RMID, 0));
}

static void types(void)
{
	id = MUST(msgget(IPC_PRIVATE, 0600));
	const long kinds[] = { 3, 1, 2, 3, 1, 7, 2, LONG_MAX };
	for (int i = 0; i < 8; i++) {
		char text[16];
		snprintf(text, sizeof text, "number %d", i);
		MUST(put(kinds[i], text, 0));
	}
	take(100, 3, 0);
	take(100, 4, IPC_NOWAIT);
	take(100, -2, 0);
	take(100, 3, MSG_EXCEPT);
	take(100, -2, MSG_EXCEPT);
	take(3, 0, 0);
	take(3, 0, MSG_NOERROR);
	take(100, 1, MSG_COPY | IPC_NOWAIT);
	take(8, 1, MSG_COPY | IPC_NOWAIT);
	take(3, 0, MSG_COPY | IPC_NOWAIT);
	take(3, 0, MSG_COPY | IPC_NOWAIT | MSG_NOERROR);
	take(100, 9, MSG_COPY | IPC_NOWAIT);
	take(100, -1, MSG_COPY | IPC_NOWAIT);
	take(100, LONG_MIN, 0);
	take(100, -100, 0);
	take(100, LONG_MAX, 0);
	take(100, LONG_MIN, IPC_NOWAIT);
	TRY(put(5, "", 0));
	take(0, 0, 0);
	state();
	HOLDS(ds.msg_lspid == getpid() && ds.msg_lrpid == getpid() && ds.msg_stime && ds.msg_rtime);
	say("%lu bytes, %lu messages", ds.__msg_cbytes, ds.msg_qnum);
	TRY(msgctl(id, IPC_RMID, 0));
}

static void on_signal(int n)
{
	(void)n;
}

/* A child that does something and says what came of it. */
#define CHILD(out, what) ({ pid_t c_ = MUST(fork()); if (!c_) { errno = 0; long r_ = (what); int e_ = errno; char l_[128]; \
	write(out, l_, snprintf(l_, sizeof l_, "%s: %ld %s, type %ld %.16s\n", #what, r_, r_ < 0 ? strerrorname_np(e_) : "", m.type, m.text)); \
	_exit(0); } until_blocked(c_); c_; })

static void collect(int from)
{
	char line[256];
	int n = 0;
	while (n < 255 && read(from, line + n, 1) == 1 && line[n++] != '\n')
		;
	line[n ? n - 1 : 0] = 0;
	say("%s", line);
}

static void waiting(void)
{
	int p[2], other[2];
	MUST(pipe(p));
	MUST(pipe(other));
	id = MUST(msgget(IPC_PRIVATE, 0600));
	memset(&m, 0, sizeof m);
	pid_t first = CHILD(p[1], msgrcv(id, &m, 100, 2, 0));
	CHILD(other[1], msgrcv(id, &m, 2, -3, 0));
	CHILD(p[1], msgrcv(id, &m, 100, 5, MSG_EXCEPT));
	TRY(put(5, "five", 0));
	state();
	say("%lu messages", ds.msg_qnum);
	/* The second has no room, so the third gets it. */
	TRY(put(3, "three", 0));
	collect(other[0]);
	collect(p[0]);
	TRY(put(2, "two", 0));
	state();
	HOLDS(ds.msg_lrpid == first);
	collect(p[0]);
	take(100, 0, IPC_NOWAIT);
	take(100, 0, IPC_NOWAIT);

	/* A full queue: the small one fits before the large one does, which waits longer. */
	state();
	ds.msg_qbytes = 10;
	MUST(msgctl(id, IPC_SET, &ds));
	TRY(put(1, "12345678", 0));
	TRY(put(1, "abc", IPC_NOWAIT));
	TRY(put(1, "12345678901", IPC_NOWAIT));
	CHILD(p[1], put(1, "large....", 0));
	CHILD(p[1], put(2, "abc", 0));
	TRY(put(1, "ab", IPC_NOWAIT));
	take(100, 0, 0);
	collect(p[0]);
	take(100, 0, 0);
	take(100, 0, 0);
	collect(p[0]);
	take(100, 0, 0);
	take(100, 0, IPC_NOWAIT);
	/* As many empty ones as bytes. */
	int n = 0;
	while (put(1, "", IPC_NOWAIT) == 0)
		n++;
	say("%d empty ones, %s", n, strerrorname_np(errno));
	CHILD(p[1], put(1, "", 0));
	ds.msg_qbytes = 11;
	MUST(msgctl(id, IPC_SET, &ds));
	collect(p[0]);

	/* A signal ends a wait, whatever the handler's flags. */
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	sigaction(SIGUSR1, &act, 0);
	kill(CHILD(p[1], put(1, "x", 0)), SIGUSR1);
	collect(p[0]);
	kill(CHILD(p[1], msgrcv(id, &m, 100, 77, 0)), SIGUSR1);
	collect(p[0]);
	pid_t killed = CHILD(p[1], msgrcv(id, &m, 100, 78, 0));
	kill(killed, SIGKILL);
	int status;
	waitpid(killed, &status, 0);
	say_status("who is killed", status);
	/* It goes. */
	CHILD(p[1], msgrcv(id, &m, 100, 77, 0));
	TRY(msgctl(id, IPC_RMID, 0));
	collect(p[0]);
	id = MUST(msgget(IPC_PRIVATE, 0600));
	ds.msg_qbytes = 0;
	TRY(msgctl(id, IPC_SET, &ds));
	CHILD(p[1], put(1, "", 0));
	TRY(msgctl(id, IPC_RMID, 0));
	collect(p[0]);
	while (wait(0) > 0)
		;
}

static void all_together(void)
{
	struct msginfo before, after, limits;
	MUST(msgctl(0, MSG_INFO, (void *)&before));
	id = MUST(msgget(key(2), IPC_CREAT | 0642));
	MUST(put(1, "abc", 0));
	MUST(put(1, "de", 0));
	int highest = MUST(msgctl(0, MSG_INFO, (void *)&after));
	HOLDS(after.msgpool == before.msgpool + 1 && after.msgmap == before.msgmap + 2 && after.msgtql == before.msgtql + 5);
	memset(&limits, 0, sizeof limits);
	HOLDS(msgctl(0, IPC_INFO, (void *)&limits) == highest);
	say("%d %d %d %d %d %d %d %d", limits.msgpool, limits.msgmap, limits.msgmax, limits.msgmnb, limits.msgmni,
	    limits.msgssz, limits.msgtql, limits.msgseg);
	int found = 0, any = 0;
	for (int i = 0; i <= highest; i++) {
		int its = msgctl(i, MSG_STAT, &ds);
		found += its == id && ds.msg_qnum == 2;
		any += its >= 0 && msgctl(i, MSG_STAT_ANY, &ds) == its;
	}
	HOLDS(found == 1 && any >= 1);
	TRY(msgctl(highest + 1, MSG_STAT, &ds));
	char line[512];
	FILE *file = fopen("/proc/sysvipc/msg", "r");
	fgets(line, sizeof line, file);
	say("[%s", line);
	while (fgets(line, sizeof line, file)) {
		unsigned k, number, mode, lspid, lrpid, uid, gid, cuid, cgid;
		unsigned long cbytes, qnum, stime, rtime, ctime;
		int n = sscanf(line, "%u %u %o %lu %lu %u %u %u %u %u %u %lu %lu %lu", &k, &number, &mode, &cbytes, &qnum, &lspid,
			       &lrpid, &uid, &gid, &cuid, &cgid, &stime, &rtime, &ctime);
		if (number != id)
			continue;
		HOLDS(n == 14 && k == (unsigned)key(2) && lspid == getpid() && stime && ctime);
		say("%o %lu %lu %u %lu length %zu", mode, cbytes, qnum, lrpid, rtime, strlen(line));
	}
	fclose(file);
	TRY(msgctl(id, IPC_RMID, 0));
}

/* Many senders and receivers: each message comes once. */
static void storm(void)
{
	enum { PAIRS = 4, TURNS = 400 };
	volatile long *sums = MUST(mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	id = MUST(msgget(IPC_PRIVATE, 0600));
	state();
	ds.msg_qbytes = 64;
	MUST(msgctl(id, IPC_SET, &ds));
	for (int i = 0; i < PAIRS; i++) {
		if (!MUST(fork())) {
			for (long n = 1; n <= TURNS; n++) {
				char text[16] = "";
				memset(text, 'a', n % 15);
				put(i + 1, text, 0);
			}
			_exit(0);
		}
		if (!MUST(fork())) {
			long bytes = 0;
			for (long n = 1; n <= TURNS; n++)
				bytes += msgrcv(id, &m, 100, i + 1, 0);
			__sync_fetch_and_add(sums, bytes);
			_exit(0);
		}
	}
	while (wait(0) > 0)
		;
	long expected = 0;
	for (long n = 1; n <= TURNS; n++)
		expected += PAIRS * (n % 15);
	state();
	say("%ld bytes of %ld, %lu left", *sums, expected, ds.msg_qnum);
	TRY(msgctl(id, IPC_RMID, 0));
}

int main(void)
{
	/* On the host, what other processes have would be counted, too. Root can be apart. */
	unshare(CLONE_NEWIPC);
	numbers_and_keys();
	what_is_refused();
	types();
	waiting();
	all_together();
	storm();
	return 0;
}
