# What leaves a call: argmax, log-sum-exp, top-k.
espalier_kernel_sources(head/head.cc head/head_ref.cc)
espalier_kernel_sources(ISA avx512_vnni head/head_avx512.cc)
espalier_kernel_sources(ISA avx2 head/head_avx2.cc)
espalier_kernel_sources(ISA neon_dotprod head/head_neon.cc)
