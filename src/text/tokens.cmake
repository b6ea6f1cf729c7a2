find_path(pcre2_include pcre2.h REQUIRED)
find_library(pcre2_library NAMES pcre2-8 REQUIRED)
find_path(utf8proc_include utf8proc.h REQUIRED)
find_library(utf8proc_library NAMES utf8proc REQUIRED)

espalier_room(tokens
  SOURCES marked_text.cc unicode.cc unicode_nfc.cc pretokenizer_pattern.cc pretokenizer_regex.cc pretokenizer.cc bpe.cc
    tokenizer_added.cc tokenizer.cc tokenizer_json.cc tokenizer_gguf.cc utf8_stream.cc stop_strings.cc
  DEPS base
  LIBS ${pcre2_library} ${utf8proc_library})
target_include_directories(espalier_tokens PRIVATE ${pcre2_include} ${utf8proc_include})

espalier_test(tokens_test
  SOURCES marked_text_test.cc unicode_test.cc pretokenizer_test.cc bpe_test.cc utf8_stream_test.cc stop_strings_test.cc
  DEPS tokens json)
espalier_test(tokenizer_test
  SOURCES tokenizer_test.cc tokenizer_reference_test.cc tokenizer_test_support.cc
  DEPS tokens blocks json)
