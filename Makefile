# The commands of the README. `make help` lists them.
KERNEL_RUSTFLAGS = -C relocation-model=static -C code-model=kernel -C force-frame-pointers=yes
KERNEL_TARGET = x86_64-unknown-linux-gnu
KERNEL_CARGO = RUSTFLAGS="$(KERNEL_RUSTFLAGS)" cargo
KERNEL_ARGS = -p ebb-kernel --target $(KERNEL_TARGET) --target-dir target/kernel

.PHONY: kernel kernel-dev kernel-check
kernel: ## build the guest kernel as it is shipped
	$(KERNEL_CARGO) build $(KERNEL_ARGS) --profile kernel
kernel-dev: ## build the guest kernel quickly, with its assertions
	$(KERNEL_CARGO) build $(KERNEL_ARGS) --profile kernel-dev
kernel-check:
	$(KERNEL_CARGO) check $(KERNEL_ARGS) --profile kernel-dev
