#include "decode/ngram_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "decode/draft_tree.h"
#include "decode/grow_tree.h"

namespace espalier {
namespace {

using Tokens = std::vector<int32_t>;

Tokens random_text(std::mt19937& random, size_t count, int32_t vocabulary) {
  Tokens text(count);
  for (int32_t& t : text) t = static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary));
  return text;
}

// The longest run that ends behind text and path and was seen before in any of the texts, and what followed it, by looking
// everywhere.
std::pair<int32_t, std::map<int32_t, int32_t>> naive_match(const std::vector<Tokens>& texts, const Tokens& text, const Tokens& path) {
  Tokens context = text;
  context.insert(context.end(), path.begin(), path.end());
  for (int32_t length = std::min<int32_t>(8, static_cast<int32_t>(context.size())); length >= 2; --length) {
    std::map<int32_t, int32_t> next;
    for (const Tokens& t : texts)
      for (size_t at = 0; at + static_cast<size_t>(length) < t.size(); ++at)
        if (std::equal(context.end() - length, context.end(), t.begin() + static_cast<std::ptrdiff_t>(at))) ++next[t[at + static_cast<size_t>(length)]];
    if (!next.empty()) return {length, next};
  }
  return {0, {}};
}

TEST(NgramSource, matches_equal_a_naive_search_while_the_text_grows) {
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    const int32_t vocabulary = 3 + round % 4;
    Calibration calibration = NgramSource::calibration();
    NgramSource source(calibration);
    std::vector<Tokens> extras;
    for (int i = 0; i < round % 3; ++i) {
      extras.push_back(random_text(random, random() % 40, vocabulary));
      source.add_text(extras.back());
    }
    Tokens text;
    while (text.size() < 150) {
      const Tokens more = random_text(random, random() % 7, vocabulary);
      text.insert(text.end(), more.begin(), more.end());
      source.begin(text);
      std::vector<Tokens> texts = extras;
      texts.push_back(text);
      for (int trial = 0; trial < 4; ++trial) {
        const Tokens path = random_text(random, random() % 5, vocabulary);
        const auto [length, next] = naive_match(texts, text, path);
        const NgramSource::Match found = source.match(path);
        ASSERT_EQ(found.length, length);
        std::map<int32_t, int32_t> got;
        int32_t places = 0;
        for (const auto& c : found.next) {
          got[c.token] = c.count;
          places += c.count;
        }
        EXPECT_EQ(got, next);
        EXPECT_EQ(found.places, places);
        EXPECT_TRUE(std::is_sorted(found.next.begin(), found.next.end(), [](const auto& a, const auto& b) { return a.count > b.count; }));
      }
    }
  }
}

std::vector<Proposal> propose(NgramSource& source, const Tokens& path = {}) {
  std::vector<Proposal> out;
  source.propose({static_cast<int32_t>(path.size()) - 1, static_cast<int32_t>(path.size()) - 2, path}, 32, out);
  return out;
}

TEST(NgramSource, probabilities_start_at_what_the_match_length_says) {
  const std::pair<int32_t, float> wanted[] = {{2, 0.5f}, {3, 0.7f}, {4, 0.85f}, {5, 0.875f}, {6, 0.9f}, {8, 0.9f}, {12, 0.9f}};
  for (const auto& [length, p] : wanted) {
    Calibration calibration = NgramSource::calibration();
    NgramSource source(calibration);
    Tokens text = {100};  // differs from what stands before the repetition
    for (int32_t i = 0; i < length; ++i) text.push_back(i);
    text.push_back(50);
    text.push_back(101);
    for (int32_t i = 0; i < length; ++i) text.push_back(i);
    source.begin(text);
    const std::vector<Proposal> out = propose(source);
    ASSERT_EQ(out.size(), 1u);
    EXPECT_EQ(out[0].token, 50);
    EXPECT_NEAR(out[0].probability, p, 1e-5f);
  }
}

