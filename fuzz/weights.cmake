espalier_fuzz(safetensors_fuzz SOURCES safetensors_fuzz.cc DEPS weights)
espalier_fuzz(gguf_fuzz SOURCES gguf_fuzz.cc DEPS blocks)
espalier_fuzz(config_fuzz SOURCES config_fuzz.cc DEPS weights)
