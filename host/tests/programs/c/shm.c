/* System V shared memory: numbers, keys, attachments, and when a segment goes. */
#include "say.h"
#include <sched.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#ifndef SHM_STAT_ANY
#define SHM_STAT_ANY 15
#endif

#define SIZE (3 * PAGE)
#define NONE ((void *)-1)

static int id;
static char *at;
static struct shmid_ds ds;

/* A key that no other program here has. */
static key_t key(int n)
{
	return 0x0ebb0000 + (getpid() & 0xff) * 256 + n;
}

static struct shmid_ds *state(int which)
{
	memset(&ds, 0xff, sizeof ds);
	MUST(shmctl(which, IPC_STAT, &ds));
	return &ds;
}

static void numbers_and_keys(void)
{
	key_t mine = key(1);
	TRY(shmget(mine, SIZE, 0600));
	TRY(shmget(mine, 0, IPC_CREAT | 0600));
	TRY(shmget(IPC_PRIVATE, 0, IPC_CREAT | 0600));
	TRY(shmget(IPC_PRIVATE, (size_t)-1, IPC_CREAT | 0600));
	TRY(shmget(IPC_PRIVATE, 1ul << 60, IPC_CREAT | 0600));
	DO(id = shmget(mine, SIZE - 10, IPC_CREAT | IPC_EXCL | 0640));
	TRY(shmget(mine, SIZE, IPC_CREAT | IPC_EXCL | 0600));
	TRY(shmget(mine, SIZE, IPC_CREAT | 0600));
	HOLDS(shmget(mine, SIZE - 10, 0600) == id);
	HOLDS(shmget(mine, 0, 0) == id);
	HOLDS(shmget(mine, 1, IPC_CREAT) == id);
	HOLDS(shmget(mine, 1, IPC_EXCL) == id);
	int other = MUST(shmget(IPC_PRIVATE, 1, 0600));
	HOLDS(other != id);
	state(id);
	HOLDS(ds.shm_perm.__key == mine && ds.shm_segsz == SIZE - 10);
	say("mode %o uid %d gid %d cuid %d", ds.shm_perm.mode, ds.shm_perm.uid == geteuid(),
	    ds.shm_perm.gid == getegid(), ds.shm_perm.cuid == geteuid());
	HOLDS(ds.shm_cpid == getpid() && ds.shm_lpid == 0);
	HOLDS(ds.shm_atime == 0 && ds.shm_dtime == 0 && ds.shm_ctime != 0 && ds.shm_nattch == 0);
	TRY(shmctl(other, IPC_RMID, 0));
	TRY(shmctl(other, IPC_RMID, 0));
	TRY(shmctl(other, IPC_STAT, &ds));
	HOLDS(shmat(other, 0, 0) == NONE && errno == EINVAL);
	int again = MUST(shmget(IPC_PRIVATE, 1, 0600));
	HOLDS(again != other);
	TRY(shmctl(again, IPC_RMID, 0));
	TRY(shmctl(id, IPC_RMID, 0));
	TRY(shmget(mine, 0, 0));
}

static void what_is_refused(void)
{
	id = MUST(shmget(IPC_PRIVATE, SIZE, 0600));
	TRY(shmat(-1, 0, 0));
	TRY(shmat(id + 32768 * 7, 0, 0));
	TRY(shmat(id, 0, SHM_REMAP));
	TRY(shmat(id, HOLE + 1, 0));
	TRY(shmat(id, (void *)1, SHM_RND | SHM_REMAP));
	TRY(shmat(id, (void *)-PAGE, 0));
	TRY(shmdt(HOLE));
	TRY(shmdt(HOLE + 1));
	TRY(shmdt(0));
	TRY(shmctl(-1, IPC_STAT, &ds));
	TRY(shmctl(id, IPC_STAT, 0));
	TRY(shmctl(id, IPC_SET, 0));
	TRY(shmctl(id, 99, &ds));
	TRY(shmctl(id, -1, &ds));
	TRY(syscall(SYS_shmctl, id, IPC_STAT | 0x100, &ds));
	TRY(shmctl(0, IPC_INFO, 0));
	TRY(shmctl(-1, IPC_INFO, &ds));
	HOLDS(state(id)->shm_nattch == 0 && ds.shm_lpid == 0 && ds.shm_dtime == 0);
	TRY(shmctl(id, IPC_RMID, 0));
}

static int maps(const char *what, char *line, size_t room)
{
	FILE *file = fopen("/proc/self/maps", "r");
	int found = 0;
	while (fgets(line, room, file))
		if (strstr(line, what)) {
			found++;
			break;
		}
	fclose(file);
	return found;
}

