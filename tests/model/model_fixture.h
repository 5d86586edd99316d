// Reads what scripts/make_model_fixtures.py wrote (its first lines tell the format).
#pragma once

#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/model/libtorch.h"

namespace swarmline::testing {

inline std::map<std::string, at::Tensor> read_model_fixture(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("no fixture " + path);
  std::map<std::string, at::Tensor> tensors;
  std::vector<std::string> order;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    std::istringstream words(line);
    std::string kind, name;
    words >> kind >> name;
    const std::vector<std::int64_t> shape{std::istream_iterator<std::int64_t>(words), {}};
    const auto type = kind == "f32" ? at::kFloat : kind == "f64" ? at::kDouble : at::kInt;
    tensors[name] = at::empty(shape, at::TensorOptions(type));
    order.push_back(name);
  }
  for (const std::string& name : order) {
    at::Tensor& tensor = tensors.at(name);
    file.read(static_cast<char*>(tensor.mutable_data_ptr()),
              static_cast<std::streamsize>(tensor.nbytes()));
    if (!file) throw std::runtime_error(path + " ends inside " + name);
  }
  return tensors;
}

}  // namespace swarmline::testing
