/* Private mappings of files: copies on writing, ends, holes, protection. */
#include "say.h"

int main(void)
{
	int fd = MUST(open("private", O_RDWR | O_CREAT | O_TRUNC, 0600));
	static char data[5 * PAGE + 123];
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = i * 7 + i / PAGE;
	MUST(write(fd, data, sizeof data));
	unsigned char *p = mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	say("mapped %lx, file %lx", hash(p, sizeof data), hash(data, sizeof data));
	int zeros = 1;
	for (size_t i = sizeof data; i < 6 * PAGE; i++)
		zeros &= p[i] == 0;
	HOLDS(zeros);
	/* a private write stays private; a write to the file shows until then */
	p[0] = 1;
	p[3 * PAGE] = 2;
	char c;
	MUST(pread(fd, &c, 1, 0));
	say("file %d mapping %d", c, p[0]);
	MUST(pwrite(fd, "Z", 1, 1));
	MUST(pwrite(fd, "Z", 1, PAGE));
	say("copied page %d, untouched page %d", p[1], p[PAGE]);
	IN_CHILD("child", { p[0] = 50; p[2 * PAGE] = 51; say("child sees %d %d %d", p[0], p[2 * PAGE], p[3 * PAGE]); });
	say("parent sees %d %d", p[0], p[2 * PAGE]);
	/* offsets */
	unsigned char *q = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 4 * PAGE);
	say("offset %d %d", q[0], q[100]);
	HOLDS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 100) == MAP_FAILED && errno == EINVAL);
	HOLDS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, -1, 0) == MAP_FAILED && errno == EBADF);
	HOLDS(mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED && errno == EINVAL);
	HOLDS(mmap(NULL, PAGE, PROT_READ, 0, fd, 0) == MAP_FAILED && errno == EINVAL);
	HOLDS(mmap((void *)1, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED && errno == EINVAL);
	HOLDS(mmap(NULL, 1ul << 60, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED && errno == ENOMEM);
	int dir = MUST(open(".", O_RDONLY));
	HOLDS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, dir, 0) == MAP_FAILED && errno == ENODEV);
	int ends[2];
	pipe(ends);
	HOLDS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, ends[0], 0) == MAP_FAILED && errno == ENODEV);
	/* discarded pages come from the file again */
	TRY(madvise(p, 6 * PAGE, MADV_DONTNEED));
	say("after discarding %d %d", p[0], p[3 * PAGE]);
	/* shrinking the file takes pages from the mapping, private copies too */
	p[4 * PAGE] = 9;
	TRY(ftruncate(fd, 2 * PAGE));
	IN_CHILD("beyond the end", (void)*(volatile char *)(p + 3 * PAGE));
	IN_CHILD("beyond the end, written before", (void)*(volatile char *)(p + 4 * PAGE));
	IN_CHILD("inside", _exit(p[PAGE]));
	/* a system call that meets such a page */
	TRY(write(ends[1], p + 3 * PAGE, 10));
	TRY(read(dir, p, 10));
	/* reading into a mapping, of the same file too */
	TRY(ftruncate(fd, 4 * PAGE));
	TRY(pread(fd, p + 2 * PAGE, PAGE, 0));
	say("%d %d", p[2 * PAGE], p[2 * PAGE + 1]);
	TRY(pwrite(fd, p, PAGE, 3 * PAGE));
	say("%d", p[3 * PAGE + 1]);
	/* /dev/zero, and executable memory */
	int zero = MUST(open("/dev/zero", O_RDWR));
	unsigned char *z = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
	HOLDS(z != MAP_FAILED);
	z[5] = 5;
	say("%d %d", z[5], z[PAGE]);
	static const unsigned char code[] = { 0xb8, 0x2a, 0, 0, 0, 0xc3 };
	memcpy(z, code, sizeof code);
	IN_CHILD("not executable", ((int (*)(void))z)());
	TRY(mprotect(z, PAGE, PROT_READ | PROT_EXEC));
	say("code gives %d", ((int (*)(void))z)());
	MUST(pwrite(fd, code, sizeof code, 0));
	unsigned char *x = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	say("code of a file gives %d", ((int (*)(void))x)());
	unlink("private");
	return 0;
}
