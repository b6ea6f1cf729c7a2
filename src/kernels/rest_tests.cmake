espalier_test(attention_test SOURCES attention/attention_test.cc DEPS kernels)
