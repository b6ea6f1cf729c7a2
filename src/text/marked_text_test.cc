#include "text/marked_text.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(MarkedText, runs_stay_normalised) {
  MarkedText text;
  text.append("", Origin::control);
  text.append("ab", Origin::data);
  text.append("c", Origin::data);
  text.append("", Origin::control);
  text.append("de", Origin::control);
  EXPECT_EQ(text.text(), "abcde");
  EXPECT_EQ(text.runs(), (std::vector<MarkedText::Run>{{3, Origin::data}, {5, Origin::control}}));
  MarkedText more("f", Origin::control);
  more.append("g", Origin::data);
  text.append(more);
  EXPECT_EQ(text.runs(), (std::vector<MarkedText::Run>{{3, Origin::data}, {6, Origin::control}, {7, Origin::data}}));
}

TEST(MarkedText, slices_keep_their_origins) {
  MarkedText text("<x>", Origin::control);
  text.append("abc", Origin::data);
  text.append("<y>", Origin::control);
  const MarkedText slice = text.substr(2, 5);
  EXPECT_EQ(slice.text(), ">abc<");
  EXPECT_EQ(slice.runs(), (std::vector<MarkedText::Run>{{1, Origin::control}, {4, Origin::data}, {5, Origin::control}}));
  EXPECT_EQ(text.substr(0), text);
  EXPECT_TRUE(text.substr(9).empty());
  EXPECT_TRUE(text.substr(100, 3).empty());
}

TEST(MarkedText, one_data_byte_makes_a_part_data) {
  MarkedText text("<x>", Origin::control);
  text.append("a", Origin::data);
  text.append("<y>", Origin::control);
  EXPECT_TRUE(text.is_control(0, 3));
  EXPECT_FALSE(text.is_control(0, 4));
  EXPECT_FALSE(text.is_control(3, 5));
  EXPECT_TRUE(text.is_control(4, 7));
  EXPECT_FALSE(text.is_control(4, 8)) << "beyond the end";
}

}  // namespace
}  // namespace espalier
