// `convert MODEL OUT`: a folder that is itself a MODEL, with the weights packed for the CPU unit.
#pragma once

#include <string>

#include "convert/cache.h"
#include "convert/npu.h"

namespace espalier {

// Writes OUT/model.espalier, config.json (GGUF: its metadata), tokenizer, template, generation config and licence files. OUT
// must not exist or be an empty folder; it appears only when everything is written. The identity stored in the file holds the
// SHA-256 of each source file as well (`inspect --verify` checks them).
Status convert_model(const Checkpoint& checkpoint, const ModelPlan& plan, WeightsForm form, const std::string& out, ThreadTeam& team,
                     const PackProgress& progress);

// `convert --for npu`: the same folder with int8 weights (convert/npu.h) and, where ranges were measured on a text, npu-report.json, which
// is returned (else null). Refused: what the folder above is refused for, and what calibrate() refuses.
Result<Value> convert_for_npu(const Checkpoint& checkpoint, const ModelPlan& plan, const CalibrationText* text, const std::string& out, uint32_t threads,
                              const CalibrationProgress& progress);

// What `inspect --verify` says of a converted folder: its checksums are sound, and where the source is still there it is the
// one that was converted. One sentence a finding; a status when something is wrong.
Result<std::vector<std::string>> verify_converted(const Checkpoint& checkpoint);

}  // namespace espalier
