# The same commands for hands that type make; ./run says what each one does.
.PHONY: up test down lint
up test down lint:
	@./run $@