static void attachments(void)
{
	char line[512], name[64];
	id = MUST(shmget(key(2), SIZE - 10, IPC_CREAT | 0600));
	at = MUST(shmat(id, 0, 0));
	HOLDS(((uintptr_t)at & (PAGE - 1)) == 0);
	HOLDS(at[0] == 0 && at[SIZE - 1] == 0);
	strcpy(at, "hello");
	snprintf(name, sizeof name, "/SYSV%08x (deleted)", key(2));
	HOLDS(maps(name, line, sizeof line));
	unsigned long start, end, offset, inode;
	char rights[8], device[8];
	sscanf(line, "%lx-%lx %7s %lx %7s %lu", &start, &end, rights, &offset, device, &inode);
	say("%s %lx %s", rights, offset, device);
	HOLDS(start == (uintptr_t)at && end - start == SIZE && inode == (unsigned long)id);
	state(id);
	HOLDS(ds.shm_nattch == 1 && ds.shm_lpid == getpid() && ds.shm_atime != 0 && ds.shm_dtime == 0);

	/* A second one, elsewhere and read-only. */
	char *second = MUST(shmat(id, 0, SHM_RDONLY));
	HOLDS(second != at && !strcmp(second, "hello"));
	HOLDS(state(id)->shm_nattch == 2);
	TRY(mprotect(second, PAGE, PROT_READ | PROT_WRITE));
	TRY(mprotect(second, PAGE, PROT_READ));
	IN_CHILD("who stores to a read-only one", second[0] = 1);
	TRY(shmdt(second));
	TRY(shmdt(second));
	HOLDS(state(id)->shm_nattch == 1 && ds.shm_dtime != 0);

	/* At an address: free, taken, rounded, replaced. */
	char *room = MUST(mmap(0, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	memset(room, 7, 16 * PAGE);
	TRY(shmat(id, room, 0));
	TRY(shmat(id, room + 1, 0));
	TRY(munmap(room + PAGE, 3 * PAGE));
	HOLDS(shmat(id, room + PAGE + 123, SHM_RND) == room + PAGE);
	HOLDS(!strcmp(room + PAGE, "hello") && room[0] == 7 && room[4 * PAGE] == 7);
	HOLDS(shmat(id, room + 8 * PAGE, SHM_REMAP) == room + 8 * PAGE);
	HOLDS(!strcmp(room + 8 * PAGE, "hello") && room[11 * PAGE] == 7);
	HOLDS(state(id)->shm_nattch == 3);
	/* munmap detaches too, in parts or at once. */
	TRY(munmap(room + PAGE, 3 * PAGE));
	HOLDS(state(id)->shm_nattch == 2);
	TRY(munmap(room + 8 * PAGE, PAGE));
	HOLDS(state(id)->shm_nattch == 2);
	TRY(shmdt(room + 9 * PAGE));
	TRY(shmdt(room + 8 * PAGE));
	HOLDS(state(id)->shm_nattch == 1);
	/* Whatever comes over an attachment ends it. */
	char *third = MUST(shmat(id, 0, 0));
	MUST(mmap(third, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	HOLDS(state(id)->shm_nattch == 1);
	TRY(shmdt(third));
	/* Split by rights, it is detached as one. */
	third = MUST(shmat(id, 0, 0));
	MUST(mprotect(third + PAGE, PAGE, PROT_READ));
	TRY(shmdt(third + PAGE));
	TRY(shmdt(third));
	HOLDS(maps(name, line, sizeof line));
	unsigned char there[3];
	HOLDS(mincore(third, SIZE, there) == -1 && errno == ENOMEM);
	HOLDS(state(id)->shm_nattch == 1);
	/* Moved, it is where it is. */
	third = MUST(shmat(id, 0, 0));
	char *moved = MUST(mmap(0, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	HOLDS(mremap(third, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, moved) == moved);
	TRY(shmdt(third));
	HOLDS(!strcmp(moved, "hello"));
	TRY(shmdt(moved));
	/* With a right to execute. */
	third = MUST(shmat(id, 0, SHM_EXEC));
	memcpy(third + PAGE, "\xb8\x2a\0\0\0\xc3", 6);
	HOLDS(((int (*)(void))(third + PAGE))() == 42);
	TRY(shmdt(third));
	TRY(madvise(at, PAGE, MADV_REMOVE));
	HOLDS(at[0] == 0);
	TRY(shmdt(at));
	HOLDS(state(id)->shm_nattch == 0);
	/* The content outlives all attachments. */
	at = MUST(shmat(id, 0, 0));
	HOLDS(at[PAGE + 1] == 0x2a);
	TRY(shmdt(at));
	TRY(shmctl(id, IPC_RMID, 0));
	HOLDS(!maps(name, line, sizeof line));
}

static void processes(void)
{
	int ready[2];
	char byte;
	id = MUST(shmget(IPC_PRIVATE, SIZE, 0600));
	at = MUST(shmat(id, 0, 0));
	IN_CHILD("a child", {
		at[0] = 'c';
		HOLDS(state(id)->shm_nattch == 2);
		TRY(shmdt(at));
		HOLDS(state(id)->shm_nattch == 1 && ds.shm_lpid == getpid());
	});
	HOLDS(at[0] == 'c' && state(id)->shm_nattch == 1 && ds.shm_lpid != getpid());
	IN_CHILD("a child that just ends", HOLDS(state(id)->shm_nattch == 2));
	HOLDS(state(id)->shm_nattch == 1);
	IN_CHILD("a child of a child", {
		IN_CHILD("grandchild", {
			at[1] = 'g';
			HOLDS(state(id)->shm_nattch == 3);
		});
		char *more = MUST(shmat(id, 0, 0));
		HOLDS(more[1] == 'g' && state(id)->shm_nattch == 3);
	});
	HOLDS(state(id)->shm_nattch == 1);
	IN_CHILD("a program that is executed", {
		char number[16];
		snprintf(number, sizeof number, "%d", id);
		execl("/proc/self/exe", "shm", "count", number, NULL);
	});
	HOLDS(state(id)->shm_nattch == 1);
	MUST(madvise(at, SIZE, MADV_DONTFORK));
	IN_CHILD("a child without it", HOLDS(state(id)->shm_nattch == 1));
	MUST(madvise(at, SIZE, MADV_DOFORK));
	/* Removed while attached: it goes with the last one. */
	MUST(pipe(ready));
	pid_t child = MUST(fork());
	if (!child) {
		close(ready[0]);
		MUST(write(ready[1], "r", 1));
		for (;;)
			pause();
	}
	MUST(read(ready[0], &byte, 1));
	TRY(shmctl(id, IPC_RMID, 0));
	say("mode %o", state(id)->shm_perm.mode);
	HOLDS(ds.shm_nattch == 2 && ds.shm_perm.__key == IPC_PRIVATE);
	char *late = MUST(shmat(id, 0, 0));
	HOLDS(late[1] == 'g');
	TRY(shmdt(late));
	TRY(shmdt(at));
	HOLDS(state(id)->shm_nattch == 1);
	MUST(kill(child, SIGKILL));
	MUST(waitpid(child, 0, 0));
	TRY(shmctl(id, IPC_STAT, &ds));
}

/* As database servers do: one segment under a key, and who comes second finds out whether the first
   one still lives. */
static void a_server(void)
{
	key_t mine = key(3);
	int ready[2];
	char byte;
	MUST(prctl(PR_SET_CHILD_SUBREAPER, 1));
	MUST(pipe(ready));
	pid_t server = MUST(fork());
	if (!server) {
		int own = MUST(shmget(mine, 64 * PAGE, IPC_CREAT | IPC_EXCL | 0600));
		int *header = MUST(shmat(own, 0, 0));
		header[0] = getpid();
		for (int i = 0; i < 4; i++)
			if (!fork()) {
				if (!i)
					header[2] = getpid();
				__atomic_add_fetch(&header[1], i + 1, __ATOMIC_SEQ_CST);
				if (!i)
					pause();
				_exit(0);
			}
		for (int i = 0; i < 3; i++)
			wait(0);
		while (__atomic_load_n(&header[1], __ATOMIC_SEQ_CST) != 10)
			sleep_ms(1);
		MUST(write(ready[1], "r", 1));
		pause();
	}
	MUST(read(ready[0], &byte, 1));
	TRY(shmget(mine, 64 * PAGE, IPC_CREAT | IPC_EXCL | 0600));
	id = MUST(shmget(mine, 2 * sizeof(int), 0));
	HOLDS(state(id)->shm_nattch == 2);
	int *header = MUST(shmat(id, 0, 0));
	HOLDS(header[0] == server && header[1] == 10);
	pid_t orphan = header[2];
	TRY(shmdt(header));
	MUST(kill(server, SIGKILL));
	MUST(waitpid(server, 0, 0));
	/* Its child still has it. */
	HOLDS(state(id)->shm_nattch == 1);
	TRY(shmctl(id, IPC_RMID, 0));
	TRY(shmget(mine, 0, 0));
	int next = MUST(shmget(mine, PAGE, IPC_CREAT | IPC_EXCL | 0600));
	HOLDS(next != id);
	TRY(shmctl(next, IPC_RMID, 0));
	HOLDS(state(id)->shm_nattch == 1);
	MUST(kill(orphan, SIGKILL));
	MUST(waitpid(orphan, 0, 0));
	TRY(shmctl(id, IPC_STAT, &ds));
}

static void owners(void)
{
	id = MUST(shmget(IPC_PRIVATE, SIZE, 0604));
	state(id);
	ds.shm_perm.mode = 07123;
	ds.shm_segsz = 1;
	ds.shm_perm.__key = 5;
	TRY(shmctl(id, IPC_SET, &ds));
	state(id);
	say("mode %o size %lu key %d", ds.shm_perm.mode, ds.shm_segsz, ds.shm_perm.__key);
	TRY(shmctl(id, SHM_LOCK, 0));
	say("mode %o", state(id)->shm_perm.mode);
	TRY(shmctl(id, SHM_UNLOCK, 0));
	say("mode %o", state(id)->shm_perm.mode);
	ds.shm_perm.uid = -1;
	TRY(shmctl(id, IPC_SET, &ds));
	HOLDS(state(id)->shm_perm.uid == geteuid());
	TRY(shmctl(id, IPC_RMID, 0));
}

static void all_together(void)
{
	struct shminfo limits;
	struct shm_info sums, later;
	HOLDS(shmctl(0, IPC_INFO, (void *)&limits) >= 0);
	HOLDS(limits.shmmin == 1 && limits.shmmni >= 4096 && limits.shmmax > 1ul << 40 && limits.shmall > 1ul << 40);
	MUST(shmctl(0, SHM_INFO, (void *)&sums));
	id = MUST(shmget(key(4), SIZE - 10, IPC_CREAT | 0642));
	int highest = MUST(shmctl(0, SHM_INFO, (void *)&later));
	HOLDS(later.used_ids == sums.used_ids + 1 && later.shm_tot == sums.shm_tot + 3);
	at = MUST(shmat(id, 0, 0));
	at[0] = at[PAGE] = 1;
	MUST(shmctl(0, SHM_INFO, (void *)&later));
	HOLDS(later.shm_rss == sums.shm_rss + 2 && later.shm_swp == sums.shm_swp);
	int found = 0, any = 0;
	for (int i = 0; i <= highest; i++) {
		int its = shmctl(i, SHM_STAT, &ds);
		found += its == id && ds.shm_segsz == SIZE - 10;
		any += shmctl(i, SHM_STAT_ANY, &ds) == its;
	}
	HOLDS(found == 1 && any == highest + 1);
	TRY(shmctl(highest + 1, SHM_STAT, &ds));
	/* The same as text. */
	char line[512];
	FILE *file = fopen("/proc/sysvipc/shm", "r");
	fgets(line, sizeof line, file);
	say("[%s", line);
	while (fgets(line, sizeof line, file)) {
		unsigned k, number, mode, cpid, lpid, nattch, uid, gid, cuid, cgid;
		unsigned long size, atime, dtime, ctime, rss, swap;
		int n = sscanf(line, "%u %u %o %lu %u %u %u %u %u %u %u %lu %lu %lu %lu %lu", &k, &number, &mode, &size,
			       &cpid, &lpid, &nattch, &uid, &gid, &cuid, &cgid, &atime, &dtime, &ctime, &rss, &swap);
		if (number != id)
			continue;
		HOLDS(n == 16 && k == (unsigned)key(4) && cpid == getpid() && lpid == getpid());
		say("%o %lu %u %lu %lu %lu length %zu", mode, size, nattch, dtime, rss, swap, strlen(line));
		HOLDS(atime && ctime);
	}
	fclose(file);
	TRY(shmdt(at));
	TRY(shmctl(id, IPC_RMID, 0));
	MUST(shmctl(0, SHM_INFO, (void *)&later));
	HOLDS(later.used_ids == sums.used_ids && later.shm_tot == sums.shm_tot && later.shm_rss == sums.shm_rss);
}

static void posix(void)
{
	char name[32];
	snprintf(name, sizeof name, "/ebb-%d", getpid());
	int file = MUST(shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600));
	TRY(shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600));
	TRY(ftruncate(file, SIZE));
	at = MUST(mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
	IN_CHILD("who opens it by name", {
		int own = MUST(shm_open(name, O_RDWR, 0));
		char *there = MUST(mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0));
		strcpy(there, "posix");
	});
	HOLDS(!strcmp(at, "posix"));
	TRY(shm_unlink(name));
	TRY(shm_unlink(name));
	TRY(shm_open(name, O_RDWR, 0));
}

int main(int n, char **words)
{
	if (n == 3) {
		int of = atoi(words[2]);
		say("%s: %lu", words[1], state(of)->shm_nattch);
		return 0;
	}
	alarm(500);
	/* On the host, what other processes have would be counted, too. Root can be apart. */
	unshare(CLONE_NEWIPC);
	numbers_and_keys();
	what_is_refused();
	attachments();
	processes();
	owners();
	all_together();
	posix();
	a_server();
	return 0;
}
