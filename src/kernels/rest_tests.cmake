espalier_test(attention_test SOURCES attention/attention_test.cc DEPS kernels)
espalier_test(kernel_ops_test SOURCES math/canonical_test.cc math/apply_test.cc rms_norm/rms_norm_test.cc swiglu/swiglu_test.cc
  short_conv/short_conv_test.cc qk_norm_rope/qk_norm_rope_test.cc table_dot/table_dot_test.cc DEPS kernels)

# Prints one hash of every kernel's results, the same on every machine; needs no library, so it also runs under an emulator.
add_executable(rest_selfcheck rest_selfcheck.cc)
target_link_libraries(rest_selfcheck PRIVATE espalier_kernels espalier_flags)
if(ESPALIER_TESTS AND NOT ESPALIER_CORE_ONLY)
  add_test(NAME rest_selfcheck COMMAND rest_selfcheck)
endif()
add_executable(attention_bench attention/attention_bench.cc)
target_link_libraries(attention_bench PRIVATE espalier_kernels espalier_flags)
if(ESPALIER_TESTS AND NOT ESPALIER_CORE_ONLY)
  add_test(NAME attention_bench_runs COMMAND attention_bench 100 1)
endif()
