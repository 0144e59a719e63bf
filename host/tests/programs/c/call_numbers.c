/* Of calls that are named as NAME=NUMBER, says which the kernel does not have. */
#include "say.h"

/* Does not come back, or comes back twice; or waits for what never comes. */
static const char *const KNOWN[] = { "exit", "exit_group", "fork", "vfork", "pause", "rt_sigreturn", 0 };

static int is_absent(long number)
{
	/* Some say ENOSYS to a command of theirs that is not there. */
	errno = 0;
	syscall(number, -1l, -1l, -1l, -1l, -1l, -1l);
	if (errno != ENOSYS)
		return 0;
	errno = 0;
	syscall(number, 0l, 0l, 0l, 0l, 0l, 0l);
	return errno == ENOSYS;
}

int main(int count, char **words)
{
	for (int i = 1; i < count; i++) {
		char *number = strchr(words[i], '=');
		*number++ = 0;
		int known = 0;
		for (const char *const *name = KNOWN; *name; name++)
			known |= !strcmp(*name, words[i]);
		if (known)
			continue;
		pid_t child = MUST(fork());
		if (child == 0)
			_exit(is_absent(atol(number)) ? 38 : 0);
		int status;
		MUST(waitpid(child, &status, 0));
		if (WIFEXITED(status) && WEXITSTATUS(status) == 38)
			say("%s", words[i]);
	}
	say("done");
	return 0;
}
