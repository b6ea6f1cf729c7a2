espalier_test(head_test SOURCES head/head_test.cc DEPS kernels)
