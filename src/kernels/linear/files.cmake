# Matrix products: packing, activation quantisation, GEMM.
espalier_kernel_sources(linear/packed.cc linear/pack.cc linear/quantize.cc linear/quantize_ref.cc linear/linear.cc linear/linear_ref.cc)
espalier_kernel_sources(ISA avx512_vnni linear/quantize_avx512.cc linear/linear_avx512.cc)
espalier_kernel_sources(ISA amx_int8 linear/linear_amx.cc)
espalier_kernel_sources(ISA avx_vnni linear/linear_avx_vnni.cc)
espalier_kernel_sources(ISA avx2 linear/quantize_avx2.cc linear/linear_avx2.cc)
espalier_kernel_sources(ISA neon_dotprod linear/quantize_neon.cc linear/linear_neon.cc)
