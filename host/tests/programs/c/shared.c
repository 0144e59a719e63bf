/* Memory that processes share: anonymous, by files, by descriptors without a name. */
#include "say.h"
#include <pthread.h>

struct page {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	long count, turn;
	char text[100];
};

int main(void)
{
	struct page *s = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	HOLDS(s != MAP_FAILED);
	pthread_mutexattr_t m;
	pthread_mutexattr_init(&m);
	pthread_mutexattr_setpshared(&m, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&s->lock, &m);
	pthread_condattr_t c;
	pthread_condattr_init(&c);
	pthread_condattr_setpshared(&c, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&s->cond, &c);
	for (int i = 0; i < 4; i++)
		if (MUST(fork()) == 0) {
			for (int k = 0; k < 5000; k++) {
				pthread_mutex_lock(&s->lock);
				s->count++;
				pthread_mutex_unlock(&s->lock);
			}
			for (int k = 0; k < 100; k++) {
				pthread_mutex_lock(&s->lock);
				while (s->turn % 4 != i)
					pthread_cond_wait(&s->cond, &s->lock);
				s->turn++;
				pthread_cond_broadcast(&s->cond);
				pthread_mutex_unlock(&s->lock);
			}
			_exit(0);
		}
	while (wait(NULL) > 0)
		;
	say("count %ld turn %ld", s->count, s->turn);

	/* a page that the parent first touches after the fork is shared all the same */
	char *late = (char *)s + 100 * PAGE;
	IN_CHILD("writer", strcpy(late, "from the child"));
	say("%s", late);
	IN_CHILD("grandchild", IN_CHILD("inner", strcat(late, " and its child")));
	say("%s", late);
	TRY(munmap((char *)s + 50 * PAGE, 10 * PAGE));
	say("%s", late);
	IN_CHILD("hole", *((volatile char *)s + 52 * PAGE) = 1);

	/* by a file: two mappings, read and write see one another */
	int fd = MUST(open("shared", O_RDWR | O_CREAT | O_TRUNC, 0600));
	TRY(ftruncate(fd, 3 * PAGE + 100));
	char *a = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char *b = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, PAGE);
	strcpy(a + PAGE, "written by a");
	say("b sees %s", b);
	char text[40] = "";
	TRY(pread(fd, text, 12, PAGE));
	say("read sees %s", text);
	TRY(pwrite(fd, "WRITTEN", 7, PAGE));
	say("b sees %s", b);
	TRY(msync(a, 4 * PAGE, MS_SYNC));
	TRY(msync(a, 4 * PAGE, MS_SYNC | MS_ASYNC));
	TRY(msync(a + 1, PAGE, MS_SYNC));
	IN_CHILD("file writer", memcpy(a + 2 * PAGE, "child", 6));
	say("%s", a + 2 * PAGE);
	/* beyond the end of the file, in its last page: zeros, not kept by growing */
	a[3 * PAGE + 100] = 'x';
	TRY(ftruncate(fd, 4 * PAGE));
	TRY(pread(fd, text, 1, 3 * PAGE + 50));
	say("byte %d", text[0]);
	/* shrink and grow: what was cut is zero */
	strcpy(a + 2 * PAGE + 50, "cut off");
	TRY(ftruncate(fd, 2 * PAGE + 10));
	TRY(ftruncate(fd, 4 * PAGE));
	say("after growing again: %d %s", a[2 * PAGE + 50], a + 2 * PAGE);
	close(fd);
	unlink("shared");
	strcpy(a, "still there after close and unlink");
	say("%s", a);

	/* rights */
	fd = MUST(open("rights", O_RDWR | O_CREAT | O_TRUNC, 0600));
	ftruncate(fd, PAGE);
	close(fd);
	fd = MUST(open("rights", O_RDONLY));
	HOLDS(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EACCES);
	a = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	TRY(mprotect(a, PAGE, PROT_READ | PROT_WRITE));
	HOLDS(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) != MAP_FAILED);
	close(fd);
	fd = MUST(open("rights", O_WRONLY));
	HOLDS(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EACCES);
	unlink("rights");

	/* without a name */
	DO(fd = memfd_create("nameless", MFD_CLOEXEC));
	TRY(ftruncate(fd, 1 << 20));
	a = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	IN_CHILD("memfd", memset(a + 5000, 'm', 10));
	TRY(pread(fd, text, 12, 4999));
	say("%.10s", text + 1);
	struct stat st;
	fstat(fd, &st);
	say("size %ld blocks %ld links %ld", (long)st.st_size, (long)st.st_blocks, (long)st.st_nlink);
	return 0;
}
