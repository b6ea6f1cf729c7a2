// The text of tools/aimodel.py, made into a string by this folder's CMakeLists.txt: the program needs no file beside it.
#pragma once

namespace espalier::coreai {

extern const char* const kAimodelScript;

}  // namespace espalier::coreai
