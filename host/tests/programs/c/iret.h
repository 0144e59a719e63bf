/* Goes on behind itself by iretq from user mode to user mode: with the stack below the red zone, the flags, and the
 * selectors of user mode. */
static inline void return_to_itself(void)
{
	__asm__ volatile("mov %%rsp, %%rax\n\t"
			 "sub $128, %%rsp\n\t"
			 "push $0x2b\n\t"
			 "push %%rax\n\t"
			 "push $0x202\n\t"
			 "push $0x33\n\t"
			 "lea 1f(%%rip), %%rax\n\t"
			 "push %%rax\n\t"
			 "iretq\n"
			 "1:"
			 ::: "rax", "memory", "cc");
}
