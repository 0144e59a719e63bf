/* Processes that read, change, move and remove what was there before, at once. Bytes of a file that
 * no process changed are told by its name. Arguments: the folder, processes, rounds, seed. */
#include "say.h"
#include <dirent.h>

#define FILES 64
#define WORDS 20000

static unsigned seed;

static unsigned dice(unsigned sides)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % sides;
}

/* Whether a file is as it was at first: word N of file F is F * 1000003 + N. */
static int is_right(int fd, int file)
{
	static unsigned words[WORDS];
	struct stat status;
	if (fstat(fd, &status) < 0 || status.st_size != sizeof words)
		return 0;
	for (size_t done = 0; done < sizeof words;) {
		ssize_t got = pread(fd, (char *)words + done, sizeof words - done, done);
		if (got <= 0)
			return 0;
		done += got;
	}
	for (unsigned n = 0; n < WORDS; n++)
		if (words[n] != file * 1000003u + n)
			return 0;
	return 1;
}

/* The process's own file, which no other process touches; the others are only read. */
static int work(int own, int rounds)
{
	char name[64], other[64];
	int state = 0; /* 0: as at first, 1: changed, 2: moved, 3: gone */
	for (int round = 0; round < rounds; round++) {
		int file = 32 + dice(32);
		snprintf(name, sizeof name, "dir-%d/file-%d", file % 4, file);
		int fd = open(name, O_RDONLY);
		if (fd < 0)
			return 10;
		if (dice(3) == 0) {
			unsigned *map = mmap(0, WORDS * 4, PROT_READ, MAP_PRIVATE, fd, 0);
			unsigned n = dice(WORDS);
			if (map == MAP_FAILED || map[n] != file * 1000003u + n)
				return 11;
			munmap(map, WORDS * 4);
		} else if (!is_right(fd, file))
			return 12;
		close(fd);
		snprintf(name, sizeof name, "dir-%d/file-%d", own % 4, own);
		snprintf(other, sizeof other, "dir-%d/moved-%d", (own + 1) % 4, own);
		unsigned mark = 0;
		switch (dice(5)) {
		case 0:
			if (state > 1)
				break;
			fd = open(name, O_RDWR);
			unsigned at = dice(WORDS);
			mark = ~(own * 1000003u + at);
			if (fd < 0 || pwrite(fd, &mark, 4, at * 4) != 4 || pread(fd, &mark, 4, at * 4) != 4)
				return 13;
			if (mark != ~(own * 1000003u + at))
				return 14;
			mark = ~mark;
			if (pwrite(fd, &mark, 4, at * 4) != 4)
				return 15;
			close(fd);
			state = 1;
			break;
		case 1:
			if (state > 1)
				break;
			if (rename(name, other) < 0 || access(name, F_OK) == 0)
				return 16;
			fd = open(other, O_RDONLY);
			if (!is_right(fd, own))
				return 17;
			close(fd);
			if (rename(other, name) < 0)
				return 18;
			break;
		case 2: {
			DIR *folder = opendir("dir-0");
			int seen = 0;
			while (folder && readdir(folder))
				seen++;
			if (seen < 2 + 8)
				return 19;
			closedir(folder);
			break;
		}
		case 3:
			if (own % 4 == 3 && dice(50) == 0 && state < 2) {
				if (unlink(name) < 0 || access(name, F_OK) == 0)
					return 20;
				state = 3;
			}
			break;
		case 4: {
			int knob = open("/proc/sys/vm/drop_caches", O_WRONLY);
			if (knob >= 0 && dice(4) == 0)
				write(knob, "1", 1);
			close(knob);
			break;
		}
		}
		if (state > 2 && access(name, F_OK) == 0)
			return 21;
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 5 || chdir(argv[1]) < 0)
		return 1;
	int processes = atoi(argv[2]), bad = 0;
	for (int own = 0; own < processes; own++)
		if (fork() == 0) {
			seed = atoi(argv[4]) * 1000 + own;
			_exit(work(own, atoi(argv[3])));
		}
	for (int own = 0; own < processes; own++) {
		int status;
		wait(&status);
		if (status) {
			say("a process ended with %d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
			bad++;
		}
	}
	say("wrong: %d", bad);
	return bad != 0;
}
