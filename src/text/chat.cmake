# Chat templates, requests and tool calls.
set(chat_sources jinja_eval.cc jinja_expressions.cc jinja_filters.cc jinja_format.cc jinja_lexer.cc jinja_methods.cc jinja_operators.cc
  jinja_parser.cc jinja_print.cc jinja_strings.cc jinja_tests.cc jinja_unicode.cc jinja_value.cc template.cc
  chat.cc chat_capabilities.cc python_literal.cc tool_calls.cc)
espalier_room(chat SOURCES ${chat_sources} DEPS tokens json base)
espalier_test(chat_test SOURCES template_test.cc chat_test.cc tool_calls_test.cc DEPS chat json)
