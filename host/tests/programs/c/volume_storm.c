/* Processes that change files of their own in a folder, by calls and by mappings, each beside a copy of what must be there.
 * Arguments: the folder, how many processes, rounds, a seed. */
#include "say.h"

#define MOST (3 << 20)

static unsigned long state;

static unsigned below(unsigned n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 11) % n;
}

static int work(int number, int rounds)
{
	unsigned char *model = calloc(1, MOST), *read_back = malloc(MOST), *map;
	char name[64];
	unsigned size = 0;
	int wrong = 0;
	snprintf(name, sizeof name, "storm-%d", number);
	int fd = MUST(open(name, O_RDWR | O_CREAT | O_TRUNC, 0644));
	map = MUST(mmap(0, MOST, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	for (int round = 0; round < rounds; round++) {
		unsigned at = below(MOST), len = 1 + below(below(2) ? 300 : 200000);
		if (len > MOST - at)
			len = MOST - at;
		switch (below(9)) {
		case 0:
		case 1:
			for (unsigned i = 0; i < len; i++)
				model[at + i] = at + i * round;
			if (pwrite(fd, model + at, len, at) != len)
				wrong++, say("%d: pwrite: %s", number, strerrorname_np(errno));
			if (at + len > size)
				size = at + len;
			break;
		case 2:
		case 3:
			/* What is stored behind the end of the file is lost. */
			if (at >= size)
				break;
			if (len > size - at)
				len = size - at;
			for (unsigned i = 0; i < len; i++)
				map[at + i] = model[at + i] = round + i;
			break;
		case 4:
			if (pread(fd, read_back, MOST, 0) != size || memcmp(read_back, model, size))
				wrong++, say("%d: round %d reads other bytes", number, round);
			break;
		case 5:
			if (memcmp(map, model, size))
				wrong++, say("%d: round %d maps other bytes", number, round);
			break;
		case 6:
			if (below(3))
				break;
			if (at < size)
				memset(model + at, 0, size - at);
			size = at;
			if (ftruncate(fd, size))
				wrong++;
			break;
		case 7:
			if (below(2) ? fsync(fd) : msync(map, MOST, MS_SYNC))
				wrong++, say("%d: sync: %s", number, strerrorname_np(errno));
			break;
		case 8:
			if (below(2)) {
				munmap(map, MOST);
				close(fd);
				fd = MUST(open(name, O_RDWR));
				map = MUST(mmap(0, MOST, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
			} else {
				int append = MUST(open(name, O_WRONLY | O_APPEND));
				if (len > MOST - size)
					len = MOST - size;
				for (unsigned i = 0; i < len; i++)
					model[size + i] = i ^ round;
				if (len && write(append, model + size, len) != len)
					wrong++;
				size += len;
				close(append);
			}
			break;
		}
	}
	munmap(map, MOST);
	close(fd);
	fd = MUST(open(name, O_RDONLY));
	if (read(fd, read_back, MOST) != size || memcmp(read_back, model, size))
		wrong++, say("%d: the end has other bytes", number);
	close(fd);
	snprintf(name, sizeof name, "model-%d", number);
	fd = MUST(open(name, O_RDWR | O_CREAT | O_TRUNC, 0644));
	if (write(fd, model, size) != size)
		wrong++;
	close(fd);
	return wrong;
}

int main(int argc, char **argv)
{
	int wrong = 0, status;
	if (argc < 5 || chdir(argv[1]) < 0)
		return 1;
	for (int i = 0; i < atoi(argv[2]); i++)
		if (!fork()) {
			state = atol(argv[4]) * 1000003 + i + 1;
			_exit(work(i, atoi(argv[3])) != 0);
		}
	while (wait(&status) > 0)
		wrong += status != 0;
	say("wrong: %d", wrong);
	return 0;
}
