espalier_fuzz(tokenizer_json_fuzz SOURCES ${CMAKE_CURRENT_LIST_DIR}/tokenizer_json_fuzz.cc DEPS tokens json)
