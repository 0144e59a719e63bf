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

# A static program runs in every guest: on Ebb, on a stock kernel with nothing but an initramfs.
WORKLOADS_CARGO = RUSTFLAGS="-C target-feature=+crt-static -C strip=symbols" cargo
WORKLOADS_ARGS = -p ebb-workloads --release --target x86_64-unknown-linux-gnu --target-dir target/workloads

.PHONY: workloads
workloads: ## build the experiments as one static Linux program
	$(WORKLOADS_CARGO) build $(WORKLOADS_ARGS)
