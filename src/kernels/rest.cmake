# Everything but the matrix products and the head. Every op has <op>.cc (its list of variants), the reference and one source for
# each instruction set.
espalier_kernel_sources(math/precise.cc rope/rope_table.cc attention/kv_page.cc attention/attention_plan.cc)
foreach(op math/apply rms_norm/rms_norm add/add swiglu/swiglu short_conv/short_conv qk_norm_rope/qk_norm_rope
        attention/attention table_dot/table_dot)
  espalier_kernel_sources(${op}.cc ${op}_ref.cc)
  espalier_kernel_sources(ISA avx512_vnni ${op}_avx512.cc)
  espalier_kernel_sources(ISA avx2 ${op}_avx2.cc)
  espalier_kernel_sources(ISA neon_dotprod ${op}_neon.cc)
endforeach()
