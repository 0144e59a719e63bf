/* Bind mounts come and go while paths are walked, on several CPUs; needs to be root. `bind_storm FOLDER ROUNDS`. Says whether all of
   it is gone at the end. Where mount namespaces are, it works in one of its own. */
#include "say.h"
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>

enum { MOUNTERS = 3, WALKERS = 3, NAMES = 4 };

static char base[256];
static long rounds;
static volatile int over;
static volatile long walked, mounted;

static void in(char *to, const char *name, int number)
{
	snprintf(to, 512, "%s/%s%d", base, name, number);
}

static unsigned next(unsigned *seed)
{
	*seed ^= *seed << 13, *seed ^= *seed >> 17, *seed ^= *seed << 5;
	return *seed;
}

static int info_lines(void)
{
	static char line[4096];
	FILE *file = fopen("/proc/self/mountinfo", "r");
	int n = 0;
	while (fgets(line, sizeof line, file))
		n++;
	fclose(file);
	return n;
}

static void *mount_some(void *number)
{
	unsigned seed = 12345 + (long)number;
	char from[512], to[512];
	for (long i = 0; i < rounds; i++) {
		unsigned what = next(&seed) % 8, one = next(&seed) % NAMES, two = next(&seed) % NAMES;
		in(to, "d", one);
		in(from, what == 7 ? "f" : "d", two);
		if (what < 3) {
			if (next(&seed) % 2)
				strcat(to, "/s");
			if (!mount(from, to, 0, MS_BIND | (what == 2 && i % 4 == 0 ? MS_REC : 0), 0))
				mounted++;
		} else if (what < 5) {
			umount2(to, next(&seed) % 2 ? MNT_DETACH : 0);
		} else if (what == 5) {
			mount(0, to, 0, MS_REMOUNT | MS_BIND | (next(&seed) % 2 ? MS_RDONLY : 0), 0);
		} else if (what == 6) {
			strcat(to, "/s");
			umount2(to, MNT_DETACH);
		} else {
			in(to, "f", one);
			if (next(&seed) % 2)
				mount(from, to, 0, MS_BIND, 0);
			else
				umount2(to, MNT_DETACH);
		}
		/* What doubles at each turn is taken down before it is large. */
		if (i % 16 == 0)
			for (int n = 0; n < NAMES; n++) {
				in(to, "d", n);
				while (!umount2(to, MNT_DETACH))
					;
			}
	}
	return 0;
}

static void *walk(void *number)
{
	unsigned seed = 54321 + (long)number;
	char path[512], text[4096];
	struct stat st;
	while (!over) {
		unsigned what = next(&seed) % 8;
		in(path, "d", next(&seed) % NAMES);
		switch (what) {
		case 0:
			strcat(path, "/s/s/f");
			stat(path, &st);
			break;
		case 1: {
			strcat(path, "/s");
			int folder = open(path, O_RDONLY | O_DIRECTORY);
			if (folder >= 0) {
				syscall(SYS_getdents64, folder, text, sizeof text);
				fstatat(folder, "../../d0/s", &st, 0);
				close(folder);
			}
			break;
		}
		case 2: {
			strcat(path, "/f");
			int file = open(path, O_RDWR | O_CREAT, 0600);
			if (file >= 0) {
				char link[64];
				snprintf(link, sizeof link, "/proc/self/fd/%d", file);
				if (write(file, "x", 1) < 0 || readlink(link, text, sizeof text) < 0)
					say("an open file fails: %s", strerrorname_np(errno));
				close(file);
			}
			break;
		}
		case 3: {
			/* The working directory is the process's: one walker has it. */
			if (number || chdir(path))
				break;
			syscall(SYS_getcwd, text, sizeof text);
			stat("../../..", &st);
			break;
		}
		case 4: {
			char other[512];
			snprintf(other, sizeof other, "%s/s/g", path);
			strcat(path, "/g");
			close(open(path, O_WRONLY | O_CREAT, 0600));
			rename(path, other);
			unlink(other);
			break;
		}
		case 5: {
			char other[512];
			snprintf(other, sizeof other, "%s/moved", base);
			strcat(path, "/t");
			mkdir(path, 0700);
			rename(path, other);
			rmdir(other);
			break;
		}
		case 6:
			in(path, "f", next(&seed) % NAMES);
			close(open(path, O_RDONLY));
			unlink(path);
			close(open(path, O_RDWR | O_CREAT, 0600));
			break;
		default: {
			int table = open("/proc/self/mountinfo", O_RDONLY);
			while (read(table, text, sizeof text) > 0)
				;
			close(table);
		}
		}
		__atomic_fetch_add(&walked, 1, __ATOMIC_RELAXED);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	snprintf(base, sizeof base, "%s", argv[1]);
	rounds = atol(argv[2]);
	if (unshare(CLONE_NEWNS) == 0)
		MUST(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
	mkdir(base, 0755);
	MUST(mount("none", base, "tmpfs", 0, "size=16m"));
	int before = info_lines();
	char path[512];
	for (int i = 0; i < NAMES; i++) {
		in(path, "d", i);
		mkdir(path, 0755);
		strcat(path, "/s");
		mkdir(path, 0755);
		in(path, "f", i);
		close(open(path, O_RDWR | O_CREAT, 0600));
	}
	pthread_t threads[MOUNTERS + WALKERS];
	/* The mounters end by themselves, perhaps before a walker runs: the walkers come first. */
	for (long i = 0; i < WALKERS; i++)
		if (pthread_create(&threads[MOUNTERS + i], 0, walk, (void *)i))
			return 3;
	while (!walked)
		sched_yield();
	for (long i = 0; i < MOUNTERS; i++)
		if (pthread_create(&threads[i], 0, mount_some, (void *)i))
			return 3;
	for (int i = 0; i < MOUNTERS; i++)
		pthread_join(threads[i], 0);
	over = 1;
	for (int i = MOUNTERS; i < MOUNTERS + WALKERS; i++)
		pthread_join(threads[i], 0);
	MUST(chdir("/"));
	say("mounts were made: %s, and walked: %s", mounted > rounds / 10 ? "yes" : "NO", walked > 0 ? "yes" : "NO");
	for (int i = 0; i < NAMES; i++) {
		in(path, "d", i);
		while (!umount2(path, MNT_DETACH))
			;
		in(path, "f", i);
		while (!umount2(path, MNT_DETACH))
			;
	}
	for (int i = 0; i < NAMES; i++) {
		in(path, "d", i);
		strcat(path, "/s");
		while (!umount2(path, MNT_DETACH))
			;
	}
	HOLDS(info_lines() == before);
	HOLDS(umount(base) == 0);
	return 0;
}
