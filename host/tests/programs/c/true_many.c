// What the kernel keeps and shows of very many things, of which a program can make as many as it likes: mappings in
// /proc, and System V sets and queues. Prints what is the same on Linux.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAPS_BYTES (16u << 20)

static char *room(size_t bytes) {
	return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
}

// Makes mappings of a page each that do not merge.
static void map_many(int count) {
	static int made;
	for (; made < count; made++) {
		int rights = made & 1 ? PROT_READ : PROT_READ | PROT_WRITE;
		if (mmap(0, 4096, rights, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) {
			printf("mapping %d: %s\n", made, strerror(errno));
			return;
		}
	}
}

// Reads all of a file in pieces of `step` bytes; how many lines it has, and, where `keep` is given, its text.
static long lines_of(const char *name, size_t step, char *keep, size_t *bytes) {
	static char buffer[1 << 16];
	int fd = open(name, O_RDONLY);
	long lines = 0;
	size_t all = 0;
	ssize_t got;
	while ((got = read(fd, buffer, step)) > 0) {
		for (ssize_t i = 0; i < got; i++) lines += buffer[i] == '\n';
		if (keep && all + got <= MAPS_BYTES) memcpy(keep + all, buffer, got);
		all += got;
	}
	if (got < 0) printf("%s ends with %s\n", name, strerror(errno));
	close(fd);
	if (bytes) *bytes = all;
	return lines;
}

static void mappings(void) {
	char *first = room(MAPS_BYTES), *second = room(MAPS_BYTES), part[1000];
	size_t first_bytes, second_bytes;
	long before = lines_of("/proc/self/smaps", 1 << 16, 0, 0), areas = lines_of("/proc/self/maps", 1 << 16, 0, 0);
	map_many(12000);
	long each = before / areas;
	printf("smaps shows them all: %d\n", lines_of("/proc/self/smaps", 1 << 16, 0, 0) - before == 12000 * each);
	map_many(50000);
	printf("maps shows %ld more\n", lines_of("/proc/self/maps", 1 << 16, first, &first_bytes) - areas);
	lines_of("/proc/self/maps", 4095, second, &second_bytes);
	printf("in other pieces the same: %d\n",
		   first_bytes == second_bytes && memcmp(first, second, first_bytes) == 0);
	int fd = open("/proc/self/maps", O_RDONLY), same = 0, tries = 0;
	// Forwards, backwards, and from the start again.
	off_t places[] = {0, 100000, 100, 4000, 3999, 2000000, 4096, 0};
	for (; tries < 8; tries++) {
		ssize_t got = pread(fd, part, sizeof part, places[tries]);
		same += got > 0 && memcmp(part, first + places[tries], got) == 0;
	}
	printf("%d of %d places have their bytes\n", same, tries);
	printf("at the end %zd, behind it %zd\n", pread(fd, part, sizeof part, first_bytes),
		   pread(fd, part, sizeof part, first_bytes + 1000000));
	printf("seek back: %d\n", lseek(fd, 5000, SEEK_SET) == 5000 && read(fd, part, 100) == 100 &&
								  memcmp(part, first + 5000, 100) == 0);
	close(fd);
}

// Makes sets or queues until the kernel refuses one, then takes all away.
static void objects(int queues) {
	static int numbers[40000];
	int count = 0;
	for (; count < 40000; count++) {
		int id = queues ? msgget(IPC_PRIVATE, 0600 | IPC_CREAT) : semget(IPC_PRIVATE, 1, 0600 | IPC_CREAT);
		if (id < 0) break;
		numbers[count] = id;
	}
	printf("%d %s, then %s\n", count, queues ? "queues" : "sets", strerror(errno));
	int gone = 0;
	// Every other one first: the table has holes meanwhile.
	for (int start = 0; start < 2; start++)
		for (int i = start; i < count; i += 2)
			gone += (queues ? msgctl(numbers[i], IPC_RMID, 0) : semctl(numbers[i], 0, IPC_RMID)) == 0;
	printf("all are gone: %d\n", gone == count);
}

int main(void) {
	setvbuf(stdout, 0, _IOLBF, 0);
	// In a child: its mappings go with it.
	pid_t child = fork();
	if (child == 0) {
		mappings();
		exit(0);
	}
	int status;
	waitpid(child, &status, 0);
	printf("mappings: status %d\n", status);
	objects(0);
	objects(1);
	return 0;
}
