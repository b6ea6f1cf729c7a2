#include "base/json.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace espalier {
namespace {

// Builds a Value from parser events; the stack holds the open containers.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return put(Value()); }
  bool boolean(bool b) override { return put(Value(b)); }
  bool number_integer(number_integer_t i) override { return put(Value(int64_t{i})); }
  bool number_unsigned(number_unsigned_t u) override { return put(Value(uint64_t{u})); }
  bool number_float(number_float_t d, const string_t&) override { return put(Value(d)); }
  bool string(string_t& s) override { return put(Value(std::move(s))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Value::object()); }
  bool start_array(std::size_t) override { return open(Value::array()); }
  bool key(string_t& k) override {
    keys_.back() = std::move(k);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    position_ = position;
    error_ = e.what();
    return false;
  }

  Value take() { return std::move(root_); }
  const std::string& error() const { return error_; }
  std::size_t position() const { return position_; }

 private:
  bool put(Value v) {
    if (open_.empty()) {
      root_ = std::move(v);
      return true;
    }
    Value& top = open_.back();
    if (top.is_array())
      top.as_array().push_back(std::move(v));
    else
      add_member(top, std::move(v));
    return true;
  }
  // Large objects (a vocabulary) have no repeated keys in practice; a linear search for each would be quadratic, so
  // duplicates are folded once, when the object closes.
  void add_member(Value& object, Value v) { object.as_object().emplace_back(std::move(keys_.back()), std::move(v)); }
  bool open(Value v) {
    if (open_.size() >= kMaxValueDepth) {
      error_ = "more than " + std::to_string(kMaxValueDepth) + " nested levels";
      return false;
    }
    open_.push_back(std::move(v));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    Value v = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    if (v.is_object()) fold_duplicates(v.as_object());
    return put(std::move(v));
  }
  static void fold_duplicates(Value::Object& members);

  Value root_;
  std::vector<Value> open_;
  std::vector<std::string> keys_;
  std::string error_;
  std::size_t position_ = 0;
};

void Builder::fold_duplicates(Value::Object& members) {
  if (members.size() < 2) return;
  std::vector<uint32_t> order(members.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int c = members[a].first.compare(members[b].first);
    return c != 0 ? c < 0 : a < b;
  });
  std::vector<bool> drop(members.size());
  bool any = false;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    const uint32_t first = order[i];
    size_t last = i;
    while (last + 1 < order.size() && members[order[last + 1]].first == members[first].first) ++last;
    if (last == i) continue;
    members[first].second = std::move(members[order[last]].second);
    for (size_t j = i + 1; j <= last; ++j) drop[order[j]] = true;
    any = true;
    i = last;
  }
  if (!any) return;
  Value::Object kept;
  for (size_t i = 0; i < members.size(); ++i)
    if (!drop[i]) kept.push_back(std::move(members[i]));
  members = std::move(kept);
}

std::string place(std::string_view text, std::size_t position) {
  const std::string_view before = text.substr(0, std::min(position, text.size()));
  const size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  const size_t start = before.rfind('\n');
  const size_t column = before.size() - (start == std::string_view::npos ? 0 : start + 1);
  return "line " + std::to_string(line) + ", column " + std::to_string(std::max<size_t>(column, 1));
}

// nlohmann's sentence without its "[json.exception...]" tag and position, which place() states.
std::string plain(const std::string& what) {
  const size_t colon = what.find(": ");
  return colon == std::string::npos ? what : what.substr(colon + 2);
}

void append_string(const std::string& s, std::string& out) {
  out += nlohmann::json(s).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void append_double(double d, std::string& out) {
  if (!std::isfinite(d)) {
    out += "null";
    return;
  }
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d).ptr;
  const std::string_view digits(buffer, static_cast<size_t>(end - buffer));
  out += digits;
  if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void newline(int indent, int depth, std::string& out) {
  if (indent <= 0) return;
  out += '\n';
  out.append(static_cast<size_t>(indent * depth), ' ');
}

void append(const Value& v, int indent, int depth, std::string& out) {
  if (v.is_null()) {
    out += "null";
  } else if (v.is_bool()) {
    out += v.as_bool() ? "true" : "false";
  } else if (v.is_int()) {
    out += std::to_string(v.as_int());
  } else if (v.is_double()) {
    append_double(v.as_double(), out);
  } else if (v.is_string()) {
    append_string(v.as_string(), out);
  } else if (v.is_array()) {
    out += '[';
    for (size_t i = 0; i < v.as_array().size(); ++i) {
      if (i != 0) out += ',';
      newline(indent, depth + 1, out);
      append(v.as_array()[i], indent, depth + 1, out);
    }
    if (!v.as_array().empty()) newline(indent, depth, out);
    out += ']';
  } else {
    out += '{';
    for (size_t i = 0; i < v.as_object().size(); ++i) {
      const Value::Member& m = v.as_object()[i];
      if (i != 0) out += ',';
      newline(indent, depth + 1, out);
      append_string(m.first, out);
      out += indent > 0 ? ": " : ":";
      append(m.second, indent, depth + 1, out);
    }
    if (!v.as_object().empty()) newline(indent, depth, out);
    out += '}';
  }
}

}  // namespace

Result<Value> parse_json(std::string_view text) {
  Builder builder;
  try {
    if (nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return builder.take();
  } catch (const std::exception& e) {
    return corrupt(std::string("not valid JSON: ") + e.what());
  }
  return corrupt("not valid JSON at " + place(text, builder.position()) + ": " + plain(builder.error()));
}

std::string to_json(const Value& value, int indent) {
  std::string out;
  append(value, indent, 0, out);
  return out;
}

}  // namespace espalier
