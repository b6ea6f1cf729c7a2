espalier_fuzz(template_fuzz SOURCES ${CMAKE_CURRENT_LIST_DIR}/template_fuzz.cc DEPS chat)
espalier_fuzz(tool_call_fuzz SOURCES ${CMAKE_CURRENT_LIST_DIR}/tool_call_fuzz.cc DEPS chat json)
