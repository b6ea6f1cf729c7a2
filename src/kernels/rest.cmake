# Everything but the matrix products and the head. Every op folder has <op>.cc (its list of variants), the reference and one
# source for each instruction set.
espalier_kernel_sources(math/precise.cc rope/rope_table.cc attention/kv_page.cc attention/attention_plan.cc)
foreach(op rms_norm add swiglu short_conv qk_norm_rope attention)
  espalier_kernel_sources(${op}/${op}.cc ${op}/${op}_ref.cc)
  espalier_kernel_sources(ISA avx512_vnni ${op}/${op}_avx512.cc)
  espalier_kernel_sources(ISA avx2 ${op}/${op}_avx2.cc)
  espalier_kernel_sources(ISA neon_dotprod ${op}/${op}_neon.cc)
endforeach()
