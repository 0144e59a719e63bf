/* Returns to its own code by iretq, as Wine does. Some CPUs of QEMU's read the stack for that with the kernel's
 * rights, which SMAP forbids: the fault comes again for ever, and has to end. */
#include "say.h"
#include "iret.h"
#include <setjmp.h>

static sigjmp_buf back;

static void leave(int signal)
{
	siglongjmp(back, signal);
}

int main(void)
{
	pid_t child = MUST(fork());
	if (child == 0) {
		return_to_itself();
		_exit(0);
	}
	int status;
	MUST(waitpid(child, &status, 0));
	say("%s", WIFEXITED(status) ? "goes on" : "was ended by signal 11");
	if (WIFSIGNALED(status) && WTERMSIG(status) != SIGSEGV)
		return 1;
	signal(SIGSEGV, leave);
	if (sigsetjmp(back, 1)) {
		say("handled signal 11");
		return 0;
	}
	return_to_itself();
	say("goes on");
	return 0;
}