TEST(NgramSource, more_places_say_more_and_disagreement_less) {
  const auto best = [](const Tokens& text) {
    Calibration calibration = NgramSource::calibration();
    NgramSource source(calibration);
    source.begin(text);
    return propose(source);
  };
  const auto once = best({1, 2, 3, 9, 1, 2});
  const auto twice = best({1, 2, 3, 9, 1, 2, 3, 8, 1, 2});
  const auto apart = best({1, 2, 3, 9, 1, 2, 4, 8, 1, 2});
  const auto mostly = best({1, 2, 3, 7, 1, 2, 4, 8, 1, 2, 3, 6, 1, 2});
  ASSERT_EQ(apart.size(), 2u);
  EXPECT_GT(twice[0].probability, once[0].probability);
  EXPECT_LT(apart[0].probability, once[0].probability);
  EXPECT_EQ(apart[0].token, 4) << "the newest of equal ones";
  EXPECT_EQ(mostly[0].token, 3);
  EXPECT_GT(mostly[0].probability, mostly[1].probability);
}

TEST(NgramSource, a_sure_copy_goes_on_to_the_end_of_the_tree) {
  Tokens text;
  for (int32_t i = 0; i < 200; ++i) text.push_back(1000 + i);
  for (int32_t i = 0; i < 6; ++i) text.push_back(1000 + i);
  Calibration calibration = NgramSource::calibration();
  NgramSource source(calibration);
  source.begin(text);
  TreeGrower grower({{{&source}}}, {});
  EXPECT_EQ(grower.grow(kDraftNodesMax), static_cast<size_t>(kDraftNodesMax));
  EXPECT_EQ(grower.tree(0).nodes.back().depth, kDraftDepthMax);
  EXPECT_EQ(grower.tree(0).nodes.back().token, 1005 + kDraftDepthMax);
  // A few cycles in which every copy was right make the next one surer.
  const float before = grower.reach()[20];
  Acceptance kept;
  for (int32_t i = 0; i < 40; ++i) {
    kept.path.push_back(i);
    kept.tokens.push_back(1006 + i);
  }
  for (int i = 0; i < 5; ++i) grower.learn(0, kept);
  source.begin(text);
  TreeGrower again({{{&source}}}, {});
  again.grow(kDraftNodesMax);
  EXPECT_GT(again.reach()[20], before * 2);
}

TEST(NgramSource, says_nothing_without_a_match_and_takes_another_text) {
  Calibration calibration = NgramSource::calibration();
  NgramSource source(calibration);
  source.begin({});
  EXPECT_TRUE(propose(source).empty());
  source.begin(Tokens{1});
  EXPECT_TRUE(propose(source).empty());
  EXPECT_TRUE(propose(source, {2}).empty());
  source.begin(Tokens{1, 2, 3, 1, 2});
  EXPECT_EQ(propose(source).at(0).token, 3);
  source.begin(Tokens{4, 5, 6, 4, 5});  // as long, and another
  EXPECT_EQ(propose(source).at(0).token, 6);
  source.begin(Tokens{1, 2});
  EXPECT_TRUE(propose(source).empty()) << "the text before is forgotten";
}

TEST(NgramSource, a_text_given_beside_serves_and_does_not_run_into_its_neighbours) {
  Calibration calibration = NgramSource::calibration();
  NgramSource source(calibration);
  source.add_text(Tokens{1, 2, 3, 4});
  source.add_text(Tokens{5, 6});
  source.begin(Tokens{2, 3});
  EXPECT_EQ(propose(source).at(0).token, 4);
  EXPECT_TRUE(propose(source, {4}).empty()) << "its end has no follower";
  source.begin(Tokens{2, 3, 5, 6});
  EXPECT_TRUE(propose(source).empty());
}

TEST(NgramSource, the_number_of_places_looked_at_is_bounded) {
  Calibration calibration = NgramSource::calibration();
  NgramSource source(calibration);
  Tokens text;
  for (int i = 0; i < 1000; ++i) text.insert(text.end(), {7, 7, 100 + i});
  text.insert(text.end(), {7, 7});
  source.begin(text);
  const NgramSource::Match found = source.match({});
  EXPECT_EQ(found.places, NgramSource::kVisits);
  EXPECT_EQ(found.next.front().token, 1099) << "the newest first";
}

}  // namespace
}  // namespace espalier
