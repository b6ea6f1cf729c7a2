// `espalier bench --draft`: what drafting does and what it is worth, mode against mode on the same prompts in the same run.
//
// Every answer of every mode is compared with plain decoding before anything is timed, and again each time. A prompt is read once
// and its states are forked, so times are those of decoding alone, from the first token on. What is counted (tokens a cycle,
// acceptance, reliability) is of the first pass, with the calibrations as they are refined along it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/generation.h"
#include "measure/oracle_source.h"

namespace espalier {

struct DraftBenchOptions {
  std::vector<std::string> modes = {"off", "chain:9", "tree:16", "tree:24", "tree:48", "auto"};  // "off" comes first, given or not
  std::vector<double> temperatures = {0, 0.8};
  std::string sources = "all";  // "ngram" or "dspark": that one alone
  bool calibrated = true;       // false: probabilities as the sources give them, for comparison with a replay
  int32_t rounds = 5;           // of every prompt in every mode; 0: nothing is timed
  int64_t max_tokens = 128;
  std::string traced;  // the mode whose first pass at the first temperature is traced (measure/oracle_source.h); empty: none
};

// One mode, one kind of answer.
struct DraftCell {
  int64_t answers = 0, tokens = 0;  // tokens behind the first of each answer, of one round
  std::vector<double> round_ms;     // decoding all of them
  SpeculationStats stats;           // counts of the first pass; milliseconds of all rounds
  std::vector<int64_t> cycles;      // of each answer, first pass
};

struct DraftTable {
  double temperature = 0;
  std::vector<std::string> kinds;  // of each prompt's answer: "call", "prose"
  std::vector<std::vector<int32_t>> answers;  // their tokens, without the end token
  std::map<std::string, std::map<std::string, DraftCell>> cells;  // by mode, then kind: "call", "prose", "all"
};

struct DraftBench {
  std::vector<std::string> modes;
  std::vector<DraftTable> tables;  // one a temperature
  std::vector<Platt> ngram, greedy, sampled;  // after all of it
  TracingSource::Counts trace;                // of the drafter's proposals, where asked for
};

using DraftProgress = std::function<bool(const std::string& what)>;

// Fails where a text differs from plain decoding's (naming mode and prompt), with the model's status, or cancelled.
Result<DraftBench> bench_drafts(Engine::Impl& engine, const std::vector<ReadPrompt>& prompts, const DraftBenchOptions& options,
                                const DraftProgress& progress = {});

// Median over rounds of (milliseconds of `base`) / (milliseconds of `mode`), and the lowest and highest; zeros without rounds.
struct Ratio {
  double median = 0, low = 0, high = 0;
};
Ratio ratio_of(const DraftCell& base, const DraftCell& mode);

Value drafts_json(const DraftBench& bench);
std::string drafts_text(const DraftBench& bench);

}  // namespace espalier
