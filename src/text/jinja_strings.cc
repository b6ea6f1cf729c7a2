// Python's string methods over marked text, and strftime.
#include <algorithm>
#include <array>
#include <cstdio>

#include "text/jinja_eval.h"
#include "text/jinja_unicode.h"

namespace espalier::jinja {
namespace {

bool in_set(std::string_view set, std::string_view character) {
  for (size_t at = 0; at < set.size();) {
    const CodePoint c = decode_at(set, at);
    if (set.substr(at, c.size) == character) return true;
    at += c.size;
  }
  return false;
}

std::vector<MarkedText> split_space(const MarkedText& text, int64_t max_splits, bool from_right) {
  const std::string_view s = text.text();
  std::vector<std::pair<size_t, size_t>> words;
  for (size_t at = skip_space(s); at < s.size();) {
    size_t end = at;
    while (end < s.size()) {
      const CodePoint c = decode_at(s, end);
      if (is_space(c.value)) break;
      end += c.size;
    }
    words.emplace_back(at, end);
    at = end + skip_space(s.substr(end));
  }
  const size_t keep = max_splits < 0 ? words.size() : static_cast<size_t>(max_splits);
  std::vector<MarkedText> out;
  if (words.size() > keep) {
    if (from_right) {
      const size_t first = words.size() - keep;  // what is left of these is one piece, its left space gone
      out.push_back(text.substr(words[0].first, words[first - 1].second - words[0].first));
      for (size_t i = first; i < words.size(); ++i) out.push_back(text.substr(words[i].first, words[i].second - words[i].first));
    } else {
      for (size_t i = 0; i < keep; ++i) out.push_back(text.substr(words[i].first, words[i].second - words[i].first));
      out.push_back(text.substr(words[keep].first));
    }
    // The outer end keeps its space, as in Python: 'a b '.split(None, 1) gives ['a', 'b '].
    if (from_right) {
      const size_t end = out[0].size() + words[0].first;
      out[0] = text.substr(0, end);
    }
    return out;
  }
  for (const auto& [begin, end] : words) out.push_back(text.substr(begin, end - begin));
  return out;
}

// Monday is 0.
int weekday(const CivilTime& t) {
  // Days since 1970-01-01 (a Thursday), by the civil-from-days algorithm.
  const int y = t.month <= 2 ? t.year - 1 : t.year;
  const int era = (y >= 0 ? y : y - 399) / 400;
  const int yoe = y - era * 400;
  const int doy = (153 * (t.month + (t.month > 2 ? -3 : 9)) + 2) / 5 + t.day - 1;
  const int doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
  const long days = static_cast<long>(era) * 146097 + doe - 719468;
  return static_cast<int>(((days + 3) % 7 + 7) % 7);
}

int day_of_year(const CivilTime& t) {
  static constexpr int kBefore[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  const bool leap = (t.year % 4 == 0 && t.year % 100 != 0) || t.year % 400 == 0;
  return kBefore[std::clamp(t.month, 1, 12) - 1] + t.day + (leap && t.month > 2 ? 1 : 0);
}

constexpr std::array kMonths = {"January", "February", "March",     "April",   "May",      "June",
                                "July",    "August",   "September", "October", "November", "December"};
constexpr std::array kDays = {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"};

std::string digits(int v, int width, char pad) {
  std::string s = std::to_string(v);
  if (pad != '\0' && s.size() < static_cast<size_t>(width)) s.insert(0, static_cast<size_t>(width) - s.size(), pad);
  return s;
}

std::string time_field(const CivilTime& t, char directive, bool unpadded) {
  const char zero = unpadded ? '\0' : '0', space = unpadded ? '\0' : ' ';
  const std::string month = kMonths[static_cast<size_t>(std::clamp(t.month, 1, 12)) - 1];
  const std::string day = kDays[static_cast<size_t>(weekday(t))];
  const int hour12 = t.hour % 12 == 0 ? 12 : t.hour % 12;
  switch (directive) {
    case 'Y': return std::to_string(t.year);
    case 'y': return digits(t.year % 100, 2, zero);
    case 'm': return digits(t.month, 2, zero);
    case 'd': return digits(t.day, 2, zero);
    case 'e': return digits(t.day, 2, space);
    case 'H': return digits(t.hour, 2, zero);
    case 'I': return digits(hour12, 2, zero);
    case 'M': return digits(t.minute, 2, zero);
    case 'S': return digits(t.second, 2, zero);
    case 'f': return "000000";
    case 'j': return digits(day_of_year(t), 3, zero);
    case 'p': return t.hour < 12 ? "AM" : "PM";
    case 'B': return month;
    case 'b':
    case 'h': return month.substr(0, 3);
    case 'A': return day;
    case 'a': return day.substr(0, 3);
    case 'u': return std::to_string(weekday(t) + 1);
    case 'w': return std::to_string((weekday(t) + 1) % 7);
    case 'F': return digits(t.year, 4, '0') + "-" + digits(t.month, 2, '0') + "-" + digits(t.day, 2, '0');
    case 'T': return digits(t.hour, 2, '0') + ":" + digits(t.minute, 2, '0') + ":" + digits(t.second, 2, '0');
    case 'R': return digits(t.hour, 2, '0') + ":" + digits(t.minute, 2, '0');
    case 'D':
    case 'x': return digits(t.month, 2, '0') + "/" + digits(t.day, 2, '0') + "/" + digits(t.year % 100, 2, '0');
    case 'X': return time_field(t, 'T', false);
    case 'c': return day.substr(0, 3) + " " + month.substr(0, 3) + " " + digits(t.day, 2, ' ') + " " +
                     time_field(t, 'T', false) + " " + std::to_string(t.year);
    case 'Z':
    case 'z': return {};  // a time without zone
    case 'n': return "\n";
    case 't': return "\t";
    case '%': return "%";
    default: fail(std::string("strftime_now: the directive '%") + directive + "' is not supported");
  }
}

}  // namespace

MarkedText strip(const MarkedText& text, const JinjaValue* chars, bool left, bool right) {
  const std::string_view s = text.text();
  size_t begin = 0, end = s.size();
  if (chars == nullptr || chars->is_none()) {
    if (left) begin = skip_space(s);
    if (right) end = std::max(begin, trim_space(s));
    return text.substr(begin, end - begin);
  }
  if (!chars->is_string()) fail("strip needs a string or None, found " + type_name(*chars));
  while (left && begin < end) {
    const CodePoint c = decode_at(s, begin);
    if (!in_set(chars->text(), s.substr(begin, c.size))) break;
    begin += c.size;
  }
  while (right && end > begin) {
    const CodePoint c = decode_before(s, end);
    if (!in_set(chars->text(), s.substr(c.begin, c.size))) break;
    end = c.begin;
  }
  return text.substr(begin, end - begin);
}

MarkedText replace(Evaluator& ev, const MarkedText& text, const MarkedText& from, const MarkedText& to, int64_t count) {
  MarkedText out;
  const std::string& s = text.text();
  size_t begin = 0;
  uint64_t left = count < 0 ? ~uint64_t{0} : static_cast<uint64_t>(count);
  const auto put = [&](size_t upto) {
    out.append(text.substr(begin, upto - begin));
    begin = upto;
  };
  const size_t cost = to.size() + 16 + text.runs().size() + to.runs().size() * 16;
  if (from.empty()) {  // before every character and at the end
    for (size_t at = 0; left > 0; --left) {
      ev.charge(cost);
      out.append(to);
      if (at >= s.size()) break;
      at += decode_at(s, at).size;
      put(at);
    }
    put(s.size());
    return out;
  }
  for (size_t hit = s.find(from.text()); left > 0 && hit != std::string::npos; hit = s.find(from.text(), begin), --left) {
    ev.charge(cost);
    put(hit);
    out.append(to);
    begin = hit + from.size();
  }
  put(s.size());
  return out;
}

std::vector<MarkedText> split(const MarkedText& text, const MarkedText* separator, int64_t max_splits, bool from_right) {
  if (separator == nullptr) return split_space(text, max_splits, from_right);
  if (separator->empty()) fail("empty separator");
  const std::string& s = text.text();
  const std::string& sep = separator->text();
  std::vector<size_t> hits;
  const auto more = [&] { return max_splits < 0 || hits.size() < static_cast<size_t>(max_splits); };
  if (from_right) {
    for (size_t end = s.size(); more() && end >= sep.size();) {
      const size_t hit = s.rfind(sep, end - sep.size());
      if (hit == std::string::npos) break;
      hits.push_back(hit);
      end = hit;
    }
    std::reverse(hits.begin(), hits.end());
  } else {
    for (size_t hit = s.find(sep); more() && hit != std::string::npos; hit = s.find(sep, hit + sep.size())) hits.push_back(hit);
  }
  std::vector<MarkedText> out;
  size_t begin = 0;
  for (size_t hit : hits) {
    out.push_back(text.substr(begin, hit - begin));
    begin = hit + sep.size();
  }
  out.push_back(text.substr(begin));
  return out;
}

std::vector<MarkedText> split_lines(const MarkedText& text, bool keep_ends) {
  const std::string_view s = text.text();
  std::vector<MarkedText> out;
  size_t begin = 0;
  for (size_t at = 0; at < s.size();) {
    const CodePoint c = decode_at(s, at);
    const bool ends = (c.value >= 10 && c.value <= 13) || (c.value >= 0x1c && c.value <= 0x1e) || c.value == 0x85 ||
                      c.value == 0x2028 || c.value == 0x2029;
    size_t next = at + c.size;
    if (ends) {
      if (c.value == '\r' && next < s.size() && s[next] == '\n') ++next;
      out.push_back(text.substr(begin, (keep_ends ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < s.size()) out.push_back(text.substr(begin));
  return out;
}

MarkedText join(Evaluator& ev, const MarkedText& separator, const std::vector<JinjaValue>& items) {
  MarkedText out;
  for (size_t i = 0; i < items.size(); ++i) {
    const MarkedText piece = to_str(items[i]);
    ev.charge(piece.size() + separator.size());
    if (i != 0) out.append(separator);
    out.append(piece);
  }
  return out;
}

MarkedText escape_html(const MarkedText& text) {
  MarkedText out;
  size_t begin = 0;
  for (const MarkedText::Run& run : text.runs()) {
    for (; begin < run.end; ++begin) {
      const char c = text.text()[begin];
      const std::string_view e = c == '&'    ? "&amp;"
                                 : c == '<'  ? "&lt;"
                                 : c == '>'  ? "&gt;"
                                 : c == '\'' ? "&#39;"
                                 : c == '"'  ? "&#34;"
                                             : std::string_view(&text.text()[begin], 1);
      out.append(e, run.origin);
    }
  }
  return out;
}

MarkedText repeat(Evaluator& ev, const MarkedText& text, int64_t times) {
  MarkedText out;
  if (times <= 0 || text.empty()) return out;
  if (static_cast<uint64_t>(times) > (uint64_t{64} << 20) / text.size()) fail("a string is longer than 64 MiB");
  ev.charge(text.size() * static_cast<size_t>(times));
  ev.step(static_cast<size_t>(times) * text.runs().size() / 8);
  for (int64_t i = 0; i < times; ++i) out.append(text);
  return out;
}

std::string format_time(const CivilTime& t, std::string_view format) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    const bool unpadded = format[i + 1] == '-' && i + 2 < format.size();
    i += unpadded ? 2 : 1;
    out += time_field(t, format[i], unpadded);
  }
  return out;
}

}  // namespace espalier::jinja
